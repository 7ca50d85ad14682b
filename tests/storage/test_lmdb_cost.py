"""What LMDB costs, counted: flushes, frames and rows touched, bytes left behind."""

from __future__ import annotations

from pathlib import Path

import lmdb
import trio
from benches import LmdbBench

from callboard.storage.conformance_kit import batch, chunks, create, created, fork, note, put, seqs, write
from callboard.storage.engines.lmdb import LmdbStore
from callboard.storage.engines.lmdb_layout import TABLES
from callboard.storage.engines.lmdb_parts import next_part
from callboard.storage.opening import open_store
from callboard.storage.records import Record
from callboard.storage.runs import ChunkRun
from callboard.storage.store import NO_CHUNKS, Delete, Summary


def rows(folder: Path) -> dict[str, int]:
    """Rows in each table of a closed store."""
    with lmdb.open(str(folder), max_dbs=20, readonly=True) as env, env.begin() as txn:
        return {t: txn.stat(env.open_db(t.encode(), txn=txn, create=False))["entries"] for t in TABLES}


def keys(folder: Path, table: str) -> list[int]:
    """The numbers that are keys of a table of a closed store."""
    with lmdb.open(str(folder), max_dbs=20, readonly=True) as env, env.begin() as txn:
        found = txn.cursor(db=env.open_db(table.encode(), txn=txn, create=False)).iternext(values=False)
        return [int.from_bytes(key, "big") for key in found]


def raw_bytes(folder: Path) -> bytes:
    """Everything that the tables of a closed store hold."""
    found = b""
    with lmdb.open(str(folder), max_dbs=20, readonly=True) as env, env.begin() as txn:
        for table in TABLES:
            for key, value in txn.cursor(db=env.open_db(table.encode(), txn=txn, create=False)):
                found += key + value
    return found


async def test_c236_opening_a_log_reads_no_chunks(tmp_path: Path) -> None:
    async with open_store(tmp_path, sync=False) as store:
        epoch = await store.own("a")
        await write(store, [batch("a", epoch, [created("a")])])
        for start in range(1, 20_001, 200):
            await write(store, [batch("a", epoch, [chunks(start, 199), note(start + 199)])])
    async with open_store(tmp_path, sync=False) as store:
        head = await store.head("a")
        assert head is not None
        assert head.last == 20_000
        assert store.statistics()["frames_read"] == 0
        assert len(await seqs(store, "a", types=NO_CHUNKS)) == 101
        assert store.statistics()["chunk_rows_read"] == 0


async def test_c236_reading_the_end_of_a_long_log_reads_only_the_end(tmp_path: Path) -> None:
    async with open_store(tmp_path, sync=False) as store:
        epoch = await create(store, "a")
        for seq in range(1, 2000):
            await write(store, [batch("a", epoch, [note(seq)])])
        for after in (1990, 1200):
            before = store.statistics()["frames_read"]
            assert await seqs(store, "a", after, after + 5) == list(range(after + 1, after + 6))
            assert store.statistics()["frames_read"] - before <= 7


async def test_c279_start_up_reads_the_index_only(tmp_path: Path) -> None:
    async with open_store(tmp_path, sync=False) as store:
        for start in range(0, 10_000, 500):
            agents = [f"agent {i:05}" for i in range(start, start + 500)]
            units = [[batch(a, await store.own(a), [created(a)], summary=Summary(due=a.endswith("00")))] for a in agents]
            await write(store, *units)
    async with open_store(tmp_path, sync=False) as store:
        assert len(await store.agents(flag="attention", limit=1000)) == 100
        counted = store.statistics()
        assert (counted["frames_scanned"], counted["frames_read"], counted["heads_read"]) == (0, 0, 100)


async def test_a_reader_scans_a_bounded_tail(tmp_path: Path) -> None:
    """Derived tables are written every so often, whatever the size of the commits."""
    async with open_store(tmp_path, sync=False) as store:
        most = 0
        epochs = [await store.own(f"a{i}") for i in range(100)]
        for seq in range(200):
            await write(store, *([batch(f"a{i}", e, [note(seq)])] for i, e in enumerate(epochs)))
            most = max(most, store.statistics()["overlay_frames"])
        assert 1000 < most <= 4096 + 100


async def test_heads_that_are_written_are_not_written_again(tmp_path: Path) -> None:
    """Derived tables get what changed: an agent that was idle since costs nothing."""
    store = await LmdbStore.open(tmp_path, sync=False, lazy_commits=2)
    for i in range(50):
        await create(store, f"idle {i}", summary=Summary(open=True))
    busy = await create(store, "busy")
    for seq in range(1, 10):
        await write(store, [batch("busy", busy, [note(seq)])])
        assert store.statistics()["overlay_agents"] <= 3
    assert len(await store.agents(flag="attention")) == 50
    await store.aclose()


