"""A cancel and the inbox: what is dropped, what is parked, what comes while a turn converges, and cancels at every instant."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, make, opened, order, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors.answers import Boundary
from callboard.actors.seams import Plugin, SeamContext
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import CallboardError, InputDropped
from callboard.storage.testing import FaultyStore

FIRST = "put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 "
SECOND = "claim({0}) SS2.1 U({0}) Q1 C* A SE TE2{{completed}}"


class Errors(Plugin):
    """Counts failures."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_error(self, ctx: SeamContext, failure: Any, /) -> None:
        self.seen.append(failure.code)


async def test_c047_an_idle_cancel_writes_only_what_it_drops() -> None:
    store = MemoryStore()
    async with opened(make(scripted("hello")), store) as (_, ref):
        await ref.cancel()
        await ref.cancel(keep_inbox=True)
        assert await order(store) == ""
        await ref.inject("note")
        await ref.cancel(keep_inbox=True)
        await ref.cancel()
        await ref.followup("go")
        await ref.wait_idle()
    assert await order(store) == (
        "put[s](note) drop(note){cancelled} put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 C* A SE TE1{completed}"
    )


async def test_c047_an_idle_cancel_drops_what_is_parked() -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.hang())), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.followup("two")
        await ref.cancel(keep_inbox=True)
        await ref.wait_idle()
        await ref.cancel(keep_inbox=True)
        await ref.cancel()
    assert await order(store) == f"{FIRST}put[t](two) TC1 SE TE1{{aborted user}} drop(two){{cancelled}}"


async def test_c048_a_cancel_drops_what_is_queued_in_its_own_record() -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.hang(), "three")), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        two = await ref.followup("two")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_raises_dropped, ref, two.message_id)
            await wait_all_tasks_blocked()
            await ref.cancel()
        await ref.wait_idle()
        await ref.followup("three")
        await ref.wait_idle()
    assert await order(store) == (
        f"{FIRST}put[t](two) TC1(two) SE TE1{{aborted user}} put[t](three) TS2 {SECOND.format('three')}"
    )


async def _raises_dropped(ref: Any, message_id: str) -> None:
    with pytest.raises(InputDropped):
        await ref.outcome(message_id)


async def test_c049_keep_inbox_parks_until_the_next_wake_and_runs_in_order() -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.hang(), "B", "C")), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.followup("B")
        await ref.cancel(keep_inbox=True)
        await ref.wait_idle()
        assert [(item.message.text, item.parked) for item in await ref.pending()] == [("B", True)]
        await ref.followup("C")
        await ref.wait_idle()
    assert await order(store) == (
        f"{FIRST}put[t](B) TC1 SE TE1{{aborted user}} put[t](C) TS2 {SECOND.format('B')} "
        "TS3 claim(C) SS3.1 U(C) Q1 C* A SE TE3{completed}"
    )


async def test_c056_a_cancel_and_then_dispose_is_the_users() -> None:
    store = FaultyStore(MemoryStore())
    async with opened(make(scripted(Reply.hang())), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        store.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.cancel)
            await wait_all_tasks_blocked()
            nursery.start_soon(ref.dispose)
            await wait_all_tasks_blocked()
            store.release()
    assert await order(store) == f"{FIRST}TC1 SE TE1{{aborted user}}"


