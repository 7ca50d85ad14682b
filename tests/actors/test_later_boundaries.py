"""Section 2 of the conformance cases at later boundaries: whole steps stay, and the turn ends as the seam says."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import events, history, make, opened, order, say, scripted

from callboard.actors import Boundary, Enter, LimitReached, Plugin, Reject, tool
from callboard.actors.answers import Stopping
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage import events as e

START = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A"


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


class Later(Plugin):
    """Steers at the stop if there were no calls, and does as the test says at the second boundary."""

    def __init__(self, act: Any) -> None:
        self.act = act

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
        await ctx.agent.steer("more", message_id="more")

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        if boundary.step == 1:
            return await next(boundary)
        if isinstance(self.act, Exception):
            raise self.act
        answer: Reject = self.act
        return answer


ACTS = [(Reject("no"), "blocked"), (ValueError("no"), "error"), (LimitReached("money", "spent"), "limit")]


@pytest.mark.parametrize(("act", "kind"), ACTS)
async def test_a_refused_steer_ends_the_turn_after_its_whole_step(act: Any, kind: str) -> None:
    async with opened(make(scripted("a"), plugins=[Later(act)])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{START} SE put[s](more) claim(more) TE1{{{kind}}}"
        assert await history(ref) == ["user hi", "assistant a"]
        assert await ref.pending() == ()


@pytest.mark.parametrize(("act", "kind"), ACTS)
async def test_a_refused_boundary_between_tools_and_model_takes_nothing(act: Any, kind: str) -> None:
    script = scripted(Reply.tools(("c1", "echo", {})))
    async with opened(make(script, tools=[echo], plugins=[Later(act)])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{START} call(c1) res(c1) SE TE1{{{kind}}}"


@pytest.mark.parametrize(("error", "kind"), [(ValueError("no"), "error"), (LimitReached("money", "spent"), "limit")])
async def test_a_throw_in_turn_stopping_ends_the_turn_with_it(error: Exception, kind: str) -> None:
    class Throws(Plugin):
        async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
            raise error

    async with opened(make(scripted("a"), plugins=[Throws()])) as (system, ref):
        outcome = await ref.ask("hi", message_id="hi")
        assert await order(system.store) == f"{START} SE TE1{{{kind}}}"
        assert (outcome.text, outcome.reason.kind) == ("a", kind)


async def test_c026_a_throw_in_a_context_section_ends_the_turn_without_a_step() -> None:
    thrown: list[bool] = []

    async def section(ctx: SeamContext) -> str:
        if not thrown:
            thrown.append(True)
            raise ValueError("no")
        return "sunny"

    async with opened(make(scripted("a"), context=[section])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == "put[t](hi) TS1 claim(hi) TE1{error}"
        await say(ref, "on")
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) TE1{error} "
            "put[t](on) TS2 claim(on) SS2.1 U(on) U(sunny) H{initial} X Q1 C* A SE TE2{completed}"
        )


async def test_c025_an_empty_later_boundary_still_lets_the_model_read_its_results() -> None:
    model = scripted(Reply.tools(("c1", "echo", {"text": "x"})), "b")

    class Nothing(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
            return Enter(()) if boundary.step > 1 else await next(boundary)

    async with opened(make(model, tools=[echo], plugins=[Nothing()])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{START} call(c1) res(c1) SE SS1.2 Q1 C* A SE TE1{{completed}}"
        assert model.requests[1].messages[-1].results == {"c1": "echo x"}
        assert len(await events(system.store, e.UserMessage)) == 1
