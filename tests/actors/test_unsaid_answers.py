"""On a route every answer is said exactly once, also when the turn goes on behind it and then ends otherwise."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import events, make, opened, order, say, scripted

from callboard.actors import Boundary, Enter, Plugin, Reject, ToolOutput, tool
from callboard.actors.answers import Stopping
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.actors.turns.respond import BLOCKED, EMPTY, FAILED
from callboard.storage import chunks as c
from callboard.storage import events as e

ROUTE = {"channel": "irc", "chat": "1"}
START = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE put[s](more)"


class Goes(Plugin):
    """Steers once at the stop; the boundary of that steer is answered as the test says."""

    def __init__(self, verdict: Reject | Exception | None = None) -> None:
        self.verdict = verdict

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
        if stopping.step == 1:
            await ctx.agent.steer("more", message_id="more")

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        if boundary.step == 1 or self.verdict is None:
            return await next(boundary)
        if isinstance(self.verdict, Exception):
            raise self.verdict
        return self.verdict


@pytest.mark.parametrize(
    ("plugin", "second", "rest", "said"),
    [
        (Goes(), "b", "out claim(more) SS1.2 U(more) Q1 C* A SE TE1{completed} out", ["a", "b"]),
        (
            Goes(),
            Reply.chunks([c.finish("stop")]),
            "out claim(more) SS1.2 U(more) Q1 C* A SE TE1{completed} out",
            ["a", EMPTY],
        ),
        (Goes(), Reply.fail("QUOTA"), "out claim(more) SS1.2 U(more) Q1 F1{raise} SE TE1{error} out", ["a", FAILED]),
        (Goes(Reject("no")), None, "claim(more) TE1{blocked} out out", ["a", BLOCKED]),
        (Goes(ValueError("no")), None, "claim(more) TE1{error} out out", ["a", FAILED]),
    ],
    ids=["answered", "empty", "failed", "blocked", "thrown"],
)
async def test_each_answer_is_said_once(plugin: Plugin, second: Any, rest: str, said: list[str]) -> None:
    script = scripted("a", *([] if second is None else [second]))
    async with opened(make(script, plugins=[plugin])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        assert await order(system.store) == f"{START} {rest}"
        puts = await events(system.store, e.OutboxPut)
        assert ["".join(getattr(block, "text", "") for block in put.content) for put in puts] == said
        assert len({put.delivery for put in puts}) == len(puts)
        (end,) = await events(system.store, e.TurnEnd)
        assert end.delivery == "put"


@tool
async def conclude() -> ToolOutput:
    """Conclude."""
    return ToolOutput("done", concludes=True)


@pytest.mark.parametrize(("text", "said"), [("Booked.", "Booked."), (None, EMPTY)])
async def test_text_beside_a_concluding_call_is_better_than_a_standard_sentence(text: str | None, said: str) -> None:
    script = scripted(Reply.tools(("c1", "conclude", {}), text=text))
    async with opened(make(script, tools=[conclude])) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        assert await order(system.store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A call(c1) res(c1) SE TE1{completed} out"
        )
        (put,) = await events(system.store, e.OutboxPut)
        assert [getattr(block, "text", "") for block in put.content] == [said]