async def test_one_commit_is_one_flush_however_many_units(tmp_path: Path) -> None:
    async with open_store(tmp_path, sync=False) as store:
        epochs = {f"a{i}": await store.own(f"a{i}") for i in range(200)}
        await write(store, *([batch(a, e, [note(0)])] for a, e in epochs.items()))
        await store.commit([])
        await store.commit([[batch("a1", 1, [note(1)])]])
        assert store.statistics()["flushes"] == 1
        assert store.statistics()["frames_written"] == 200


async def test_c238_a_delete_leaves_no_row_in_any_table(tmp_path: Path) -> None:
    async with open_store(tmp_path, sync=False) as store:
        empty = await create(store, "other")
        await write(store, [Delete("other", empty)])
    bare = rows(tmp_path)
    async with open_store(tmp_path, sync=False) as store:
        epoch = await store.own("a")
        await write(store, [batch("a", epoch, [created("a")])])
        for seq in range(1, 300, 3):
            items: list[Record | ChunkRun] = [put(seq, f"m{seq}"), chunks(seq + 1, 2)]
            summary = Summary(open=True, timer=5)
            blobs = {f"{seq % 7:064}": b"blob"}
            await write(store, [batch("a", epoch, items, ids={f"m{seq}": seq}, snapshot=b"s", blobs=blobs, summary=summary)])
        f = await fork(store, "f", "a", 100)
        await write(store, [Delete("a", epoch)])
        await write(store, [Delete("f", f)])
    assert rows(tmp_path) == bare
    assert {t: n for t, n in bare.items() if n} == {"meta": 3}


async def test_c238_a_delete_leaves_no_word_that_no_fork_reaches(tmp_path: Path) -> None:
    """The last frame that a fork shares may hold more than the fork reaches."""
    async with open_store(tmp_path, sync=False) as store:
        epoch = await store.own("a")
        secret = chunks(5, 4)
        shared: list[Record | ChunkRun] = [created("a"), note(1, "shared"), chunks(2, 3)]
        items = [*shared, secret, note(9, "secret"), put(10, "secret-id")]
        await write(store, [batch("a", epoch, items, ids={"secret-id": 10}, blobs={"ee" * 32: b"kept"})])
        await write(store, [batch("a", epoch, [note(11, "secret")], blobs={"ff" * 32: b"secret"})])
        await fork(store, "f", "a", 6)
        whole = [r async for r in store.read("f")]
        await write(store, [Delete("a", epoch)])
        assert [r async for r in store.read("f")] == whole
    left = raw_bytes(tmp_path)
    assert b"shared" in left
    assert b"piece 6" in left
    assert b"secret" not in left
    assert b"piece 7" not in left


async def test_a_page_read_while_a_commit_settles_shows_no_frame_twice(tmp_path: Path) -> None:
    """Between the transaction and its effects in memory, index rows and memory know the same positions."""
    store = await LmdbStore.open(tmp_path, sync=False, lazy_commits=1000)
    epoch = await create(store, "a")
    for seq in range(1, 100):
        await write(store, [batch("a", epoch, [note(seq)])])
    folder = store._open  # pyright: ignore[reportPrivateUsage]
    assert folder is not None
    assert folder.overlay.aim(0, 0)
    rows = next_part(folder.overlay, 1000).rows
    with folder.env.begin(write=True) as txn:
        txn.cursor(db=folder.tables["index"]).putmulti(rows["index"])
        txn.cursor(db=folder.tables["heads"]).putmulti(rows["heads"])
    assert await seqs(store, "a") == list(range(100))
    assert [h.last for h in await store.agents()] == [99]
    await store.aclose()


async def test_a_flag_that_is_over_leaves_its_table(tmp_path: Path) -> None:
    store = await LmdbStore.open(tmp_path, sync=False, lazy_commits=1)
    epoch = await create(store, "a", summary=Summary(open=True, timer=3))
    for seq in range(1, 6):
        await write(store, [batch("a", epoch, [note(seq)], summary=Summary(open=True) if seq < 3 else Summary())])
    await store.aclose()
    assert rows(tmp_path)["flags"] == 0


async def test_positions_and_log_numbers_are_not_used_again(tmp_path: Path) -> None:
    """A reader that has seen the newest frame, since deleted, would take another one at its place for it."""
    bench = LmdbBench(tmp_path / "store")
    store = await bench.open()
    await create(store, "a")
    epoch = await create(store, "b")
    await write(store, [Delete("b", epoch)])
    store = await bench.crash(store)
    await create(store, "c")
    await store.aclose()
    assert keys(bench.folder, "journal") == [1, 3]
    assert keys(bench.folder, "logs") == [1, 3]


async def test_a_filter_that_finds_nothing_lets_others_run(tmp_path: Path) -> None:
    async with open_store(tmp_path, sync=False) as store:
        epoch = await create(store, "a")
        for seq in range(1, 2000):
            await write(store, [batch("a", epoch, [note(seq)])])
        passes = 0

        async def count() -> None:
            nonlocal passes
            while True:
                await trio.lowlevel.checkpoint()
                passes += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            assert await seqs(store, "a", types={"turn/start"}) == []
            nursery.cancel_scope.cancel()
        assert passes > 5
