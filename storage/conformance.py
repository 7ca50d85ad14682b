"""The suite every engine must pass: plain async functions that take a *bench* and raise AssertionError.

    @pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda c: c.__name__)
    async def test_my_engine(check, tmp_path):
        await check(MyBench(tmp_path))

A bench opens stores over one lot of data, and knows what a crash leaves. The checks say what the runtime above relies on; an
engine that passes them can carry it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from .conformance_kit import Bench, batch, chunks, create, created, expect, fork, names, note, put, seqs, texts, write
from .conformance_logs import (
    a_deleted_agent_is_gone,
    blobs_are_stored_once,
    deletes_leave_what_forks_reach,
    forks_share_and_part,
    forks_that_cannot_be,
)
from .engines.checks import Item
from .errors import AgentNotFound, FenceLost, StaleAppend, StoreError, UsageError
from .messages import ReasoningDelta, ToolCallDelta
from .store import NO_CHUNKS, Arrival, Delete, Snapshot, Summary


async def records_come_back_in_order(bench: Bench) -> None:
    """Records and chunks interleave as they were written; seqs, times and events are equal, over several batches."""
    store = await bench.open()
    epoch = await store.own("a")
    run = chunks(2, 7)
    run.chunks[2:5] = [ReasoningDelta(1, "hm", "signed"), ToolCallDelta(2, "id", "name", "{"), ToolCallDelta(2, arguments="}")]
    late = note(12, "late", time=99_000)
    await write(store, [batch("a", epoch, [created("a"), note(1), run, note(9), chunks(10, 2, step=2), late])])
    await write(store, [batch("a", epoch, [chunks(13, 1), chunks(14, 2, turn=2)]), batch("a", epoch, [note(16)])])
    expected = [created("a"), note(1), *run.records(), note(9), *chunks(10, 2, step=2).records(), late]
    expected += [*chunks(13, 1).records(), *chunks(14, 2, turn=2).records(), note(16)]
    for _ in range(2):
        assert [record async for record in store.read("a")] == expected
        store = await bench.reopen(store)
    await store.aclose()


async def reading_takes_ranges_and_types(bench: Bench) -> None:
    """`after`, `upto` and `types` cut as they say; chunks are not touched by those who do not want them."""
    store = await bench.open()
    epoch = await store.own("a")
    for start in range(0, 40, 10):
        first = created("a") if start == 0 else put(start, f"m{start}")
        await write(store, [batch("a", epoch, [first, chunks(start + 1, 8), note(start + 9)])])
    beyond = [(-9, 3), (-(2**70), 2**70), (2**70, None)]
    for after, upto in [(-1, None), (0, 0), (3, 5), (8, 10), (14, 33), (39, None), (12, 500), (20, 10), *beyond]:
        last = 39 if upto is None else min(upto, 39)
        assert await seqs(store, "a", after, upto) == list(range(max(after, -1) + 1, last + 1)), (after, upto)
    read = store.statistics()["chunk_rows_read"]
    assert await seqs(store, "a", types={"note"}) == [9, 19, 29, 39]
    assert await seqs(store, "a", 9, 29, types={"note", "inbox/put"}) == [10, 19, 20, 29]
    assert await seqs(store, "a", types=NO_CHUNKS) == [0, 9, 10, 19, 20, 29, 30, 39]
    assert store.statistics()["chunk_rows_read"] == read
    assert len(await seqs(store, "a", types={"assistant/chunk"})) == 32
    await store.aclose()


async def reading_goes_on_while_others_write(bench: Bench) -> None:
    """A reader half-way through sees what was committed meanwhile, in pages, and can be left at any record."""
    store = await bench.open()
    epoch = await create(store, "a", 700)
    reader = store.read("a")
    seen = [(await anext(reader)).seq for _ in range(300)]
    for seq in range(700, 1500, 100):
        await write(store, [batch("a", epoch, [note(s) for s in range(seq, seq + 100)])])
    seen += [record.seq async for record in reader]
    assert seen == list(range(1500))
    left = store.read("a")
    assert (await anext(left)).seq == 0
    await left.aclose()
    assert [record.seq async for record in left] == []
    await store.aclose()


async def unknown_agents_are_named(bench: Bench) -> None:
    """What is not there: a head is None, a read says so, a blob is an error, a page is empty."""
    store = await bench.open()
    assert await store.head("nobody") is None
    assert await store.snapshot("nobody") is None
    assert await store.find("nobody", "m") is None
    assert await store.agents() == []
    await expect(AgentNotFound, seqs(store, "nobody"))
    await expect(StoreError, store.blob("00" * 32))
    for bad in ("", "x" * 481, "é" * 241, "half \ud800"):
        await expect(UsageError, store.own(bad))
    await store.aclose()


async def a_unit_is_all_or_nothing(bench: Bench) -> None:
    """C232: a stale and a fenced agent fail by name, nothing of their units is written, the others are."""
    store = await bench.open()
    good, stale, fenced, mate = [await create(store, name, 3) for name in ("good", "stale", "fenced", "mate")]
    await store.own("fenced")
    results = await store.commit(
        [
            [batch("good", good, [note(3, "one")])],
            [batch("mate", mate, [note(3, "lost")]), batch("stale", stale, [note(7)])],
            [batch("fenced", fenced, [note(3)]), batch("mate", mate, [note(3, "lost too")])],
            [batch("good", good, [note(4, "two")]), batch("mate", mate, [note(3, "kept")])],
        ]
    )
    assert names(results) == [None, (StaleAppend, "stale"), (FenceLost, "fenced"), None]
    assert await texts(store, "good") == ["good 1", "good 2", "one", "two"]
    assert await texts(store, "mate") == ["mate 1", "mate 2", "kept"]
    assert (await seqs(store, "stale"), await seqs(store, "fenced")) == ([0, 1, 2], [0, 1, 2])
    await store.aclose()


async def a_group_loses_only_its_losers(bench: Bench) -> None:
    """C275: one stale and one fenced agent in a commit of 200 → those two fail by name, 198 are written."""
    store = await bench.open()
    epochs = {f"agent {i:03}": await store.own(f"agent {i:03}") for i in range(200)}
    await write(store, *([batch(agent, epoch, [created(agent)])] for agent, epoch in epochs.items()))
    await store.own("agent 017")
    units = [[batch(a, e, [note(2 if a == "agent 120" else 1)])] for a, e in epochs.items()]
    results = await store.commit(units)
    failed = {e.agent: type(e) for e in results if e is not None}
    assert failed == {"agent 017": FenceLost, "agent 120": StaleAppend}
    page = await store.agents(limit=300)
    assert [h.last for h in page].count(1) == 198
    await store.aclose()


async def mail_to_a_fenced_receiver_fails_whole(bench: Bench) -> None:
    """C275: the sender's record goes with the receiver's."""
    store = await bench.open()
    sender, receiver = await create(store, "sender"), await create(store, "receiver")
    await store.own("receiver")
    results = await store.commit([[batch("receiver", receiver, [put(1, "m")], ids={"m": 1}), batch("sender", sender, [note(1)])]])
    assert names(results) == [(FenceLost, "receiver")]
    assert (await seqs(store, "sender"), await store.find("receiver", "m")) == ([0], None)
    await write(store, [batch("sender", sender, [note(1)])])
    await store.aclose()


async def a_second_owner_has_a_higher_epoch(bench: Bench) -> None:
    """C233: after a crash the next owner's epoch is higher, and a late append of the first is refused."""
    store = await bench.open()
    first = await create(store, "a", 2)
    assert await store.own("b") != first
    store = await bench.crash(store)
    results = await store.commit([[batch("a", first, [note(2, "late")])]])
    assert names(results) == [(FenceLost, "a")]
    second = await store.own("a")
    assert second > first
    results = await store.commit([[batch("a", first, [note(2, "late")])], [batch("a", second, [note(2, "new")])]])
    assert names(results) == [(FenceLost, "a"), None]
    head = await store.head("a")
    assert head is not None
    assert (head.last, head.epoch, head.time) == (2, second, 1002)
    await store.aclose()


