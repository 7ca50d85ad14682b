"""Derived tables are written in parts: what one commit writes is bounded, and a kill between two parts loses nothing."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_lmdb_cost import rows as rows_of

from callboard.storage.conformance_kit import batch, chunks, create, created, fork, note, put, seqs, write
from callboard.storage.engines import lmdb, lmdb_plan
from callboard.storage.engines.lmdb import LmdbStore
from callboard.storage.engines.lmdb_env import Folder, Transaction
from callboard.storage.engines.lmdb_layout import pairs
from callboard.storage.engines.lmdb_overlay import Overlay
from callboard.storage.opening import open_store
from callboard.storage.records import Record
from callboard.storage.runs import ChunkRun
from callboard.storage.store import Delete, Flag, Head, Store, Summary, Unit

AGENTS = ("a", "b", "c")
BACKLOG = 70
"""Frames of each agent that wait: more than two rows of the index."""


class Life:
    """Three agents that go on, each frame with an id and now and then a flag."""

    def __init__(self, store: Store, epochs: dict[str, int]) -> None:
        self.store, self.epochs = store, epochs
        self.ends: dict[str, int] = dict.fromkeys(AGENTS, 0)

    @classmethod
    async def begin(cls, store: Store) -> Life:
        return cls(store, {agent: await create(store, agent) for agent in AGENTS})

    async def go_on(self, agents: Sequence[str] = AGENTS) -> None:
        """One commit."""
        units: list[Unit] = []
        for agent in agents:
            seq = self.ends[agent] + 1
            items: list[Record | ChunkRun] = [put(seq, f"{agent}{seq}"), chunks(seq + 1, 2)]
            summary = Summary(due=seq % 2 == 0, timer=seq if seq % 5 == 0 else None)
            units.append([batch(agent, self.epochs[agent], items, ids={f"{agent}{seq}": seq}, summary=summary)])
            self.ends[agent] = seq + 2
        await write(self.store, *units)


def folder_of(store: Store) -> Folder:
    assert isinstance(store, LmdbStore)
    folder = store._open  # pyright: ignore[reportPrivateUsage]
    assert folder is not None
    return folder


async def says(store: Store, ends: dict[str, int]) -> None:
    """The store says what was committed, wherever one begins to read."""
    heads = await store.agents()
    assert {h.agent: h.last for h in heads} == ends
    assert [h.agent for h in await store.agents(flag="attention")] == [h.agent for h in heads if h.summary.due]
    assert [h.agent for h in await store.agents(flag="timer")] == [h.agent for h in heads if h.summary.timer is not None]
    for agent, last in ends.items():
        assert await seqs(store, agent) == list(range(last + 1))
        for after in range(0, last, 7):
            assert await seqs(store, agent, after, after + 3) == list(range(after + 1, min(after + 3, last) + 1))
        found = {seq: await store.find(agent, f"{agent}{seq}") for seq in range(1, last, 3)}
        assert all(seq == where for seq, where in found.items())


def drops(patch: pytest.MonkeyPatch) -> None:
    """Parts are as small as can be."""
    patch.setattr(lmdb_plan, "CATCH_UP", 0)


async def test_the_rows_of_a_commit_are_bounded_whatever_waits(tmp_path: Path) -> None:
    store = await LmdbStore.open(tmp_path, sync=False, lazy_commits=1)
    folder, epoch = folder_of(store), await store.own("a")
    await write(store, [batch("a", epoch, [created("a")])])
    many = 5_000
    ids = {f"m{seq}": seq for seq in range(1, many)}
    await write(store, [batch("a", epoch, [put(seq, m) for m, seq in ids.items()], ids=ids)])
    most, before, commits = 0, store.statistics()["rows_written"], 0
    while folder.overlay.ids:
        await write(store, [batch("a", epoch, [note(many + commits)])])
        written = store.statistics()["rows_written"]
        most, before, commits = max(most, written - before), written, commits + 1
    assert commits == -(-many // lmdb.LAZY_ROWS)
    assert most <= lmdb.LAZY_ROWS + 4  # the frame, and a head with what goes with it
    assert await store.find("a", "m4999") == 4999
    await store.aclose()


async def test_what_waits_becomes_less_however_much_each_commit_adds(tmp_path: Path) -> None:
    """Agents that are new with every commit, each with many ids: what a commit adds is more than what it must write."""
    store = await LmdbStore.open(tmp_path, sync=False, lazy_commits=4, lazy_rows=1)
    most = 0
    for round_ in range(60):
        units: list[Unit] = []
        for i in range(20):
            agent = f"{round_} {i}"
            items = [created(agent), *(put(seq, f"{agent} {seq}") for seq in range(1, 6))]
            units.append([batch(agent, await store.own(agent), items, ids={f"{agent} {seq}": seq for seq in range(1, 6)})])
        await write(store, *units)
        most = max(most, store.statistics()["overlay_agents"])
    assert most <= 20 * (4 + 4), "as much as begins it, and as much again while it is written"
    await store.aclose()


def image(folder: Path, number: int) -> Path:
    """What a kill would leave now."""
    copy = folder.with_name(f"killed-{number}")
    copy.mkdir()
    shutil.copy(folder / "data.mdb", copy)
    return copy


def known_once(overlay: Overlay) -> bool:
    """Whether the heads know each frame once."""
    places = [list(pairs(row.unindexed())) for row in overlay.dirty.values()]
    return all(found == sorted(set(found)) for found in places)


async def test_c178_a_kill_between_two_parts_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drops(monkeypatch)
    folder = tmp_path / "whole"
    life = await Life.begin(await LmdbStore.open(folder, sync=False, lazy_commits=BACKLOG, lazy_rows=10))
    while folder_of(life.store).overlay.goal is None:
        await life.go_on()
    killed = 0
    while folder_of(life.store).overlay.goal is not None:
        killed += 1
        left = image(folder, killed)
        async with open_store(left, readonly=True) as found:
            assert known_once(folder_of(found).overlay)
            await says(found, life.ends)
        found = await LmdbStore.open(left, sync=False, lazy_commits=2, lazy_rows=10)
        another = Life(found, {agent: await found.own(agent) for agent in AGENTS})
        another.ends = dict(life.ends)
        for _ in range(killed % 5):
            await another.go_on(AGENTS[killed % 3 :])
        assert known_once(folder_of(found).overlay)
        await says(found, another.ends)
        await found.aclose()
        await life.go_on(AGENTS[killed % 3 :])
    assert killed > 15
    await life.store.aclose()


def heads(overlay: Overlay, txn: Transaction, flag: Flag | None) -> list[Head]:
    """The heads of those with this flag, as one who has this overlay finds them."""
    rows = [overlay.row(txn, name) for name in overlay.names(txn, "", None, flag)]
    return [row.head() for row in rows if row and (flag is None or flag in row.flags)]


async def test_whoever_only_reads_sees_the_same_between_two_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has an overlay of its own, and does not hear of parts."""
    drops(monkeypatch)
    life = await Life.begin(await LmdbStore.open(tmp_path, sync=False, lazy_commits=20, lazy_rows=4))
    folder = folder_of(life.store)
    often, seldom = (Overlay(folder.tables, Counter()) for _ in range(2))

    def same(overlay: Overlay) -> None:
        with folder.env.begin() as txn:
            overlay.refresh(txn)
            assert known_once(overlay)
            for flag in (None, "attention", "timer"):
                assert heads(overlay, txn, flag) == heads(folder.overlay, txn, flag)

    for number in range(120):
        await life.go_on(AGENTS[number % 3 :])
        same(often)
        if number % 9 == 0:
            same(seldom)
    assert folder.overlay.state.valid > 150, "what is begun is done, although every agent goes on"
    await life.store.aclose()


