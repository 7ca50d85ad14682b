"""LMDB when there is no room: a map that grows, one that cannot, a disk that is full, and errors of the writer's thread."""

from __future__ import annotations

import errno
import resource
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import pytest
import trio

from callboard.storage.conformance_kit import batch, create, note, seqs, write
from callboard.storage.engines.lmdb import LmdbStore
from callboard.storage.engines.lmdb_env import store_error
from callboard.storage.engines.lmdb_plan import Plan
from callboard.storage.errors import CommitFailed, StoreError, StoreFull
from callboard.storage.events import Note
from callboard.storage.opening import open_store
from callboard.storage.records import Record

SMALL = 1 << 20


def big(seq: int, size: int = 50_000) -> Record:
    return note(seq, "x" * size)


def returning(value: object) -> Callable[[object], object]:
    """A function that answers this to whatever it is asked."""
    return lambda _: value


def no_room(_: int) -> bool:
    return False


async def test_c235_a_full_map_grows_under_a_reader_half_way(tmp_path: Path) -> None:
    store = await LmdbStore.open(tmp_path, sync=False, map_size=SMALL)
    epoch = await create(store, "a", 400)
    async with open_store(tmp_path, readonly=True) as other:
        readers = [store.read("a"), other.read("a")]
        seen = [[(await anext(reader)).seq for _ in range(300)] for reader in readers]
        for seq in range(400, 500):
            await write(store, [batch("a", epoch, [big(seq)])])
        for reader, got in zip(readers, seen, strict=True):
            got += [record.seq async for record in reader]
            assert got == list(range(500))
    await store.aclose()
    assert (tmp_path / "data.mdb").stat().st_size > 4 * SMALL


async def test_c235_growing_waits_for_nobody_but_a_backup(tmp_path: Path) -> None:
    store = await LmdbStore.open(tmp_path, sync=False, map_size=SMALL)
    epoch = await create(store, "a")
    async with trio.open_nursery() as nursery:
        (tmp_path / "copy").mkdir()
        nursery.start_soon(store.backup, tmp_path / "copy")
        for seq in range(1, 60):
            await write(store, [batch("a", epoch, [big(seq)])])
    await store.aclose()
    async with open_store(tmp_path / "copy", readonly=True) as copy:
        assert (await seqs(copy, "a"))[0] == 0


async def test_c235_the_map_never_grows_under_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy is a transaction in another thread; growing under it would end the process."""
    store = await LmdbStore.open(tmp_path, sync=False, map_size=SMALL)
    folder = store._open  # pyright: ignore[reportPrivateUsage]
    assert folder is not None
    held: list[bool] = []

    def room(_: int) -> bool:
        held.append(folder.copying.locked())
        return True

    monkeypatch.setattr("callboard.storage.engines.lmdb_env.room_for", room)
    epoch = await store.own("a")
    await write(store, [batch("a", epoch, [big(0, 2 * SMALL)])])
    assert held
    assert all(held)
    await store.aclose()


async def test_c235_a_map_that_cannot_grow_is_a_full_store_that_still_reads(tmp_path: Path) -> None:
    store = await LmdbStore.open(tmp_path, sync=False, map_size=SMALL, map_limit=SMALL)
    epoch = await create(store, "a")
    seq = 1
    with pytest.raises(StoreFull, match="cannot grow"):
        while True:
            await write(store, [batch("a", epoch, [big(seq)])])
            seq += 1
    assert seq > 3
    assert await seqs(store, "a") == list(range(seq))
    with pytest.raises(StoreFull):
        await write(store, [batch("a", epoch, [big(seq)])])
    await write(store, [batch("a", epoch, [note(seq)])])  # a small one still fits
    assert await seqs(store, "a", seq - 1) == [seq]
    await store.aclose()
    async with open_store(tmp_path, sync=False, map_size=4 * SMALL) as larger:
        epoch = await larger.own("a")
        await write(larger, [batch("a", epoch, [big(seq + 1)])])
        assert await seqs(larger, "a") == list(range(seq + 2))


async def test_c235_no_address_space_is_a_failed_grow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await LmdbStore.open(tmp_path, sync=False, map_size=SMALL)
    epoch = await create(store, "a")
    monkeypatch.setattr("callboard.storage.engines.lmdb_env.room_for", no_room)
    with pytest.raises(StoreFull):
        await write(store, [batch("a", epoch, [big(1, 2 * SMALL)])])
    assert await seqs(store, "a") == [0]
    monkeypatch.undo()
    await write(store, [batch("a", epoch, [big(1, 2 * SMALL)])])
    assert await seqs(store, "a") == [0, 1]
    await store.aclose()


@contextmanager
def full_disk(folder: Path) -> Generator[None]:
    """No file may grow beyond what the data file has: what a full disk is to LMDB (EFBIG for ENOSPC), also for root."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "data.mdb").stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_c276_a_full_disk_loses_nothing_and_takes_more_when_there_is_room(tmp_path: Path) -> None:
    store = await LmdbStore.open(tmp_path, sync=False)
    epoch = await create(store, "a", 5)
    with full_disk(tmp_path):
        for _ in range(2):
            with pytest.raises(StoreFull, match="no space left"):
                await write(store, [batch("a", epoch, [big(5, 500_000)])])
            assert await seqs(store, "a") == [0, 1, 2, 3, 4]
    await write(store, [batch("a", epoch, [big(5, 500_000)])])
    await store.aclose()
    async with open_store(tmp_path, readonly=True) as again:
        assert await seqs(again, "a") == [0, 1, 2, 3, 4, 5]


