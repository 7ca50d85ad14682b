"""The LMDB engine: one folder, one writer, any number of readers.

The design is in the modules beside it: `lmdb_layout` (tables and rows), `lmdb_env` (the shared environment and its lock),
`lmdb_overlay` (what derived tables do not have yet) and `lmdb_parts` (how they get it), `lmdb_plan` (from units to rows),
`lmdb_thread`, `lmdb_read`, `lmdb_delete`. Here is the store that puts them together.

Everything but the transaction itself happens in the loop's thread: py-lmdb gives up Python's lock at every row, and the less the
thread has to do in between, the less it needs the lock.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import lmdb
import trio

from ..errors import StoreError, StoreFull, UsageError
from ..store import Flag, Head, Results, Snapshot, Unit
from .checks import check_agent, check_unit, matches
from .lmdb_env import FULL, Folder, close_folder, open_folder, store_error
from .lmdb_layout import decode_snapshot, key
from .lmdb_plan import Plan
from .lmdb_read import LmdbReader
from .lmdb_thread import WriterThread

LAZY_COMMITS: Final = 64
"""Commits after which the derived tables are written."""
LAZY_FRAMES: Final = 2048
"""The same in frames. Half as many may join until they are written: so much a reader has to scan."""
LAZY_ROWS: Final = 256
"""Rows of derived tables that go with one commit; more only with one that adds more."""
CLOSING_ROWS, CLOSING_S = 1024, 1.0
"""Rows that go with one commit at closing, and after how long what is left is left: whoever opens the store next reads the
journal instead."""
LOOKED_AT: Final = 2000
"""Heads that `agents` looks at between two checkpoints."""


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(os.path.abspath(path))


class LmdbStore:
    """A store in a folder; `await LmdbStore.open(path)` opens one."""

    def __init__(self, folder: Folder, thread: WriterThread, *, readonly: bool, lazy_commits: int, lazy_rows: int) -> None:
        self._open: Folder | None = folder
        self._name, self._readonly = str(folder.path), readonly
        self._lazy_commits, self._lazy_rows = lazy_commits, lazy_rows
        self._counters = folder.counters
        self._fences: dict[str, int] = {}
        self._epoch = folder.session << 32
        self._turn = trio.Lock()
        self._thread = thread

    @classmethod
    async def open(
        cls,
        path: str | os.PathLike[str],
        *,
        readonly: bool = False,
        sync: bool = True,
        map_size: int | None = None,
        map_limit: int | None = None,
        lazy_commits: int = LAZY_COMMITS,
        lazy_rows: int = LAZY_ROWS,
    ) -> LmdbStore:
        """The store in the folder `path`.

        `sync=False` gives durability up for speed: a crash of the machine may lose or damage what was committed. `map_size`
        is the address space to begin with (64 GiB if there is room), `map_limit` what it may grow to; both in bytes.

        Raises:
            StoreInUse: somebody else writes to it.
            StoreFormat: it holds something else, or was damaged.
            StoreError: it cannot be used.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        where = _absolute(path)
        opening = partial(open_folder, where, readonly=readonly, sync=sync, map_size=map_size, map_limit=map_limit)
        thread = WriterThread(f"callboard writer of {where}")
        try:
            # It cannot be abandoned: a cancel half-way would leave the folder open with nobody to close it.
            folder = await thread.run(lambda _: opening())
        finally:
            thread.stop()  # it starts again with the first commit: a store that is only read needs none
        return cls(folder, thread, readonly=readonly, lazy_commits=lazy_commits, lazy_rows=lazy_rows)

    @property
    def name(self) -> str:
        """The folder."""
        return self._name

    @property
    def readonly(self) -> bool:
        """Whether `own` and `commit` are refused."""
        return self._readonly

    def _folder(self) -> Folder:
        if self._open is None:
            raise UsageError(f"the store {self._name} is closed; open it again")
        return self._open

    def _writable(self) -> Folder:
        folder = self._folder()
        if self._readonly:
            raise UsageError(f"the store {self._name} is open read-only; open it for writing")
        return folder

    # -- writing

    async def own(self, agent: str) -> int:
        """Take the agent over. The epoch is this session's number and a counter, so it costs no flush."""
        await trio.lowlevel.checkpoint()
        self._writable()
        check_agent(agent)
        self._epoch += 1
        self._fences[agent] = self._epoch
        return self._epoch

    async def commit(self, units: Sequence[Unit]) -> Results:
        """Write the units in one transaction, durable on return. Commits are made one after another."""
        self._writable()
        for unit in units:
            check_unit(unit)
        await self._take_turn()
        try:
            folder = self._writable()
            plan = self._plan(folder, units)
            if plan.empty:
                await trio.lowlevel.checkpoint()
            else:
                await self._write(folder, plan)
            self._counters["commits"] += 1
            return plan.results
        finally:
            self._turn.release()

    async def _take_turn(self) -> None:
        # `async with` would be a scheduler pass for each commit, and an agent alone waits for every one of them.
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._turn.locked():
            await self._turn.acquire()
        else:
            self._turn.acquire_nowait()

    def _plan(self, folder: Folder, units: Sequence[Unit]) -> Plan:
        overlay = folder.overlay
        with folder.view() as txn:
            plan = Plan(overlay, folder.tables, self._fences, txn)
            for unit in units:
                plan.add(unit)
            if overlay.aim(self._lazy_commits, LAZY_FRAMES):
                plan.write_out(self._lazy_rows)
            plan.finish()
        return plan

    async def _write(self, folder: Folder, plan: Plan) -> None:
        try:
            while not await self._try(folder, plan):
                if not await trio.to_thread.run_sync(folder.grow):
                    raise StoreFull(f"the map of {self._name} is full and cannot grow; free some space and send again")
        except BaseException:
            # What is on disk is not certain after an error: read it again before the next commit.
            folder.overlay.known = False
            raise
        self._counters["flushes"] += 1
        self._counters["frames_written"] += plan.frames
        self._counters["rows_written"] += plan.rows
        plan.settle()
        for agent in plan.deleted():
            self._fences.pop(agent, None)

    async def _try(self, folder: Folder, plan: Plan) -> bool:
        """One try in the thread; False if the map is full."""

        def transaction(rows_are_put: Callable[[], None]) -> None:
            with folder.env.begin(write=True) as txn:
                plan.run(txn)
                rows_are_put()

        try:
            await self._thread.run(transaction)
        except lmdb.MapFullError:
            return False
        except lmdb.Error as e:
            raise store_error(e, folder.path) from e
        except OSError as e:
            raise (StoreFull if e.errno in FULL else StoreError)(f"the store {self._name} cannot be written: {e.strerror}") from e
        return True

    # -- reading

    async def head(self, agent: str) -> Head | None:
        """The end of the agent's log; None if there is no such agent."""
        await trio.lowlevel.checkpoint()
        check_agent(agent)
        folder = self._folder()
        with folder.view() as txn:
            row = folder.overlay.row(txn, agent)
            return row.head() if row else None

    async def snapshot(self, agent: str) -> Snapshot | None:
        """The newest snapshot, if there is one."""
        await trio.lowlevel.checkpoint()
        check_agent(agent)
        folder = self._folder()
        with folder.view() as txn:
            row = folder.overlay.row(txn, agent)
            data = txn.get(key(row.log), db=folder.tables["snapshots"]) if row else None
        return None if data is None else Snapshot(*decode_snapshot(data))

    def read(self, agent: str, after: int = -1, upto: int | None = None, types: Container[str] | None = None) -> LmdbReader:
        """Committed records, page by page; see `Store.read`."""
        check_agent(agent)
        return LmdbReader(self._folder, agent, after, upto, types)

    async def find(self, agent: str, message_id: str) -> int | None:
        """The seq of the record that brought this message, in the agent's own part of its log."""
        await trio.lowlevel.checkpoint()
        check_agent(agent)
        folder = self._folder()
        with folder.view() as txn:
            row = folder.overlay.row(txn, agent)
            return folder.overlay.find(txn, row.log, message_id) if row else None

    async def agents(
        self,
        prefix: str = "",
        labels: Mapping[str, str] | None = None,
        flag: Flag | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Head]:
        """One page of agents in order of id, from the index."""
        found: list[Head] = []
        more = True
        while more and len(found) < limit:
            await trio.lowlevel.checkpoint()
            after, more = self._look(prefix, labels, flag, after, limit, found)
        return found

    def _look(
        self,
        prefix: str,
        labels: Mapping[str, str] | None,
        flag: Flag | None,
        after: str | None,
        limit: int,
        found: list[Head],
    ) -> tuple[str | None, bool]:
        """Look at some heads behind `after`; answers the last one looked at, and whether there may be more."""
        folder = self._folder()
        with folder.view() as txn:
            for looked, agent in enumerate(folder.overlay.names(txn, prefix, after, flag)):
                if not agent.startswith(prefix) or len(found) >= limit:
                    return after, False
                if looked >= LOOKED_AT:
                    return after, True
                after = agent
                row = folder.overlay.row(txn, agent)
                if row and (flag is None or flag in row.flags) and matches(row.summary.labels, labels):
                    found.append(row.head())
        return after, False

    async def blob(self, digest: str) -> bytes:
        """A big value by its digest."""
        await trio.lowlevel.checkpoint()
        folder = self._folder()
        with folder.view() as txn:
            data = txn.get(digest.encode() or b"\0", db=folder.tables["blobs"])
        if data is None:
            raise StoreError(f"there is no blob {digest} in {self._name}")
        return data

    async def arrivals(self, agent: str) -> list[bytes]:
        """None, ever: whoever writes here owns every agent."""
        await trio.lowlevel.checkpoint()
        check_agent(agent)
        return []

    # -- the rest

    async def backup(self, to: Path) -> None:
        """A compacted copy of all that is committed, in the empty folder `to`; the store goes on meanwhile."""
        await trio.to_thread.run_sync(self._folder().copy, to)

    async def aclose(self) -> None:
        """Write the derived tables, end the thread, give the folder up. Calling it again does nothing."""
        with trio.CancelScope(shield=True):
            async with self._turn:
                folder, self._open = self._open, None
                if folder is None:
                    return
                try:
                    if not self._readonly:
                        await self._write_tail(folder)
                finally:
                    await self._give_up(folder)

    async def _write_tail(self, folder: Folder) -> None:
        end = time.monotonic() + CLOSING_S
        while folder.overlay.known and folder.overlay.dirty:
            if time.monotonic() > end or not await self._write_part(folder):
                # Nothing is lost: whoever opens the folder next reads the journal's tail instead.
                self._counters["tails_left"] += 1
                return

    async def _write_part(self, folder: Folder) -> bool:
        folder.overlay.aim(0, 0)
        with folder.view() as txn:
            plan = Plan(folder.overlay, folder.tables, self._fences, txn)
            plan.write_out(CLOSING_ROWS)
        try:
            await self._write(folder, plan)
        except StoreFull:
            return False
        return True

    async def _give_up(self, folder: Folder) -> None:
        try:
            await self._thread.run(lambda _: self._close(folder))
        finally:
            self._thread.stop()

    def _close(self, folder: Folder) -> None:
        if not self._readonly:
            folder.disown()
        close_folder(folder)

    def statistics(self) -> Mapping[str, Any]:
        """Counters: commits, flushes, rows and frames written, frames read and scanned, chunk rows and heads read; of this
        process."""
        written = ("commits", "flushes", "frames_written", "rows_written")
        names = (*written, "frames_read", "frames_scanned", "chunk_rows_read", "heads_read")
        overlay = self._folder().overlay
        return {
            **{name: self._counters[name] for name in names},
            "overlay_agents": len(overlay.dirty),
            "overlay_frames": overlay.frames,
        }
