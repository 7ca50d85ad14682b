"""Section 2 of the conformance cases: what `pre_step` lets into the model's view, and what becomes of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing
from helpers import events, history, make, opened, order, say, scripted

from callboard.actors import AgentRef, Boundary, Enter, Plugin, Reject, Replace, tool
from callboard.actors.answers import Assembly, Position, Stopping
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.messages import Failure, Message, PluginSource, TextBlock

Admit = Next[Boundary, Enter | Reject]


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


class PreStep(Plugin):
    """Answers each boundary by a function of it; keeps the boundaries it saw."""

    def __init__(self, answer: Callable[[Boundary], Enter | Reject] = lambda boundary: Enter(boundary.messages)) -> None:
        self.answer = answer
        self.seen: list[tuple[int, int, int]] = []

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Admit) -> Enter | Reject:
        self.seen.append((boundary.turn, boundary.step, len(boundary.messages)))
        return self.answer(boundary)


class Gate(Plugin):
    """Holds the first turn up, before it claims anything, until the test opens the gate."""

    def __init__(self) -> None:
        self.open = trio.Event()

    async def compact(self, ctx: SeamContext, position: Position, next: Next[Position, Replace | None]) -> Replace | None:
        await self.open.wait()
        return await next(position)


async def queue(ref: AgentRef[Any], gate: Gate, *texts: str) -> None:
    """Send all of these while the first turn waits at the gate, and then wait until the agent is idle."""
    for text in texts:
        await ref.followup(text, message_id=text)
        await trio.testing.wait_all_tasks_blocked()
    gate.open.set()
    await ref.wait_idle()


def no_secrets(boundary: Boundary) -> Enter | Reject:
    """Lets in what does not say secret."""
    return Reject("no secrets") if "secret" in boundary.text else Enter(boundary.messages)


async def test_c018_a_rejected_prompt_ends_the_turn_blocked() -> None:
    model = scripted()
    async with opened(make(model, plugins=[PreStep(no_secrets)])) as (system, ref):
        await say(ref, "secret")
        assert await order(system.store) == "put[t](secret) TS1 claim(secret) TE1{blocked}"
        assert model.requests == []
        assert await ref.pending() == ()
        assert await history(ref) == []
        (end,) = await events(system.store, e.TurnEnd)
        assert end.reason == e.Blocked("no secrets")
        assert not end.park


async def test_c019_two_prompts_of_which_the_first_is_blocked_are_one_activity() -> None:
    statuses: list[str] = []

    class Watch(Plugin):
        async def on_status(self, ctx: SeamContext, status: str) -> None:
            statuses.append(status)

    gate = Gate()
    async with opened(make(scripted("fine"), plugins=[gate, PreStep(no_secrets), Watch()])) as (system, ref):
        await queue(ref, gate, "secret", "safe")
        assert await order(system.store) == (
            "put[t](secret) TS1 put[t](safe) claim(secret) TE1{blocked} "
            "TS2 claim(safe) SS2.1 U(safe) H{initial} X Q1 C* A SE TE2{completed}"
        )
    assert statuses == ["running", "idle"]


async def test_c020_nothing_entered_completes_without_a_step() -> None:
    model, gate = scripted("fine"), Gate()

    def drop(boundary: Boundary) -> Enter | Reject:
        return Enter([]) if boundary.text == "noise" else Enter(boundary.messages)

    async with opened(make(model, plugins=[gate, PreStep(drop)])) as (system, ref):
        await queue(ref, gate, "noise", "hi")
        assert await order(system.store) == (
            "put[t](noise) TS1 put[t](hi) claim(noise) TE1{completed} "
            "TS2 claim(hi) SS2.1 U(hi) H{initial} X Q1 C* A SE TE2{completed}"
        )
        assert len(model.requests) == 1
        assert await ref.pending() == ()


async def test_c021_a_rewritten_prompt_is_what_the_model_reads() -> None:
    model = scripted("fine")

    def shout(boundary: Boundary) -> Enter:
        return Enter([message.map_text(str.upper) for message in boundary.messages])

    async with opened(make(model, plugins=[PreStep(shout)])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == ("put[t](hi) TS1 claim(hi) SS1.1 U(HI) H{initial} X Q1 C* A SE TE1{completed}")
        assert [m.text for m in model.requests[0].messages] == ["HI"]
        assert await history(ref) == ["user HI", "assistant fine"]


async def test_c022_a_plugin_adds_a_message_of_its_own() -> None:
    model = scripted("fine")

    def remind(boundary: Boundary) -> Enter:
        added = Message("note-1", "user", (TextBlock("be-kind"),), PluginSource("manners"))
        return Enter([added, *boundary.messages])

    async with opened(make(model, plugins=[PreStep(remind)])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(be-kind) U(hi) H{initial} X Q1 C* A SE TE1{completed}"
        )
        assert [m.text for m in model.requests[0].messages] == ["be-kind", "hi"]
        added, _ = await events(system.store, e.UserMessage)
        assert added.message.source == PluginSource("manners")


async def test_c023_a_throw_in_pre_step_parks_what_is_queued() -> None:
    failures: list[tuple[Failure, int]] = []
    model, gate = scripted("fine", "too"), Gate()

    class Throws(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Admit) -> Enter | Reject:
            if boundary.text == "bad":
                raise ValueError("no")
            return await next(boundary)

        async def on_error(self, ctx: SeamContext, failure: Failure) -> None:
            ends = [record async for record in ctx.agent.read() if record.type == "turn/end"]
            failures.append((failure, len(ends)))

    async with opened(make(model, plugins=[gate, Throws()])) as (system, ref):
        await queue(ref, gate, "bad", "queued")
        log = await order(system.store)
        assert log == "put[t](bad) TS1 put[t](queued) claim(bad) TE1{error}"
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored)
        assert (end.reason.error.code, end.reason.error.message) == ("UNKNOWN", "ValueError: no")
        assert end.park
        (pending,) = await ref.pending()
        assert pending.parked
        await trio.testing.wait_all_tasks_blocked()
        assert failures == [(Failure("UNKNOWN", "ValueError: no"), 1)]
        await say(ref, "wake")
        assert (await order(system.store))[len(log) :] == (
            " put[t](wake) TS2 claim(queued) SS2.1 U(queued) H{initial} X Q1 C* A SE TE2{completed}"
            " TS3 claim(wake) SS3.1 U(wake) Q1 C* A SE TE3{completed}"
        )
    assert len(failures) == 1
    assert model.requests[-1].messages[-1].text == "wake"


async def test_c024_nothing_entered_after_a_whole_step_ends_the_turn() -> None:
    class Stops(PreStep):
        async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
            await ctx.agent.inject("Z", message_id="Z")

    def first_only(boundary: Boundary) -> Enter:
        return Enter(boundary.messages if boundary.step == 1 else [])

    async with opened(make(scripted("fine"), plugins=[Stops(first_only)])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE put[s](Z) claim(Z) TE1{completed}"
        )
        assert await ref.pending() == ()


async def test_c025_pre_step_is_told_turn_step_and_messages() -> None:
    pre_step = PreStep()
    script = scripted(Reply.tools(("c1", "echo", {})), "done")
    async with opened(make(script, tools=[echo], plugins=[pre_step])) as (system, ref):
        await say(ref, "hi")
        assert pre_step.seen == [(1, 1, 1), (1, 2, 0)]
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A call(c1) res(c1) SE SS1.2 Q1 C* A SE TE1{completed}"
        )


@pytest.mark.parametrize("where", ["assemble", "system"])
async def test_c026_a_throw_before_a_step_and_one_inside_it(where: str) -> None:
    thrown: list[str] = []

    def throw_once() -> None:
        if not thrown:
            thrown.append(where)
            raise ValueError("no")

    class Assembles(Plugin):
        async def assemble(self, ctx: SeamContext, assembly: Assembly, next: Next[Assembly, Assembly]) -> Assembly:
            if where == "assemble":
                throw_once()
            return await next(assembly)

    def system_text(ctx: SeamContext) -> str:
        if where == "system":
            throw_once()
        return "be kind"

    model = scripted("fine")
    expected = {
        "assemble": "put[t](hi) TS1 claim(hi) TE1{error}",
        "system": "put[t](hi) TS1 claim(hi) SS1.1 U(hi) SE TE1{error}",
    }
    async with opened(make(model, plugins=[Assembles()], system=system_text)) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == expected[where]
        assert model.requests == []
        await say(ref, "on")
        assert await order(system.store) == (
            f"{expected[where]} put[t](on) TS2 claim(on) SS2.1 U(on) H{{initial}} X Q1 C* A SE TE2{{completed}}"
        )