async def test_c276_closing_on_a_full_disk_leaves_the_tail_to_the_next_opening(tmp_path: Path) -> None:
    store = await LmdbStore.open(tmp_path, sync=False)
    for i in range(300):
        await create(store, f"a{i:03}")
    with full_disk(tmp_path):
        await store.aclose()
    async with open_store(tmp_path, sync=False) as again:
        assert len(await again.agents(limit=1000)) == 300
        await create(again, "b")


async def test_c276_a_write_cut_short_by_a_full_disk_is_a_full_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LMDB calls that an I/O error; the free space tells the two apart."""
    error = lmdb.Error("mdb_txn_commit")
    error.__dict__["code"] = errno.EIO
    free = SimpleNamespace(f_bavail=10, f_frsize=4096)
    monkeypatch.setattr("callboard.storage.engines.lmdb_env.os.statvfs", returning(free))
    assert type(store_error(error, tmp_path)) is StoreFull
    free.f_bavail = 10_000
    assert type(store_error(error, tmp_path)) is StoreError


FAULTS = [
    (lmdb.DiskError("no space", errno.ENOSPC), StoreFull),
    (OSError(errno.ENOSPC, "No space left on device"), StoreFull),
    (OSError(errno.EIO, "Input/output error"), StoreError),
    (lmdb.Error("EIO", errno.EIO), StoreError),
    (lmdb.CorruptedError("torn page"), StoreError),
    (RuntimeError("a bug"), RuntimeError),
]


@pytest.mark.parametrize(
    ("fault", "expected"), FAULTS, ids=lambda x: type(x).__name__ if isinstance(x, Exception) else x.__name__
)
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_c276_an_error_in_the_thread_reaches_its_waiter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, expected: type[Exception], after: bool
) -> None:
    """Whether the transaction came to nothing or not, the next commit knows what is on disk."""
    store = await LmdbStore.open(tmp_path, sync=False)
    epoch = await create(store, "a", 3)
    run = Plan.run

    def failing(self: Plan, txn: Any) -> None:
        run(self, txn)
        if after:
            txn.commit()  # on disk, and yet the writer hears of an error
        raise fault

    monkeypatch.setattr(Plan, "run", failing)
    with pytest.raises(expected):
        await store.commit([[batch("a", epoch, [note(3)])]])
    monkeypatch.undo()
    last = 3 if after else 2
    assert await seqs(store, "a") == list(range(last + 1))
    await write(store, [batch("a", epoch, [note(last + 1)])])
    assert await seqs(store, "a") == list(range(last + 2))
    await store.aclose()


async def test_c276_concurrent_commits_are_made_one_after_another(tmp_path: Path) -> None:
    async with open_store(tmp_path, sync=False) as store:
        epochs = {f"a{i}": await store.own(f"a{i}") for i in range(50)}
        async with trio.open_nursery() as nursery:
            for agent, epoch in epochs.items():
                nursery.start_soon(write, store, [batch(agent, epoch, [note(0)])])
        assert len(await store.agents()) == 50
        assert store.statistics()["flushes"] == 50


async def test_a_record_that_cannot_be_stored_fails_alone(tmp_path: Path) -> None:
    async with open_store(tmp_path, sync=False) as store:
        a, b = await create(store, "a"), await create(store, "b")
        bad = Record(1, 1000, Note(kind="odd", data={"x": object()}))
        results = await store.commit([[batch("b", b, [note(1)]), batch("a", a, [bad])], [batch("b", b, [note(1)])]])
        assert isinstance(results[0], CommitFailed)
        assert "'a' cannot be stored" in str(results[0])
        assert results[1] is None
        assert (await seqs(store, "a"), await seqs(store, "b")) == ([0], [0, 1])