async def test_c056_disposal_keeps_the_inbox_and_is_no_error() -> None:
    store, errors = MemoryStore(), Errors()
    async with opened(make(scripted(Reply.hang(), "B", "C"), plugins=[errors]), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.followup("B")
        await ref.dispose()
        assert ref.status == "idle"
        assert [(item.message.text, item.parked) for item in await ref.pending()] == [("B", True)]
        disposed = f"{FIRST}put[t](B) TC1 SE TE1{{aborted disposed}}"
        assert await order(store) == disposed
    assert errors.seen == []
    assert await order(store) == disposed


async def test_c057_a_send_after_disposal_began_is_a_turn_of_its_own() -> None:
    store = FaultyStore(MemoryStore())
    async with opened(make(scripted(Reply.hang(), "two")), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        store.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.dispose)
            await wait_all_tasks_blocked()
            nursery.start_soon(ref.followup, "two")
            await wait_all_tasks_blocked()
            store.release()
        await ref.wait_idle()
    assert await order(store) in (
        f"{FIRST}TC1 SE TE1{{aborted disposed}} put[t](two) TS2 {SECOND.format('two')}",
        f"{FIRST}TC1 put[t](two) SE TE1{{aborted disposed}} TS2 {SECOND.format('two')}",
    )


async def test_c058_cancel_returns_when_its_record_is_on_disk_before_the_turn_has_ended() -> None:
    store, stop = MemoryStore(), trio.Event()

    class Slow(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Any, /) -> Any:
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await stop.wait()

    async with opened(make(scripted(), plugins=[Slow()]), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.wait_idle)
            await wait_all_tasks_blocked()
            await ref.cancel()
            assert await order(store) == "put[t](one) TS1 TC1(one)"
            await ref.cancel()
            assert await order(store) == "put[t](one) TS1 TC1(one)"
            stop.set()
        assert ref.status == "idle"
    assert await order(store) == "put[t](one) TS1 TC1(one) TE1{aborted user}"


async def test_c058_wait_idle_over_a_failing_turn_returns() -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.fail("X"))), store) as (_, ref):
        await ref.followup("one")
        await ref.wait_idle()
    assert await order(store) == f"{FIRST}F1{{raise}} SE TE1{{error}}"


async def test_c059_steering_that_is_pending_at_a_cancel_is_dropped_with_it() -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.hang())), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.steer("left")
        await ref.cancel()
        await ref.wait_idle()
    assert await order(store) == f"{FIRST}put[s](left) TC1(left) SE TE1{{aborted user}}"


async def test_c060_a_steer_while_the_turn_converges_opens_its_own() -> None:
    store = FaultyStore(MemoryStore())
    async with opened(make(scripted(Reply.hang(), "two")), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        store.hold()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.cancel)
            await wait_all_tasks_blocked()
            nursery.start_soon(ref.steer, "two")
            await wait_all_tasks_blocked()
            store.release()
        await ref.wait_idle()
    turns = f"SE TE1{{aborted user}} TS2 {SECOND.format('two')}"
    assert await order(store) in (
        f"{FIRST}TC1 put[s](two) {turns}",
        f"{FIRST}TC1 SE TE1{{aborted user}} put[s](two) TS2 {SECOND.format('two')}",
    )


async def test_c061_a_second_cancel_drops_what_the_first_left_and_the_first_cause_stands() -> None:
    store, stop = MemoryStore(), trio.Event()

    class Slow(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Any, /) -> Any:
            if boundary.turn == 1:
                with trio.CancelScope(shield=True):
                    await stop.wait()
            return await next(boundary)

    async with opened(make(scripted("three"), plugins=[Slow()]), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.cancel("hook", text="enough")
        await ref.followup("two")
        await ref.cancel()
        await ref.cancel()
        stop.set()
        await ref.wait_idle()
        await ref.followup("three")
        await ref.wait_idle()
    assert await order(store) == (
        "put[t](one) TS1 TC1(one) put[t](two) TC1(two) TE1{aborted hook} put[t](three) TS2 "
        "claim(three) SS2.1 U(three) H{initial} X Q1 C* A SE TE2{completed}"
    )


async def test_c063_a_hooks_cause_and_text_are_in_both_records() -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.hang())), store) as (_, ref):
        receipt = await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.cancel("hook", text="enough")
        outcome = await ref.outcome(receipt.message_id)
        causes = [getattr(r.event, "cause", None) async for r in ref.read(types={"turn/cancel"})]
    reason: Any = outcome.reason
    assert reason.cause == causes[0]
    assert (reason.cause.kind, reason.cause.text) == ("hook", "enough")


async def test_c281_a_cancel_before_the_turn_starts_opens_none() -> None:
    store = MemoryStore()
    async with opened(make(scripted()), store) as (_, ref):
        await _send_then_cancel(ref, keep_inbox=False)
        await ref.wait_idle()
    assert await order(store) == "put[t](one) drop(one){cancelled}"


async def _send_then_cancel(ref: Any, *, keep_inbox: bool) -> None:
    # Both tasks run in one pass of the scheduler, before the driver's first: whoever is second finds the other's work.
    steps: list[Any] = [lambda: ref.followup("one"), lambda: ref.cancel(keep_inbox=keep_inbox)]

    async def step() -> None:
        await steps.pop(0)()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(step)
        nursery.start_soon(step)


