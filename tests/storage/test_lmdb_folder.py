"""The LMDB folder: who may open it, what it refuses to open, and what other processes see of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import lmdb
import msgspec
import pytest
import trio

from callboard.storage.conformance_kit import batch, create, fork, note, put, seqs, texts, write
from callboard.storage.engines.lmdb import LmdbStore
from callboard.storage.engines.lmdb_env import Transaction
from callboard.storage.engines.lmdb_plan import Plan
from callboard.storage.errors import StoreError, StoreFormat, StoreInUse, UsageError
from callboard.storage.opening import open_engine, open_store
from callboard.storage.store import Delete, Store, Summary


async def a_store(folder: Path, agents: int = 1) -> None:
    """A closed store with some agents."""
    async with open_store(folder, sync=False) as store:
        for i in range(agents):
            await create(store, f"a{i}", 3)


def child(code: str, *args: object) -> str:
    """Run code in another process; its output."""
    done = subprocess.run([sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


OPEN_AND_TELL = """
import sys, trio
from callboard.storage.opening import open_store
from callboard.storage.errors import StoreInUse
async def main():
    try:
        async with open_store(sys.argv[1]):
            print("opened")
    except StoreInUse as e:
        print(e.pid, e)
trio.run(main)
"""


async def test_c279_a_second_writer_in_this_process_is_refused(tmp_path: Path) -> None:
    async with open_store(tmp_path):
        with pytest.raises(StoreInUse, match="in this process already") as caught:
            await open_engine(tmp_path)
        assert caught.value.pid == os.getpid()
        link = tmp_path.with_name("link")
        link.symlink_to(tmp_path)
        with pytest.raises(StoreInUse):
            await open_engine(link)
    async with open_store(tmp_path):
        pass


async def test_c279_a_second_writer_in_another_process_is_told_the_pid(tmp_path: Path) -> None:
    async with open_store(tmp_path):
        told = child(OPEN_AND_TELL, tmp_path)
    assert told.startswith(f"{os.getpid()} ")
    assert f"process {os.getpid()}" in told
    assert child(OPEN_AND_TELL, tmp_path) == "opened"


async def test_c279_readers_beside_a_writer_in_one_process(tmp_path: Path) -> None:
    """Read-only opens share the environment, see each commit at once, outlive the writer, and may be there before it."""
    await a_store(tmp_path)
    async with open_store(tmp_path, readonly=True) as early:
        async with open_store(tmp_path, sync=False) as store:
            async with open_store(tmp_path, readonly=True) as reader:
                epoch = await store.own("a0")
                await write(store, [batch("a0", epoch, [note(3)])])
                assert await seqs(early, "a0") == await seqs(reader, "a0") == [0, 1, 2, 3]
            with pytest.raises(UsageError, match="closed"):
                await reader.head("a0")
            await write(store, [batch("a0", epoch, [note(4)])])
        assert await seqs(early, "a0") == [0, 1, 2, 3, 4]
        async with open_store(tmp_path, sync=False) as store:
            epoch = await store.own("a0")
            await write(store, [batch("a0", epoch, [note(5)])])
            assert await seqs(early, "a0") == [0, 1, 2, 3, 4, 5]
        assert early.readonly
        with pytest.raises(UsageError, match="read-only"):
            await early.own("a0")
        with pytest.raises(UsageError, match="read-only"):
            await early.commit([])


READ_ON_REQUEST = """
import sys, trio
from callboard.storage.opening import open_store
from callboard.storage.errors import CallboardError
async def main():
    async with open_store(sys.argv[1], readonly=True) as store:
        print("ready", flush=True)
        for line in sys.stdin:
            try:
                agent, message = line.split()
                got = [r.seq async for r in store.read(agent)]
                heads = [(h.agent, h.last) for h in await store.agents()]
                attention = [h.agent for h in await store.agents(flag="attention")]
                print(got, heads, attention, await store.find(agent, message), flush=True)
            except CallboardError as e:
                print(type(e).__name__, flush=True)
