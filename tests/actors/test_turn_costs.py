"""C017: what a turn costs in flushes, counted at the store; a rule, not the luck of the scheduler."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import trio
from helpers import make, opened, order, say, scripted
from trio.testing import MockClock

from callboard.actors import Plugin, tool
from callboard.actors.seams import SeamContext
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage.messages import Chunk, Request

FIRST = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed}"
ONE_TOOL = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A call(c1) res(c1) SE SS1.2 Q1 C* A SE TE1{completed}"


class Slow(Plugin):
    """Gives every other task a turn in every seam, twice."""

    async def _seam(self, ctx: SeamContext, value: Any, next: Any) -> Any:
        await trio.lowlevel.checkpoint()
        answer = await next(value)
        await trio.lowlevel.checkpoint()
        return answer

    accept = compact = command = respond = assemble = pre_step = request = request_error = _seam
    tool_before = tool_around = tool_after = _seam

    async def guard(self, ctx: SeamContext, call: Any) -> None:
        await trio.lowlevel.checkpoint()

    async def turn_stopping(self, ctx: SeamContext, stopping: Any) -> None:
        await trio.lowlevel.checkpoint()

    async def stream(self, ctx: SeamContext, request: Request, next: Any) -> AsyncIterator[Chunk]:
        async for chunk in next(request):
            await trio.lowlevel.checkpoint()
            yield chunk


async def _body(text: str = "") -> str:
    """Say it again."""
    await trio.lowlevel.checkpoint()
    return text


never = tool(name="echo", replay="never")(_body)
safe = tool(name="echo", replay="safe")(_body)


@pytest.mark.parametrize("plugins", [[], [Slow()]], ids=["bare", "slow seams"])
@pytest.mark.parametrize(
    ("tools", "script", "expected", "flushes"),
    [
        ([], ["hello"], FIRST, 2),
        ([never], [Reply.tools(("c1", "echo", {})), "done"], ONE_TOOL, 4),
        ([safe], [Reply.tools(("c1", "echo", {})), "done"], ONE_TOOL, 3),
    ],
    ids=["simple", "never", "safe"],
)
async def test_c017_flushes_of_a_turn(
    plugins: Sequence[Plugin], tools: Sequence[Any], script: Sequence[Any], expected: str, flushes: int
) -> None:
    async with opened(make(scripted(*script), plugins=plugins, tools=tools)) as (system, ref):
        before = system.store.statistics()["flushes"]
        await say(ref, "hi")
        assert system.store.statistics()["flushes"] - before == flushes
        assert await order(system.store) == expected


async def test_c017_chunks_cause_no_flush_within_200_ms(mock_clock: MockClock) -> None:
    async with opened(make(scripted(Reply.hang("partial")))) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await trio.testing.wait_all_tasks_blocked()
        before = system.store.statistics()["flushes"]
        mock_clock.jump(0.19)
        await trio.testing.wait_all_tasks_blocked()
        assert system.store.statistics()["flushes"] == before
        assert (await order(system.store)).endswith("Q1")
        mock_clock.jump(0.02)
        await trio.testing.wait_all_tasks_blocked()
        assert system.store.statistics()["flushes"] == before + 1
        assert (await order(system.store)).endswith("Q1 C*")
        await ref.cancel()
        await ref.wait_idle()


async def test_c017_a_prompt_answer_flushes_no_chunk_alone() -> None:
    model = ScriptedModel([Reply.text("x" * 200, parts=200)], paced=True)
    async with opened(make(model)) as (system, ref):
        before = system.store.statistics()["flushes"]
        await say(ref, "hi")
        assert system.store.statistics()["flushes"] - before == 2
