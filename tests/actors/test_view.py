"""Section 9 of the conformance cases: rewrites of the model's view, and logs that are opened again."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, history, make, opened, order, records, say, scripted

from callboard.actors import Answer, Plugin, Replace, Resend, System, tool
from callboard.actors.answers import Command, Failed, Position
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import UnknownRecord
from callboard.storage.messages import Message, TextBlock, UserSource
from callboard.storage.records import Record, UnknownEvent, from_json, to_json
from callboard.storage.store import Batch

FIRST = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed}"


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


def summary(text: str) -> Message:
    """What stands for what was."""
    return Message(f"summary-{text}", "user", (TextBlock(text),), UserSource())


class Compacts(Plugin):
    """Rewrites the view by turn; the ranges are given as places on the surface."""

    def __init__(self, plan: dict[int, tuple[int, int, str]]) -> None:
        self.plan = plan

    async def compact(self, ctx: SeamContext, position: Position, next: Next[Position, Replace | None]) -> Replace | None:
        if ctx.turn not in self.plan:
            return await next(position)
        start, end, text = self.plan[ctx.turn]
        seqs = [seq for seq, _ in position.entries]
        return Replace(summary(text), start=seqs[start], end=seqs[end], cause="test")


async def test_c137_a_summary_stands_for_what_it_replaces() -> None:
    script = scripted("one", "two")
    async with opened(make(script, plugins=[Compacts({2: (0, 1, "what was")})])) as (system, ref):
        await say(ref, "hi")
        await say(ref, "on")
        seqs = [r.seq for r in await records(system.store) if isinstance(r.event, e.UserMessage | e.AssistantMessage)]
        assert await order(system.store) == (
            f"{FIRST} put[t](on) TS2 cut({seqs[0]}..{seqs[1]}) claim(on) SS2.1 U(on) Q1 C* A SE TE2{{completed}}"
        )
        assert [m.text for m in script.requests[1].messages] == ["what was", "on"]
        kept = [r.event.message.text for r in await records(system.store) if isinstance(r.event, e.UserMessage)]
        assert kept == ["hi", "on"]


async def test_c139_a_replace_over_a_replace_is_one_message_for_both() -> None:
    script = scripted("one", "two", "three")
    plan = {2: (0, 1, "what was"), 3: (0, 2, "all of it")}
    async with opened(make(script, plugins=[Compacts(plan)])) as (system, ref):
        for text in ("hi", "on", "more"):
            await say(ref, text)
        assert [m.text for m in script.requests[2].messages] == ["all of it", "more"]
        assert await history(ref) == ["user all of it", "user more", "assistant three"]
        cuts = await events(system.store, e.SurfaceReplace)
        log = await records(system.store)
        assert isinstance(log[cuts[1].start].event, e.SurfaceReplace)


BAD = {"half a pair": (0, 1), "reversed": (3, 0)}


@pytest.mark.parametrize("bad", list(BAD))
async def test_c138_a_range_that_cannot_be_replaced_is_refused(bad: str) -> None:
    start, end = BAD[bad]
    script = scripted(Reply.tools(("c1", "echo", {})), "done", "two")
    agent = make(script, tools=[echo], plugins=[Compacts({2: (start, end, "bad")})])
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        before = len(await records(system.store)) - 1
        seen = await history(ref)
        await say(ref, "on")
        assert await order(system.store, after=before) == (
            "put[t](on) TS2 note(compact-failed) claim(on) SS2.1 U(on) Q1 C* A SE TE2{completed}"
        )
        assert await history(ref) == [*seen, "user on", "assistant two"]


class Overflow(Plugin):
    """Answers a failure with a rewrite that cuts a pair in two."""

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
        assert failed.request is not None
        log = [record async for record in ctx.agent.read()]
        calls = next_seq(log, e.AssistantMessage)
        return Resend(replacement=Replace(summary("bad"), start=0, end=calls))


def next_seq(log: list[Record], type: type[e.Event]) -> int:
    """The seq of the first record of this type."""
    return next(record.seq for record in log if isinstance(record.event, type))


async def test_c138_a_bad_rewrite_at_a_failure_ends_the_turn_and_closes_the_request() -> None:
    script = scripted(Reply.tools(("c1", "echo", {})), Reply.fail("CONTEXT_OVERFLOW"))
    async with opened(make(script, tools=[echo], plugins=[Overflow()])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A call(c1) res(c1) SE SS1.2 Q1 F1{raise} SE TE1{error}"
        )
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored)
        assert "cannot be rewritten" in end.reason.error.message


class Forgets(Plugin):
    """`/new` forgets everything."""

    async def command(
        self, ctx: SeamContext, command: Command, next: Next[Command, Answer | Replace | None]
    ) -> Answer | Replace | None:
        return Answer("forgotten", Replace(cause="new")) if command.text == "/new" else await next(command)


async def test_c137_a_command_may_rewrite_the_view() -> None:
    script = scripted("one", "two")
    async with opened(make(script, plugins=[Forgets()])) as (system, ref):
        await say(ref, "hi")
        await say(ref, "/new")
        assert await history(ref) == []
        await say(ref, "on")
        assert [m.text for m in script.requests[1].messages] == ["on"]
        seqs = [r.seq for r in await records(system.store) if isinstance(r.event, e.UserMessage | e.AssistantMessage)]
        assert await order(system.store) == (
            f"{FIRST} put[t](/new) TS2 claim(/new) cmd cmdres cut({seqs[0]}..{seqs[1]}) TE2{{completed}} "
            "put[t](on) TS3 claim(on) SS3.1 U(on) Q1 C* A SE TE3{completed}"
        )


async def test_c144_an_idle_inject_outlives_the_process_and_waits_for_the_next_wake() -> None:
    store = MemoryStore()
    async with opened(make(scripted()), store) as (_, ref):
        await ref.inject("by the way", message_id="by the way")
    script = scripted("well")
    async with opened(make(script), store) as (system, ref):
        assert system.report.woken == []
        assert [item.id for item in await ref.pending()] == ["by the way"]
        assert await order(store) == "put[s](by the way)"
        await say(ref, "hi")
        assert [m.text for m in script.requests[0].messages] == ["by the way", "hi"]
        assert await order(store) == (
            "put[s](by the way) put[t](hi) TS1 claim(by the way,hi) SS1.1 U(by the way) U(hi) H{initial} X Q1 C* A SE "
            "TE1{completed}"
        )


async def with_record(store: MemoryStore, fields: dict[str, Any]) -> None:
    """Add a record to the log of `a`, as another version would have written it."""
    head = await store.head("a")
    assert head is not None
    last = Record(head.last + 1, head.time, UnknownEvent(fields))
    line = to_json(last)
    epoch = await store.own("a")
    assert await store.commit([[Batch("a", epoch, head.last, [from_json(line)], head.summary, {})]]) == [None]


async def lived() -> MemoryStore:
    """A store in which `a` has had a turn."""
    store = MemoryStore()
    async with opened(make(scripted("one")), store) as (_, ref):
        await say(ref, "hi")
    return store


async def test_c145_a_log_of_a_newer_version_can_be_read_and_not_written() -> None:
    store = await lived()
    await with_record(store, {"type": "moon/phase", "full": True})
    agent = make(scripted("two"))
    async with System.open(store, agents=[agent]) as system:
        with pytest.raises(UnknownRecord, match="moon/phase") as caught:
            await system.get("a")
        assert (caught.value.type, caught.value.agent) == ("moon/phase", "a")
        with pytest.raises(UnknownRecord):
            await system.spawn(agent, id="a")
        read = [record.type async for record in store.read("a")]
        assert read[-1] == "moon/phase"


async def test_c145_a_skippable_record_and_an_unknown_field_are_kept() -> None:
    store = await lived()
    await with_record(store, {"type": "moon/phase", "skippable": True, "full": True})
    await with_record(store, {"type": "note", "kind": "tide", "data": 1, "height": 7})
    script = scripted("two")
    async with opened(make(script), store) as (_, ref):
        await say(ref, "on")
        assert [m.text for m in script.requests[0].messages] == ["hi", "one", "on"]
    lines = [to_json(record) async for record in store.read("a")]
    assert any(b'"type":"moon/phase","skippable":true,"full":true' in line for line in lines)
    assert any(b'"height":7' in line for line in lines)
    await check(store)


async def test_c143_opening_a_closed_log_ten_times_adds_no_record() -> None:
    store = await lived()
    before = await records(store)
    for _ in range(10):
        async with opened(make(scripted()), store) as (_, ref):
            assert ref.status == "idle"
            await trio.testing.wait_all_tasks_blocked()
    assert await records(store) == before