trio.run(main)
"""


def child_reader(folder: Path) -> subprocess.Popen[str]:
    """A process that answers questions about the store."""
    command = [sys.executable, "-c", READ_ON_REQUEST, str(folder)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("lazy_commits", [0, 2, 64])
async def test_c279_a_reader_in_another_process_sees_each_commit(tmp_path: Path, lazy_commits: int) -> None:
    """It catches up from the journal, whether derived tables are written between two of its reads or not."""
    store = await LmdbStore.open(tmp_path, sync=False, lazy_commits=lazy_commits)
    epoch = await create(store, "a")
    reader = child_reader(tmp_path)
    assert reader.stdin is not None
    assert reader.stdout is not None

    def ask(agent: str, message: str) -> str:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write(f"{agent} {message}\n")
        reader.stdin.flush()
        return reader.stdout.readline().strip()

    with reader:
        assert reader.stdout.readline() == "ready\n"
        for seq in range(1, 6):
            summary = Summary(name="tester", due=seq % 2 == 1)
            await write(store, [batch("a", epoch, [put(seq, f"m{seq}")], ids={f"m{seq}": seq}, summary=summary)])
            flagged = ["a"] if seq % 2 else []
            assert ask("a", f"m{seq}") == f"{list(range(seq + 1))} [('a', {seq})] {flagged} {seq}"
        await fork(store, "f", "a", 3)
        assert ask("f", "m1") == "[0, 1, 2, 3, 4] [('a', 5), ('f', 4)] ['a'] None"
        await write(store, [Delete("a", epoch)])
        assert ask("a", "m1") == "AgentNotFound"
        assert ask("f", "m1") == "[0, 1, 2, 3, 4] [('f', 4)] [] None"
        await create(store, "a", 2)
        assert ask("a", "m1") == "[0, 1] [('a', 1), ('f', 4)] [] None"
        reader.stdin.close()
    await store.aclose()


# -- what is refused


async def test_a_missing_store_is_not_created_by_a_reader(tmp_path: Path) -> None:
    for where in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreError, match="there is no store in"):
            await open_engine(where, readonly=True)
    assert os.listdir(tmp_path) == []


async def test_a_missing_folder_is_created_by_a_writer(tmp_path: Path) -> None:
    async with open_store(tmp_path / "deep" / "er", sync=False) as store:
        assert store.name == str(tmp_path / "deep" / "er")
        assert isinstance(store, Store)


def refuse(*_: object) -> bool:
    return False


async def test_folders_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreError, match="cannot be created"):
        await open_engine("/proc/callboard/store")
    monkeypatch.setattr("callboard.storage.engines.lmdb_env.os.access", refuse)
    with pytest.raises(StoreError, match="not writable"):
        await open_engine(tmp_path)


async def test_addresses_that_are_no_folders(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="postgresql databases are not supported yet"):
        await open_engine("postgresql://localhost/callboard")
    with pytest.raises(UsageError, match="starts empty"):
        await open_engine(":memory:", readonly=True)
    (tmp_path / "file").write_text("hello")
    with pytest.raises(StoreFormat, match="is a file"):
        await open_engine(tmp_path / "file")


async def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"something else" * 1000)
    for readonly in (False, True):
        with pytest.raises(StoreFormat, match="is not a Callboard store"):
            await open_engine(tmp_path, readonly=readonly)
    assert (tmp_path / "data.mdb").read_bytes() == b"something else" * 1000


async def test_the_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), max_dbs=2) as env:
        theirs = env.open_db(b"meta")
        with env.begin(write=True) as txn:
            txn.put(b"format", b"theirs", db=theirs)
    with pytest.raises(StoreFormat, match="is not a Callboard store"):
        await open_engine(tmp_path)
    shutil.rmtree(tmp_path)
    with lmdb.open(str(tmp_path)) as env, env.begin(write=True) as txn:
        txn.put(b"key", b"value")
    with pytest.raises(StoreFormat, match="is not a Callboard store"):
        await open_engine(tmp_path)


@pytest.mark.parametrize("field", ["callboard", "records"])
async def test_a_format_from_the_future_is_refused_by_name(tmp_path: Path, field: str) -> None:
    await a_store(tmp_path)
    with lmdb.open(str(tmp_path), max_dbs=20) as env:
        meta = env.open_db(b"meta")
        with env.begin(write=True) as txn:
            txn.put(b"format", msgspec.msgpack.encode({"callboard": 1, "records": 1, field: 2}), db=meta)
    for readonly in (False, True):
        with pytest.raises(StoreFormat, match="newer Callboard"):
            await open_engine(tmp_path, readonly=readonly)


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
async def test_a_torn_file_is_refused_and_left_as_it_is(tmp_path: Path, part: float) -> None:
    """Touching a page that the file lost would kill the process (SIGBUS)."""
    await a_store(tmp_path, agents=200)
    file = tmp_path / "data.mdb"
    size = int(file.stat().st_size * part) // 4096 * 4096
    os.truncate(file, size)
    for readonly in (False, True):
        with pytest.raises(StoreFormat, match="is torn"):
            await open_engine(tmp_path, readonly=readonly)
    assert file.stat().st_size == size


async def test_a_file_without_its_free_last_pages_is_sound(tmp_path: Path) -> None:
    """LMDB need not write a page that a transaction took and freed again: short is not always torn."""
    await a_store(tmp_path)
    file = tmp_path / "data.mdb"
    with lmdb.open(str(tmp_path), max_dbs=20) as env:
        spare = env.open_db(b"spare")
        with env.begin(write=True) as txn:
            txn.put(b"big", b"x" * 200_000, db=spare)
        with env.begin(write=True) as txn:
            txn.drop(spare, delete=True)
        whole = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    os.truncate(file, whole - 100_000)
    async with open_store(tmp_path, sync=False) as store:
        assert await seqs(store, "a0") == [0, 1, 2]


async def test_a_lost_table_is_damage(tmp_path: Path) -> None:
    await a_store(tmp_path)
    with lmdb.open(str(tmp_path), max_dbs=20) as env:
        journal = env.open_db(b"journal")
        with env.begin(write=True) as txn:
            txn.drop(journal, delete=True)
    with pytest.raises(StoreFormat, match="is damaged"):
        await open_engine(tmp_path)
    with pytest.raises(StoreFormat, match="is damaged"):
        await open_engine(tmp_path)  # the first try has left neither a lock nor an environment


async def test_a_lost_frame_is_damage(tmp_path: Path) -> None:
    async with open_store(tmp_path, sync=False) as store:
        epoch = await create(store, "a")
        await write(store, [batch("a", epoch, [note(1)])])
    with lmdb.open(str(tmp_path), max_dbs=20) as env:
        journal = env.open_db(b"journal")
        with env.begin(write=True) as txn:
            txn.delete((1).to_bytes(8, "big"), db=journal)
    async with open_store(tmp_path, readonly=True) as store:
        with pytest.raises(StoreFormat, match="frame 1 of 'a' is missing"):
            await seqs(store, "a")


# -- opening and closing


async def test_c143_opening_and_closing_adds_no_record(tmp_path: Path) -> None:
    await a_store(tmp_path)
    for _ in range(10):
        async with open_store(tmp_path, sync=False) as store:
            assert await seqs(store, "a0") == [0, 1, 2]


async def test_c233_epochs_rise_over_sessions(tmp_path: Path) -> None:
    epochs: list[int] = []
    for _ in range(3):
        async with open_store(tmp_path, sync=False) as store:
            epochs += [await store.own("a"), await store.own("b")]
    assert epochs == sorted(set(epochs))


async def test_closing_waits_for_the_commit_in_flight(tmp_path: Path) -> None:
    store = await LmdbStore.open(tmp_path, sync=False)
    epoch = await store.own("a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, store, [batch("a", epoch, [note(0)])])
        await trio.lowlevel.checkpoint()
        nursery.start_soon(store.aclose)
    await store.aclose()
    async with open_store(tmp_path, readonly=True) as reader:
        assert await texts(reader, "a") == [""]


async def test_a_cancelled_commit_is_still_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction cannot be taken back, so the commit ends first, and memory knows what the disk has."""
    gate, run = threading.Event(), Plan.run

    def gated(self: Plan, txn: Transaction) -> None:
        gate.wait(120)
        run(self, txn)

    monkeypatch.setattr(Plan, "run", gated)
    async with open_store(tmp_path, sync=False) as store:
        epoch = await store.own("a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, store, [batch("a", epoch, [note(0)])])
            await trio.testing.wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
            gate.set()
        await write(store, [batch("a", epoch, [note(1)])])
        assert await seqs(store, "a") == [0, 1]


HOLD_A_TRANSACTION = """
import lmdb, os, signal, sys
txn = lmdb.open(sys.argv[1], readonly=True, max_dbs=20).begin()
os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_a_killed_reader_leaves_no_slot(tmp_path: Path) -> None:
    """Its snapshot would keep every page freed since from being used again."""
    await a_store(tmp_path)
    async with open_store(tmp_path, readonly=True) as store:
        with pytest.raises(AssertionError):
            child(HOLD_A_TRANSACTION, tmp_path)
        assert isinstance(store, LmdbStore)
        folder = store._open  # pyright: ignore[reportPrivateUsage]
        assert folder is not None
        assert len(folder.env.readers().splitlines()) == 2
        async with open_store(tmp_path, sync=False):
            assert folder.env.reader_check() == 0


async def test_the_folder_has_no_handles_left(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    await a_store(tmp_path)
    assert len(os.listdir("/proc/self/fd")) == before
