"""Section 2 of the conformance cases: runtime context, how `pre_step` nests, and what comes between its asking and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from helpers import events, history, make, opened, order, say, scripted

from callboard.actors import AgentRef, Boundary, Enter, LimitReached, Plugin, Reject, Replace
from callboard.actors.answers import Position
from callboard.actors.content import to_message
from callboard.actors.seams import Next, SeamContext
from callboard.actors.turns.boundary import NO_CONTEXT
from callboard.storage import events as e
from callboard.storage.messages import Message, TextBlock

Admit = Next[Boundary, Enter | Reject]


def status(ref: AgentRef[Any]) -> str:
    """The agent's status, which type checkers must not take for the one it had before."""
    return ref.status


class Told:
    """A context section whose text a test sets."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def __call__(self, ctx: SeamContext) -> str | None:
        return self.text


async def test_c027_runtime_context_enters_when_it_changes() -> None:
    told = Told("sunny")
    model = scripted(*"abcdef")
    async with opened(make(model, context=[told])) as (system, ref):
        for text, turn in [("sunny", 1), ("sunny", 2), ("rain", 3), (None, 4), (None, 5)]:
            told.text = text
            await say(ref, f"m{turn}")
        gone = NO_CONTEXT
        assert await order(system.store) == (
            "put[t](m1) TS1 claim(m1) SS1.1 U(m1) U(sunny) H{initial} X Q1 C* A SE TE1{completed} "
            "put[t](m2) TS2 claim(m2) SS2.1 U(m2) Q1 C* A SE TE2{completed} "
            "put[t](m3) TS3 claim(m3) SS3.1 U(m3) U(rain) Q1 C* A SE TE3{completed} "
            f"put[t](m4) TS4 claim(m4) SS4.1 U(m4) U({gone}) Q1 C* A SE TE4{{completed}} "
            "put[t](m5) TS5 claim(m5) SS5.1 U(m5) Q1 C* A SE TE5{completed}"
        )
        assert [m.text for m in model.requests[0].messages] == ["m1", "sunny"]


async def test_c027_context_that_never_was_is_not_said_to_be_gone() -> None:
    async with opened(make(scripted("a"), context=[Told(None), Told("")])) as (system, ref):
        await say(ref, "hi")
        assert await history(ref) == ["user hi", "assistant a"]
        assert len(await events(system.store, e.UserMessage)) == 1


class Compacts(Plugin):
    """Replaces everything by a summary, once, at the given turn."""

    def __init__(self, turn: int) -> None:
        self.turn = turn

    async def compact(self, ctx: SeamContext, position: Position, next: Next[Position, Replace | None]) -> Replace | None:
        if ctx.turn != self.turn:
            return None
        return Replace(Message("sum", "user", (TextBlock("summary"),)), cause="test")


@pytest.mark.parametrize(("text", "again"), [("sunny", " U(sunny)"), (None, "")])
async def test_c028_context_that_was_compacted_away_is_told_again(text: str | None, again: str) -> None:
    model = scripted("a", "b", "c")
    first = f"U(m1){again}"
    end = 15 if again else 14
    async with opened(make(model, context=[Told(text)], plugins=[Compacts(2)])) as (system, ref):
        for n in (1, 2, 3):
            await say(ref, f"m{n}")
        assert await order(system.store) == (
            f"put[t](m1) TS1 claim(m1) SS1.1 {first} H{{initial}} X Q1 C* A SE TE1{{completed}} "
            f"put[t](m2) TS2 cut(5..{end}) claim(m2) SS2.1 U(m2){again} Q1 C* A SE TE2{{completed}} "
            "put[t](m3) TS3 claim(m3) SS3.1 U(m3) Q1 C* A SE TE3{completed}"
        )
        assert [m.text for m in model.requests[1].messages] == ["summary", "m2", *([text] if text else [])]


async def test_c029_the_first_plugin_is_the_outermost() -> None:
    calls: list[str] = []

    class Layer(Plugin):
        def __init__(self, name: str, *, alone: bool = False) -> None:
            self.name, self.alone = name, alone

        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Admit) -> Enter | Reject:
            calls.append(f"{self.name} in")
            verdict = Enter(boundary.messages) if self.alone else await next(boundary)
            calls.append(f"{self.name} out")
            assert isinstance(verdict, Enter)
            return Enter([message.map_text(lambda text: f"{text}{self.name}") for message in verdict.messages])

    async with opened(make(scripted("a"), plugins=[Layer("o"), Layer("i")])) as (system, ref):
        await say(ref, "hi")
        assert calls == ["o in", "i in", "i out", "o out"]
        assert await order(system.store) == ("put[t](hi) TS1 claim(hi) SS1.1 U(hiio) H{initial} X Q1 C* A SE TE1{completed}")
    calls.clear()
    async with opened(make(scripted("a"), plugins=[Layer("o", alone=True), Layer("i")])) as (system, ref):
        await say(ref, "hi")
        assert calls == ["o in", "o out"]
        assert await order(system.store) == ("put[t](hi) TS1 claim(hi) SS1.1 U(hio) H{initial} X Q1 C* A SE TE1{completed}")


async def test_c029_plugins_of_the_system_are_outside_those_of_the_agent() -> None:
    calls: list[str] = []

    class Layer(Plugin):
        def __init__(self, name: str) -> None:
            self.name = name

        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Admit) -> Enter | Reject:
            calls.append(self.name)
            return await next(boundary)

    async with opened(make(scripted("a"), plugins=[Layer("agent")]), plugins=[Layer("system")]) as (_, ref):
        await say(ref, "hi")
    assert calls == ["system", "agent"]


async def test_c030_withdrawing_the_only_waking_message_opens_no_turn() -> None:
    model = scripted()
    async with opened(make(model)) as (system, ref):
        # Nothing outside gets between the put and the driver for sure.
        actor = await system._runtime.registry.actor("a")  # pyright: ignore[reportPrivateUsage]
        actor.log.append(e.InboxPut(message=to_message("hi", id="hi"), lane="next-turn"))
        actor.wake()
        assert status(ref) == "running"
        assert await ref.withdraw("hi")
        await ref.wait_idle()
        assert await order(system.store) == "put[t](hi) drop(hi){withdrawn}"
        assert status(ref) == "idle"
    assert model.requests == []


class Hangs(Plugin):
    """Hangs in `pre_step` until it is cancelled."""

    def __init__(self) -> None:
        self.there = trio.Event()
        self.hangs = True

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Admit) -> Enter | Reject:
        self.there.set()
        if self.hangs:
            self.hangs = False
            await trio.sleep_forever()
        return await next(boundary)


async def test_c031_a_cancelled_boundary_claims_nothing() -> None:
    hangs, model = Hangs(), scripted("a")
    async with opened(make(model, plugins=[hangs])) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await hangs.there.wait()
        await ref.cancel()
        await ref.wait_idle()
        assert await order(system.store) == "put[t](hi) TS1 TC1(hi) TE1{aborted user}"
        assert await ref.pending() == ()
    assert model.requests == []


async def test_c031_with_keep_inbox_it_stays_pending_and_parked() -> None:
    hangs = Hangs()
    async with opened(make(scripted("a", "b"), plugins=[hangs])) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await hangs.there.wait()
        await ref.cancel(keep_inbox=True)
        await ref.wait_idle()
        aborted = "put[t](hi) TS1 TC1 TE1{aborted user}"
        assert await order(system.store) == aborted
        assert [(item.id, item.parked) for item in await ref.pending()] == [("hi", True)]
        await say(ref, "on")
        assert await order(system.store) == (
            f"{aborted} put[t](on) TS2 claim(hi) SS2.1 U(hi) H{{initial}} X Q1 C* A SE TE2{{completed}} "
            "TS3 claim(on) SS3.1 U(on) Q1 C* A SE TE3{completed}"
        )


async def test_c249_a_steer_from_pre_step_opens_the_next_step() -> None:
    seqs: list[int] = []

    class Steers(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Admit) -> Enter | Reject:
            if boundary.step == 1:
                receipt = await ctx.agent.steer("more", message_id="more")
                seqs.append(receipt.seq)
            return await next(boundary)

    model = scripted("a", "b")
    async with opened(make(model, plugins=[Steers()])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            "put[t](hi) TS1 put[s](more) claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE "
            "claim(more) SS1.2 U(more) Q1 C* A SE TE1{completed}"
        )
        assert seqs == [3]
        assert [m.text for m in model.requests[0].messages] == ["hi"]
    texts: Sequence[str] = [m.text for m in model.requests[1].messages]
    assert texts == ["hi", "a", "more"]


class Spent(Plugin):
    """Ends every turn in its first seam."""

    async def compact(self, ctx: SeamContext, position: Position, next: Next[Position, Replace | None]) -> Replace | None:
        raise LimitReached("money", "spent")


@pytest.mark.parametrize("lane", ["followup", "steer"])
async def test_a_turn_that_fails_before_its_first_boundary_takes_its_input_with_it(lane: str) -> None:
    agent = make(scripted(), plugins=[Spent()], after_error="continue")
    async with opened(agent) as (system, ref):
        await ref.inject("fact", message_id="fact")
        await getattr(ref, lane)("hi", message_id="hi")
        with trio.fail_after(60):
            await ref.wait_idle()
        put = "put[t]" if lane == "followup" else "put[s]"
        assert await order(system.store) == f"put[s](fact) {put}(hi) TS1 claim(fact,hi) TE1{{limit}}"
        assert await ref.pending() == ()