async def a_crash_loses_nothing_committed(bench: Bench) -> None:
    """Whatever a commit returned for is there after a crash: records, ids, blobs, snapshots, heads, forks and deletes."""
    store = await bench.open()
    epoch = await store.own("a")
    for n in range(150):
        items: list[Item] = [created("a") if n == 0 else note(3 * n), put(3 * n + 1, f"m{n}"), chunks(3 * n + 2, 1)]
        await write(store, [batch("a", epoch, items, ids={f"m{n}": 3 * n + 1}, summary=Summary(name="a", turn=n))])
    await write(store, [batch("a", epoch, [note(450)], snapshot=b"state", blobs={"ab" * 32: b"bytes"})])
    await fork(store, "b", "a", 200)
    gone = await create(store, "gone")
    await write(store, [Delete("gone", gone)])
    store = await bench.crash(store)
    assert await seqs(store, "a") == list(range(451))
    assert await seqs(store, "a", 437, 445) == list(range(438, 446))
    assert await seqs(store, "b") == list(range(202))
    assert [await store.find("a", f"m{n}") for n in (0, 77, 149, 150)] == [1, 232, 448, None]
    assert await store.snapshot("a") == Snapshot(450, b"state")
    assert await store.blob("ab" * 32) == b"bytes"
    assert [(h.agent, h.last) for h in await store.agents()] == [("a", 450), ("b", 201)]
    await store.aclose()


