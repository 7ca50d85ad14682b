"""One LMDB environment per folder and process: shared by all who opened it, counted, and the place of the folder's lock.

LMDB allows a file to be opened once per process, and dies when the map grows under an open transaction. So everybody in the
process shares one `Folder`; it hands out read transactions that live for one block without an await, and grows the map only
when there is none. One process owns a folder for writing: it holds an flock on the file `lock`, which names it.
"""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Any, Final, TypeAlias

import lmdb

from ..errors import StoreError, StoreFormat, StoreFull, StoreInUse
from ..records import FORMAT
from .lmdb_layout import LAYOUT, TABLES, Format, decode_format, decode_log, encode, key, unkey
from .lmdb_lock import FolderLock
from .lmdb_overlay import Overlay

Transaction: TypeAlias = "lmdb.Transaction[bytes]"
"""At run time the class takes no parameter."""
Tables = dict[str, Any]

MAP_SIZES: Final = (1 << 36, 1 << 34, 1 << 32, 1 << 30)
"""What the map begins with: the first that the address space allows."""

FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What the system says when a file cannot become longer."""

_folders: dict[tuple[int, int], Folder] = {}
_folders_lock = threading.Lock()


class Folder:
    """An open folder. `writing`: this process owns it; `overlay`: the tail of its journal."""

    def __init__(self, path: Path, *, writing: bool, sync: bool, map_size: int | None, map_limit: int | None) -> None:
        self.path, self.map_limit = path, map_limit
        self.lock = threading.RLock()
        self.users = 0
        self.writing = False
        self.session = 0
        self.counters: Counter[str] = Counter()
        self.copying = threading.Lock()
        self.env = _open_env(path, writing, sync, map_size)
        try:
            _refuse_torn(self.env, path)
            self.tables = _open_tables(self.env, path, writing)
        except BaseException:
            self.env.close()
            raise
        self.overlay = Overlay(self.tables, self.counters)
        self._owner: FolderLock | None = None

    @contextmanager
    def view(self) -> Generator[Transaction]:
        """A read transaction for one block, which must not await; the overlay is up to date with it."""
        with self.lock:
            try:
                with self._begin() as txn:
                    if not (self.writing and self.overlay.known):
                        self.overlay.refresh(txn)
                    yield txn
            except lmdb.Error as e:
                raise store_error(e, self.path) from e

    def _begin(self) -> Transaction:
        try:
            return self.env.begin()
        except lmdb.MapResizedError:
            # Another process has grown the map; no transaction is open here, so it is safe to follow.
            self.env.set_mapsize(0)
            return self.env.begin()

    def open_for_writing(self, sync: bool, map_size: int | None) -> None:
        """A writer joins the readers of this process, whose environment cannot write: open another in its place, between two
        transactions."""
        with self.copying, self.lock:
            if self.env.flags()["readonly"]:
                self.env.close()
                self.env = _open_env(self.path, True, sync, map_size)
                self.tables.update(_open_tables(self.env, self.path, True))

    def own(self, owner: FolderLock) -> None:
        """Become the writer: a new session, durably, so that no epoch is ever given out twice."""
        meta = self.tables["meta"]
        with self.lock:
            try:
                with self.env.begin(write=True) as txn:
                    self.session = unkey(txn.get(b"session", key(0), db=meta)) + 1
                    txn.put(b"session", key(self.session), db=meta)
            except lmdb.Error as e:
                raise store_error(e, self.path) from e
            with self.view():  # reads the journal's tail
                self._owner, self.writing = owner, True

    def disown(self) -> None:
        """The writer of this process is done."""
        with self.lock:
            self.writing, self.overlay.known = False, False
            if self._owner is not None:
                self._owner.release()
                self._owner = None

    def grow(self) -> bool:
        """Double the map; False if that is not possible. Only for the writer, between two transactions."""
        with self.copying, self.lock:
            size = self.env.info()["map_size"]
            larger = size * 2 if self.map_limit is None else min(size * 2, self.map_limit)
            # LMDB gives the old map up before it asks for the new one, and cannot go back: ask first.
            if larger <= size or not room_for(larger):
                return False
            self.env.set_mapsize(larger)
            return True

    def owner_of(self, txn: Transaction, log: int) -> str | None:
        """The agent whose own log has this number; None if it was deleted."""
        data = txn.get(key(log), db=self.tables["logs"])
        return None if data is None else decode_log(data).agent

    def copy(self, to: Path) -> None:
        """Write a compacted copy of all that is committed into the folder `to`; blocks, so call it from a thread."""
        with self.copying:
            with self.view():
                pass  # follows a map that another process has grown
            try:
                self.env.copy(str(to), compact=True)
            except lmdb.Error as e:
                raise store_error(e, to) from e


# -- opening and closing, shared by the whole process


def open_folder(
    path: Path, *, readonly: bool, sync: bool = True, map_size: int | None = None, map_limit: int | None = None
) -> Folder:
    """The folder at `path`, one more user of it. Blocks on the disk: call it from a thread."""
    _prepare(path, readonly)
    with _folders_lock:
        where = path.stat()
        name = (where.st_dev, where.st_ino)
        folder = _folders.get(name)
        owner = None
        if not readonly:
            if folder is not None and folder.writing:
                raise _in_use(path, os.getpid())
            owner = FolderLock(path)
        try:
            if folder is None:
                folder = Folder(path, writing=not readonly, sync=sync, map_size=map_size, map_limit=map_limit)
            folder.users += 1
            _folders[name] = folder
            folder.env.reader_check()  # processes that were killed leave their slots behind
            if owner is not None:
                folder.map_limit = map_limit
                folder.open_for_writing(sync, map_size)
                folder.own(owner)
        except BaseException:
            if owner is not None:
                owner.release()
            if folder is not None:
                _leave(folder)
            raise
        return folder


def close_folder(folder: Folder) -> None:
    """One user less; the last one closes it."""
    with _folders_lock:
        _leave(folder)


def _leave(folder: Folder) -> None:
    folder.users -= 1
    if folder.users == 0:
        for name, known in list(_folders.items()):
            if known is folder:
                del _folders[name]
        with folder.lock:
            folder.env.close()


def _in_use(path: Path, pid: int | None) -> StoreInUse:
    return StoreInUse(f"{path} is open for writing in this process already; share that store or open it read-only", pid=pid)


def _prepare(path: Path, readonly: bool) -> None:
    if path.exists() and not path.is_dir():
        raise StoreFormat(f"{path} is a file, but a store is a folder; give another name")
    if readonly:
        data = path / "data.mdb"
        if not data.is_file() or data.stat().st_size == 0:
            raise StoreError(f"there is no store in {path}; check the name, or open it for writing to create one")
        return
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise StoreError(f"the folder {path} cannot be created: {e.strerror}") from e
    if not os.access(path, os.W_OK | os.X_OK):
        raise StoreError(f"the folder {path} is not writable; change its permissions or open it read-only")


def _open_env(path: Path, writing: bool, sync: bool, map_size: int | None) -> lmdb.Environment:
    sizes = (map_size,) if map_size is not None else [s for s in MAP_SIZES if room_for(s)] or MAP_SIZES[-1:]
    try:
        return lmdb.open(
            str(path),
            map_size=sizes[0],
            max_dbs=len(TABLES) + 3,
            max_readers=1024,
            # Opened for writing, even the handles of tables take the writer's lock: a reader would wait for the owner, and for
            # ever for one that is stopped in a transaction.
            readonly=not writing,
            create=writing,
            sync=sync,
            metasync=sync,
        )
    except lmdb.Error as e:
        raise store_error(e, path) from e


def room_for(size: int) -> bool:
    """Whether the address space has room for a map of this size."""
    try:
        mmap(-1, size, flags=MAP_PRIVATE | MAP_ANONYMOUS | 0x4000, prot=0).close()  # 0x4000: MAP_NORESERVE
    except (OSError, OverflowError, ValueError):
        return False
    return True


def _refuse_torn(env: lmdb.Environment, path: Path) -> None:
    """Raise StoreFormat for a file that lost its end. Touching a page of the map that the file lacks kills the process.

    A sound file may lack its last pages, if the last transaction freed what it had taken. So the file is made long enough
    first, and then walked: pages that were really lost read as zeros, which LMDB refuses.
    """
    file = path / "data.mdb"
    size = file.stat().st_size
    whole = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    if size >= whole:
        return
    try:
        os.truncate(file, whole)
        _walk(env)
    except (lmdb.Error, OSError) as e:
        os.truncate(file, size)
        raise StoreFormat(f"{file} is torn ({size} of {whole} bytes are left); restore the folder from a backup") from e


def _walk(env: lmdb.Environment) -> None:
    with env.begin() as txn:
        names = list(txn.cursor().iternext(values=False))
        for name in names:
            table = env.open_db(name, txn=txn, create=False)
            for _ in txn.cursor(db=table).iternext():
                pass


def _open_tables(env: lmdb.Environment, path: Path, writing: bool) -> Tables:
    try:
        with env.begin() as txn:
            names = set(txn.cursor().iternext(values=False))
            known = b"meta" in names
            if known:
                meta = env.open_db(b"meta", txn=txn, create=False)
                _check_format(txn.get(b"format", db=meta), path)
        if names and not known:
            raise _foreign(path)
        if not names and not writing:
            raise StoreError(f"there is no store in {path}; check the name, or open it for writing to create one")
        if not names:
            return _create_tables(env)
        # Not in a read transaction of ours: py-lmdb resets those instead of committing, and handles made in one end with it.
        return {table: env.open_db(table.encode(), create=False) for table in TABLES}
    except lmdb.Error as e:
        raise store_error(e, path) from e


def _create_tables(env: lmdb.Environment) -> Tables:
    with env.begin(write=True) as txn:
        tables: Tables = {table: env.open_db(table.encode(), txn=txn) for table in TABLES}
        txn.put(b"format", encode(Format(LAYOUT, FORMAT)), db=tables["meta"])
        return tables


def _check_format(data: bytes | None, path: Path) -> None:
    try:
        found = decode_format(data or b"")
    except ValueError as e:
        raise _foreign(path) from e
    if found.callboard > LAYOUT or found.records > FORMAT:
        raise StoreFormat(
            f"the store in {path} was written by a newer Callboard (format {found.callboard}.{found.records}; "
            f"this one knows {LAYOUT}.{FORMAT}): upgrade to open it"
        )


def _foreign(path: Path) -> StoreFormat:
    return StoreFormat(f"{path / 'data.mdb'} is not a Callboard store; give another folder")


def store_error(error: lmdb.Error, path: Path) -> StoreError:
    """What an error of LMDB means to us."""
    code = getattr(error, "code", 0)  # only those that LMDB itself raises have it
    if isinstance(error, lmdb.MapFullError | lmdb.DiskError) or code in FULL or (code == errno.EIO and _is_full(path)):
        return StoreFull(f"there is no space left for the store in {path}; free some and send again")
    if isinstance(error, lmdb.InvalidError | lmdb.VersionMismatchError):
        return _foreign(path)
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError | lmdb.NotFoundError | lmdb.BadValsizeError):
        return StoreFormat(f"the store in {path} is damaged ({error}); restore the folder from a backup")
    if isinstance(error, lmdb.ReadonlyError | lmdb.LockError) or code in (errno.EACCES, errno.EROFS):
        return StoreError(f"the store in {path} cannot be opened: {error}; check the permissions of the folder")
    return StoreError(f"the store in {path} failed: {error}")


def _is_full(path: Path) -> bool:
    # LMDB takes a short write for an I/O error; nearly always it means that the disk became full in the middle of it, or that
    # the file has reached the length that this process may give it.
    disk, longest = os.statvfs(path), resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    left = disk.f_bavail * disk.f_frsize
    if longest != resource.RLIM_INFINITY:
        left = min(left, longest - (path / "data.mdb").stat().st_size)
    return left < 1 << 20
