"""What LMDB says goes wrong is told in our words, at every place where it can say so."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import lmdb
import pytest

from callboard.storage.conformance_kit import create, seqs
from callboard.storage.engines import lmdb_env
from callboard.storage.engines.lmdb import LOOKED_AT, LmdbStore
from callboard.storage.engines.lmdb_env import room_for, store_error
from callboard.storage.engines.lmdb_lock import FolderLock
from callboard.storage.errors import StoreError, StoreFormat, StoreFull, UsageError
from callboard.storage.exchange import backup
from callboard.storage.opening import open_store

HERE = Path("state")


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (lmdb.MapFullError("full"), StoreFull, "no space left"),
        (lmdb.InvalidError("what"), StoreFormat, "is not a Callboard store"),
        (lmdb.CorruptedError("page 3"), StoreFormat, "is damaged .*page 3.*; restore the folder from a backup"),
        (lmdb.ReadonlyError("no"), StoreError, "cannot be opened: .*; check the permissions"),
        (lmdb.BadTxnError("bad"), StoreError, "failed: .*bad"),
    ],
)
def test_each_error_says_what_to_do(error: lmdb.Error, kind: type[StoreError], text: str) -> None:
    told = store_error(error, HERE)
    assert type(told) is kind
    with pytest.raises(kind, match=text):
        raise told


def test_an_error_by_its_number_is_one_of_the_folder() -> None:
    error: Any = lmdb.Error("open")
    error.code = errno.EACCES
    assert "check the permissions" in str(store_error(error, HERE))


def test_there_is_room_for_what_fits_an_address_space() -> None:
    assert room_for(1 << 20)
    assert not room_for(1 << 62)
    assert not room_for(1 << 80)


def test_a_folder_whose_lock_cannot_be_a_file_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    with pytest.raises(StoreError, match="is not writable: Is a directory"):
        FolderLock(tmp_path)


def test_a_lock_is_given_back_once(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    lock.release()
    lock.release()
    FolderLock(tmp_path).release()


class Env:
    """An environment of LMDB in which one call fails; all others are its own."""

    def __init__(self, env: Any, call: str, error: lmdb.Error, times: int = 1) -> None:
        self._env, self._call, self._error, self._times = env, call, error, times

    def __getattr__(self, name: str) -> Any:
        if name == self._call and self._times > 0:
            return self._fail
        return getattr(self._env, name)

    def _fail(self, *given: Any, **more: Any) -> Any:
        self._times -= 1
        raise self._error


async def test_a_map_that_another_process_has_grown_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(tmp_path, sync=False) as store:
        await create(store, "a", 3)
        assert isinstance(store, LmdbStore)
        folder: Any = store._folder()  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(folder, "env", Env(folder.env, "begin", lmdb.MapResizedError("grown")))
        assert await seqs(store, "a") == [0, 1, 2]


async def test_a_read_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(tmp_path, sync=False) as store:
        await create(store, "a", 3)
        assert isinstance(store, LmdbStore)
        folder: Any = store._folder()  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(folder, "env", Env(folder.env, "begin", lmdb.CorruptedError("page 3")))
        with pytest.raises(StoreFormat, match="is damaged"):
            await seqs(store, "a")
        assert await seqs(store, "a") == [0, 1, 2]


async def test_a_copy_that_fails_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(tmp_path / "one", sync=False) as store:
        await create(store, "a")
        assert isinstance(store, LmdbStore)
        folder: Any = store._folder()  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(folder, "env", Env(folder.env, "copy", lmdb.DiskError("full")))
        with pytest.raises(StoreFull, match="two"):
            await backup(store, tmp_path / "two")


async def test_a_writer_that_cannot_begin_its_session_leaves_the_folder_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_store(tmp_path, sync=False) as store:
        await create(store, "a")

    class Fails(lmdb_env.Folder):
        def own(self, owner: FolderLock) -> None:
            self.env = Env(self.env, "begin", lmdb.DiskError("full"))  # type: ignore[assignment]
            super().own(owner)

    monkeypatch.setattr(lmdb_env, "Folder", Fails)
    with pytest.raises(StoreFull):
        await LmdbStore.open(tmp_path, sync=False)
    monkeypatch.undo()
    async with open_store(tmp_path, sync=False) as store:
        assert await seqs(store, "a") == [0]


async def test_an_id_that_is_no_text_is_refused(tmp_path: Path) -> None:
    nobody: Any = 7
    async with open_store(tmp_path, sync=False) as store:
        with pytest.raises(UsageError, match="an agent id is a text, not 7"):
            await store.head(nobody)


async def test_a_listing_that_finds_little_looks_at_much_in_several_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LOOKED_AT > 100
    monkeypatch.setattr("callboard.storage.engines.lmdb.LOOKED_AT", 3)
    async with open_store(tmp_path, sync=False) as store:
        for number in range(10):
            await create(store, f"a{number}")
        assert [head.agent for head in await store.agents(labels={"user": "ann"})] == []
        assert len(await store.agents()) == 10