async def heads_follow_every_batch(bench: Bench) -> None:
    """The head has the summary of the last batch, also of one that only brings a snapshot."""
    store = await bench.open()
    epoch = await create(store, "a", 2, summary=Summary(name="n", labels={"k": "v"}, turn=1, open=True))
    head = await store.head("a")
    assert head is not None
    assert (head.last, head.time, head.epoch, head.summary.turn) == (1, 1001, epoch, 1)
    quiet = Summary(name="n", labels={"k": "v"}, turn=1)
    await write(store, [batch("a", epoch, [], follows=1, summary=quiet, snapshot=b"s")])
    for _ in range(2):
        head = await store.head("a")
        assert head is not None
        assert (head.last, head.time, head.summary) == (1, 1001, quiet)
        assert await store.snapshot("a") == Snapshot(1, b"s")
        store = await bench.reopen(store)
    epoch = await store.own("a")
    await write(store, [batch("a", epoch, [note(2)], snapshot=b"t")])
    assert await store.snapshot("a") == Snapshot(2, b"t")
    await store.aclose()


async def the_index_pages_and_filters(bench: Bench) -> None:
    """Pages are in order of id; prefix, labels and flags filter; a flag goes when its reason goes."""
    store = await bench.open()
    summaries = {
        f"{kind}/{i:02}": Summary(name=kind, labels={"kind": kind, "odd": str(i % 2)}, open=i == 3, timer=5 if i == 4 else None)
        for kind in ("x", "y")
        for i in range(20)
    }
    epochs = {agent: await create(store, agent, summary=summary) for agent, summary in reversed(summaries.items())}
    for _ in range(2):
        found: list[str] = []
        while page := await store.agents(after=found[-1] if found else None, limit=7):
            found += [h.agent for h in page]
        assert found == sorted(summaries)
        assert [h.agent for h in await store.agents("y/", after="y/16")] == ["y/17", "y/18", "y/19"]
        assert [h.agent for h in await store.agents(labels={"kind": "x", "odd": "1"}, limit=3)] == ["x/01", "x/03", "x/05"]
        assert [h.agent for h in await store.agents(flag="attention")] == ["x/03", "y/03"]
        assert [h.agent for h in await store.agents("y", flag="timer")] == ["y/04"]
        assert [h.agent for h in await store.agents(flag="attention", after="x/03")] == ["y/03"]
        assert await store.agents(limit=0) == []
        store = await bench.reopen(store)
    epochs["x/03"] = await store.own("x/03")
    await write(store, [batch("x/03", epochs["x/03"], [note(1)], summary=Summary(name="x", due=True))])
    assert len(await store.agents(flag="attention")) == 2
    await write(store, [batch("x/03", epochs["x/03"], [note(2)], summary=Summary(name="x"))])
    for _ in range(2):
        assert [h.agent for h in await store.agents(flag="attention")] == ["y/03"]
        store = await bench.reopen(store)
    await store.aclose()


