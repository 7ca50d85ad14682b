"""Section 1 of the conformance cases: turns, seqs and times run on over forks, restarts and clocks that go back."""

from __future__ import annotations

from helpers import check, events, make, opened, order, records, say, scripted

from callboard.actors import System
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore

FIRST = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed}"
NEXT = "put[t](on) TS2 claim(on) SS2.1 U(on) H{resume} Q1 C* A SE TE2{completed}"


async def test_c014_a_fork_goes_on_counting_turns() -> None:
    model = scripted("one", "two", "three")
    async with opened(make(model)) as (system, ref):
        await say(ref, "hi")
        await say(ref, "more")
        fork = await ref.fork(id="b")
        await say(fork, "on")
        whole = await order(system.store, "b")
        assert whole == (
            f"{FIRST} put[t](more) TS2 claim(more) SS2.1 U(more) Q1 C* A SE TE2{{completed}} "
            "forked put[t](on) TS3 claim(on) SS3.1 U(on) H{resume} Q1 C* A SE TE3{completed}"
        )
        assert [m.text for m in model.requests[-1].messages] == ["hi", "one", "more", "two", "on"]


async def test_c014_a_fork_before_a_turn_counts_from_there() -> None:
    async with opened(make(scripted("one", "two", "three"))) as (system, ref):
        await say(ref, "hi")
        await say(ref, "more")
        fork = await ref.fork(id="b", turn=2)
        await say(fork, "on")
        assert await order(system.store, "b") == (
            f"{FIRST} put[t](more) forked put[t](on) TS2 claim(on) SS2.1 U(on) H{{resume}} Q1 C* A SE TE2{{completed}}"
        )


async def test_c015_turns_seqs_and_times_run_on_over_a_restart() -> None:
    store, clock = MemoryStore(), [1_764_500_000.0]
    agent = make(scripted("one", "two"))
    async with System.open(store, agents=[agent], now=lambda: clock[0]) as system:
        await say(await system.spawn(agent, id="a"), "hi")
    clock[0] -= 3600
    async with System.open(store, agents=[agent], now=lambda: clock[0]) as system:
        await say(await system.get("a"), "on")
    assert await order(store) == f"{FIRST} {NEXT}"
    log = await records(store)
    assert [record.seq for record in log] == list(range(len(log)))
    assert [record.time for record in log] == sorted(record.time for record in log)
    assert {record.time for record in log} == {1_764_500_000_000}
    await check(store)


async def test_c015_a_clock_that_goes_back_in_a_turn_moves_no_time_back() -> None:
    times = iter(range(2_000_000, 0, -7))
    store = MemoryStore()
    agent = make(scripted("one"))
    async with System.open(store, agents=[agent], now=lambda: float(next(times))) as system:
        await say(await system.spawn(agent, id="a"), "hi")
    log = await records(store)
    assert len({record.time for record in log}) == 1
    assert [record.seq for record in log] == list(range(len(log)))
    (end,) = await events(store, e.TurnEnd)
    assert end.latency_ms == 0
    await check(store)


async def test_first_turn_after_a_restart_resumes_its_header_by_digest_alone() -> None:
    store = MemoryStore()
    agent = make(scripted("one", "two"))
    async with System.open(store, agents=[agent]) as system:
        await say(await system.spawn(agent, id="a"), "hi")
    async with System.open(store, agents=[agent]) as system:
        await say(await system.get("a"), "on")
    first, resumed = await events(store, e.RequestHeader)
    assert (resumed.reason, resumed.header, resumed.digest) == ("resume", None, first.digest)
    await check(store)