async def test_an_agent_that_is_deleted_between_two_parts_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drops(monkeypatch)
    life = await Life.begin(await LmdbStore.open(tmp_path, sync=False, lazy_commits=20, lazy_rows=4))
    overlay = folder_of(life.store).overlay
    while overlay.goal is None:
        await life.go_on()
    await life.go_on()
    shared = await fork(life.store, "f", "b", 30)
    for agent in AGENTS:
        await write(life.store, [Delete(agent, life.epochs[agent])])
    await write(life.store, [Delete("f", shared)])
    await life.store.aclose()
    assert {table: n for table, n in rows_of(tmp_path).items() if n} == {"meta": 3}


async def test_a_snapshot_that_came_without_records_is_known_after_a_kill_and_leaves_nothing_when_deleted(tmp_path: Path) -> None:
    """Its frame ends where the one before it does: only its place tells whether the head has it."""
    store = await LmdbStore.open(tmp_path / "whole", sync=False)
    for agent in AGENTS:
        epoch = await create(store, agent)
        await write(store, [batch(agent, epoch, [], follows=0, snapshot=b"it", summary=Summary(turn=7))])
    left = image(tmp_path / "whole", 1)
    await store.aclose()
    store = await LmdbStore.open(left, sync=False)
    assert known_once(folder_of(store).overlay)
    assert [head.summary.turn for head in await store.agents()] == [7, 7, 7]
    for agent in AGENTS:
        await write(store, [Delete(agent, await store.own(agent))])
    await store.aclose()
    assert {table: n for table, n in rows_of(left).items() if n} == {"meta": 3}


async def test_closing_writes_all_that_waits_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drops(monkeypatch)
    monkeypatch.setattr(lmdb, "CLOSING_ROWS", 10)
    life = await Life.begin(await LmdbStore.open(tmp_path, sync=False, lazy_commits=1000))
    for _ in range(BACKLOG):
        await life.go_on()
    counters = folder_of(life.store).counters
    before = counters["flushes"]
    await life.store.aclose()
    assert counters["flushes"] - before >= BACKLOG * 3 // 10
    async with open_store(tmp_path) as store:
        assert store.statistics()["frames_scanned"] == 0
        await says(store, life.ends)


async def test_closing_takes_a_bounded_time_and_what_it_leaves_is_read_from_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lmdb, "CLOSING_ROWS", 10)
    monkeypatch.setattr(lmdb, "CLOSING_S", -1.0)
    life = await Life.begin(await LmdbStore.open(tmp_path, sync=False, lazy_commits=1000))
    for _ in range(BACKLOG):
        await life.go_on()
    counters = folder_of(life.store).counters
    await life.store.aclose()
    assert counters["tails_left"] == 1
    async with open_store(tmp_path) as store:
        assert store.statistics()["frames_scanned"] == 3 * (BACKLOG + 1)
        await says(store, life.ends)