async def odd_names_are_different_agents(bench: Bench) -> None:
    """Ids that differ only in odd characters are different agents, and none is changed."""
    store = await bench.open()
    odd = ["a/b", "a%2Fb", "A/b", "a/b ", " a/b", "é", "e\u0301", "a\0b", "a\0", "a", "\0", "x" * 480, "\U0001f600", "\uffff"]
    epochs = {agent: await store.own(agent) for agent in odd}
    for agent, epoch in epochs.items():
        await write(store, [batch(agent, epoch, [created(agent), note(1, repr(agent))], ids={agent: 1})])
    for _ in range(2):
        for agent in odd:
            assert await texts(store, agent) == [repr(agent)]
            assert await store.find(agent, agent) == 1
            assert await store.find(agent, agent + " ") is None
        assert [h.agent for h in await store.agents()] == sorted(odd)
        store = await bench.reopen(store)
    await store.aclose()


async def message_ids_are_found_in_the_own_part(bench: Bench) -> None:
    """`find` knows ids of any length and kind, and a fork inherits none."""
    store = await bench.open()
    epoch = await create(store, "a")
    ids = {"m1": 1, "x" * 2000: 2, "x" * 1999 + "y": 3, "": 4}
    await write(store, [batch("a", epoch, [put(seq, m) for m, seq in ids.items()], ids=ids)])
    await fork(store, "f", "a", 4)
    for _ in range(2):
        assert {m: await store.find("a", m) for m in ids} == ids
        assert [await store.find("f", m) for m in ids] == [None] * 4
        store = await bench.reopen(store)
    await store.aclose()


async def what_no_caller_makes_is_refused(bench: Bench) -> None:
    """Gaps and empty first batches are the caller's mistakes; nothing of such a commit is written."""
    store = await bench.open()
    epoch = await create(store, "a")
    gaps: list[list[Item]] = [[note(1), note(3)], [note(1), chunks(3, 2)], [chunks(1, 0)]]
    for bad in gaps:
        await expect(UsageError, store.commit([[batch("a", epoch, [note(1)])], [batch("a", epoch, bad, follows=0)]]))
    new = await store.own("new")
    await expect(UsageError, store.commit([[batch("new", new, [], follows=-1)]]))
    assert await seqs(store, "a") == [0]
    await store.aclose()
    await expect(UsageError, store.own("a"))
    await expect(UsageError, store.commit([]))
    await expect(UsageError, store.head("a"))


async def arrivals_reach_the_owner_or_fail(bench: Bench) -> None:
    """C278: an engine with one owner has no arrivals; a unit that holds one says so."""
    store = await bench.open()
    epoch = await create(store, "a")
    results = await store.commit([[Arrival("nobody", b"x"), batch("a", epoch, [note(1)])]])
    assert names(results) == [(StaleAppend, "nobody")]
    assert await store.arrivals("a") == []
    await store.aclose()


Check = Callable[[Bench], Awaitable[None]]

CHECKS: Final[Sequence[Check]] = (
    records_come_back_in_order,
    reading_takes_ranges_and_types,
    reading_goes_on_while_others_write,
    unknown_agents_are_named,
    a_unit_is_all_or_nothing,
    a_group_loses_only_its_losers,
    mail_to_a_fenced_receiver_fails_whole,
    a_second_owner_has_a_higher_epoch,
    a_crash_loses_nothing_committed,
    heads_follow_every_batch,
    the_index_pages_and_filters,
    odd_names_are_different_agents,
    message_ids_are_found_in_the_own_part,
    forks_share_and_part,
    forks_that_cannot_be,
    a_deleted_agent_is_gone,
    deletes_leave_what_forks_reach,
    blobs_are_stored_once,
    what_no_caller_makes_is_refused,
    arrivals_reach_the_owner_or_fail,
)
"""Every check, in the order in which to make them pass."""