async def test_c281_with_keep_inbox_it_is_parked_also_after_a_restart() -> None:
    store = MemoryStore()
    async with opened(make(scripted()), store) as (_, ref):
        await _send_then_cancel(ref, keep_inbox=True)
        await ref.wait_idle()
        assert await order(store) == "put[t](one) TC"
    async with opened(make(scripted("one", "two")), store) as (_, ref):
        await ref.wait_idle()
        assert [(item.message.text, item.parked) for item in await ref.pending()] == [("one", True)]
        await ref.followup("two")
        await ref.wait_idle()
    assert await order(store) == (
        "put[t](one) TC put[t](two) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 C* A SE TE1{completed} "
        f"TS2 {SECOND.format('two')}"
    )


@pytest.mark.parametrize("keep", [False, True])
async def test_c257_a_cancel_that_finds_the_end_appended_ends_the_activity(keep: bool) -> None:
    store = FaultyStore(MemoryStore())
    go = trio.Event()
    async with opened(make(scripted(Reply.wait(go, Reply.text("one")), "B", "C")), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.followup("B")
        store.hold()
        go.set()
        await wait_all_tasks_blocked()  # the end is appended and waits for the disk
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: ref.cancel(keep_inbox=keep))
            await wait_all_tasks_blocked()
            store.release()
        await ref.wait_idle()
        ids = "" if keep else "(B)"
        assert await order(store) == f"{FIRST}put[t](B) C* A SE TE1{{completed}} TC{ids}"
        assert [(item.message.text, item.parked) for item in await ref.pending()] == ([("B", True)] if keep else [])


async def _cancelled_after(passes: int, *, keep: bool) -> tuple[str, str]:
    """A turn with a queued prompt, cancelled after so many passes of the scheduler; its log, and that after a restart."""
    store = MemoryStore()
    agent = make(ScriptedModel(lambda request: Reply.text("hello"), paced=True))
    async with opened(agent, store) as (_, ref):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.followup, "one")
            nursery.start_soon(ref.followup, "two")
            for _ in range(passes):
                await trio.lowlevel.checkpoint()
            await ref.cancel(keep_inbox=keep)
        await ref.wait_idle()
    whole = await order(store)
    async with opened(agent, store) as (_, ref):
        await ref.wait_idle()
        for item in await ref.pending():
            with pytest.raises(CallboardError):
                await ref.outcome(item.id)
    return whole, await order(store)


@pytest.mark.parametrize("keep", [False, True])
async def test_c068_a_cancel_at_every_instant_leaves_a_whole_log(keep: bool) -> None:
    seen: set[str] = set()
    for passes in range(60):
        whole, again = await _cancelled_after(passes, keep=keep)
        assert whole == again
        words = whole.split()
        for turn in ("1", "2"):
            assert sum(w.startswith(f"TE{turn}") for w in words) == sum(w == f"TS{turn}" for w in words)
        ends = " ".join(w for w in whole.replace("aborted user", "aborted").split() if w[:2] in ("TE", "TC") or w[:4] == "drop")
        assert ends.count("one") + ends.count("two") <= 2
        seen.add(ends)
    assert any("TE1{aborted}" in ends for ends in seen) and any("TE1{completed}" in ends for ends in seen)


async def test_c060_the_same_after_a_crash_between_the_cancel_and_the_end() -> None:
    store, stop = MemoryStore(), trio.Event()

    class Slow(Plugin):
        async def turn_stopping(self, ctx: SeamContext, stopping: Any, /) -> None:
            if stopping.turn == 1:
                with trio.CancelScope(shield=True):
                    await stop.wait()

    async with opened(make(scripted("one", "two"), plugins=[Slow()]), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.steer("two")
        image = store.copy()
        stop.set()
    async with System.open(image, agents=[make(scripted("two"))]) as system:
        await (await system.get("a")).wait_idle()
    await check(image)
    assert await order(image) == (
        f"{FIRST}C* A SE TC1 put[s](two) TE1{{aborted user}} TS2 claim(two) SS2.1 U(two) H{{resume}} Q1 C* A SE TE2{{completed}}"
    )
