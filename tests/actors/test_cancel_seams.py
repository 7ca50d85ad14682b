"""A cancel at every place where a turn may be: always one `turn/cancel` and one end, and nothing new after the first of them.

Each place is cancelled twice: from outside while a plugin (or the model, or a tool) hangs there, and by the plugin itself, which
then goes on as if nothing had happened. What it answers then must not count.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from helpers import make, opened, order, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors.answers import (
    Assembly,
    Boundary,
    Command,
    Done,
    Failed,
    Proposal,
    Reject,
    Resend,
    Stopping,
    ToolCall,
)
from callboard.actors.seams import Plugin, SeamContext
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.actors.tools import ToolContext, tool
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Chunk, Request


class Cancels(Plugin):
    """Hangs at one place, or cancels its own agent there and goes on; `keep` what is queued, or drop it."""

    def __init__(self, place: str, *, hangs: bool, keep: bool = False) -> None:
        self.place, self.hangs, self.keep = place, hangs, keep
        self.called = 0

    async def at(self, ctx: Any, place: str) -> None:
        if place != self.place:
            return
        self.called += 1
        if self.hangs and self.called > 1:
            return  # the exit asks again what was cut
        if self.hangs:
            await trio.sleep_forever()
        await ctx.agent.cancel(keep_inbox=self.keep)

    async def assemble(self, ctx: SeamContext, assembly: Assembly, next: Any, /) -> Any:
        await self.at(ctx, "assemble")
        return await next(assembly)

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Any, /) -> Any:
        await self.at(ctx, "pre_step")
        if self.place == "rejecting" and not self.called:
            self.called += 1
            await ctx.agent.cancel()
            return Reject("no")
        return await next(boundary)

    async def compact(self, ctx: SeamContext, position: Any, next: Any, /) -> Any:
        await self.at(ctx, "compact")
        return await next(position)

    async def command(self, ctx: SeamContext, command: Command, next: Any, /) -> Any:
        await self.at(ctx, "command")
        return await next(command)

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Any, /) -> Any:
        await self.at(ctx, "request")
        return await next(proposal)

    async def stream(self, ctx: SeamContext, request: Request, next: Any, /) -> AsyncIterator[Chunk]:
        await self.at(ctx, "stream start")
        async for chunk in next(request):
            yield chunk
        await self.at(ctx, "stream end")

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Any, /) -> Any:
        await self.at(ctx, "request_error")
        return Resend()

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Any, /) -> Any:
        await self.at(ctx, "tool_before")
        return await next(call)

    async def guard(self, ctx: SeamContext, call: ToolCall, /) -> str | None:
        await self.at(ctx, "guard")
        return None

    async def tool_around(self, ctx: SeamContext, call: ToolCall, next: Any, /) -> Any:
        await self.at(ctx, "tool_around")
        return await next(call)

    async def tool_after(self, ctx: SeamContext, done: Done, next: Any, /) -> Any:
        await self.at(ctx, "tool_after")
        return await next(done)

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping, /) -> None:
        await self.at(ctx, "turn_stopping")


@tool
async def echo(ctx: ToolContext[Any], text: str = "") -> str:
    """Says the text again."""
    return text


def calling() -> ScriptedModel:
    return scripted(Reply.tools(("c1", "echo", {"text": "1"})), "done")


START = "put[t](go) TS1 "
STEP = START + "claim(go) SS1.1 U(go) "
SENT = STEP + "H{initial} X Q1 "
ANSWER = SENT + "C* A "
END = "TE1{aborted user}"
HUNG = {
    "compact": START + f"TC1(go) {END}",
    "assemble": START + f"TC1(go) {END}",
    "pre_step": START + f"TC1(go) {END}",
    "request": STEP + f"TC1 SE {END}",
    "stream start": SENT + f"TC1 SE {END}",
    "stream end": SENT + f"C* TC1 SE {END}",
    "tool_before": ANSWER + f"TC1 res(c1!ABORTED_BEFORE_DISPATCH) SE {END}",
    "guard": ANSWER + f"TC1 res(c1!ABORTED_BEFORE_DISPATCH) SE {END}",
    "tool_around": ANSWER + f"call(c1) TC1 res(c1!ABORTED) SE {END}",
    "tool_after": ANSWER + f"call(c1) TC1 res(c1) SE {END}",
    "turn_stopping": ANSWER + f"call(c1) res(c1) SE SS1.2 Q1 C* A SE TC1 {END}",
}
BY_ITSELF = {**HUNG, "tool_around": ANSWER + f"call(c1) TC1 res(c1) SE {END}"}
"""A body whose plugin cancels and goes on still returns: its result is its own."""


@pytest.mark.parametrize("place", HUNG)
async def test_c054_c055_c031_a_cancel_while_a_plugin_hangs(place: str) -> None:
    store, plugin = MemoryStore(), Cancels(place, hangs=True)
    async with opened(make(calling(), tools=[echo], plugins=[plugin]), store) as (_, ref):
        await ref.followup("go")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
    assert plugin.called == (2 if place == "tool_after" else 1)
    assert await order(store) == HUNG[place]


@pytest.mark.parametrize("place", BY_ITSELF)
async def test_c054_c055_a_plugin_that_cancels_its_own_turn_and_goes_on(place: str) -> None:
    store, plugin = MemoryStore(), Cancels(place, hangs=False)
    async with opened(make(calling(), tools=[echo], plugins=[plugin]), store) as (_, ref):
        await ref.followup("go")
        await ref.wait_idle()
    assert plugin.called == 1
    assert await order(store) == BY_ITSELF[place]


async def test_c054_a_plugin_that_cancels_and_rejects() -> None:
    store, plugin = MemoryStore(), Cancels("rejecting", hangs=False)
    async with opened(make(scripted(), plugins=[plugin]), store) as (_, ref):
        await ref.followup("go")
        await ref.wait_idle()
    assert await order(store) == START + f"TC1(go) {END}"


@pytest.mark.parametrize("hangs", [True, False])
async def test_c054_a_command_that_is_cancelled_is_no_command(hangs: bool) -> None:
    store, plugin = MemoryStore(), Cancels("command", hangs=hangs)
    async with opened(make(scripted(), plugins=[plugin]), store) as (_, ref):
        await ref.followup("/go")
        await wait_all_tasks_blocked()
        if hangs:
            await ref.cancel()
        await ref.wait_idle()
    assert plugin.called == 1
    assert await order(store) == f"put[t](/go) TS1 TC1(/go) {END}"


@pytest.mark.parametrize("hangs", [True, False])
async def test_c031_keep_inbox_leaves_what_a_boundary_had_reserved_pending_and_parked(hangs: bool) -> None:
    store, plugin = MemoryStore(), Cancels("pre_step", hangs=hangs, keep=True)
    async with opened(make(scripted("hello", "again"), plugins=[plugin]), store) as (_, ref):
        await ref.followup("go")
        await wait_all_tasks_blocked()
        if hangs:
            await ref.cancel(keep_inbox=True)
        await ref.wait_idle()
        assert await order(store) == f"{START}TC1 {END}"
        assert [(item.message.text, item.parked) for item in await ref.pending()] == [("go", True)]


async def test_c054_a_cancel_in_the_stream_and_in_a_tool() -> None:
    store = MemoryStore()

    @tool
    async def hang(ctx: ToolContext[Any]) -> str:
        """Never ends by itself."""
        await trio.sleep_forever()
        return ""

    agent = make(scripted(Reply.hang("partial"), Reply.tools(("c1", "hang", {}), ("c2", "hang", {}))), tools=[hang])
    async with opened(agent, store) as (_, ref):
        for text in ("one", "two"):
            await ref.followup(text)
            await wait_all_tasks_blocked()
            await ref.cancel()
            await ref.wait_idle()
    assert await order(store) == (
        "put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 C* TC1 A{cut} SE TE1{aborted user} "
        "put[t](two) TS2 claim(two) SS2.1 U(two) Q1 C* A call(c1) TC2 res(c1!ABORTED) res(c2!ABORTED_BEFORE_DISPATCH) "
        "SE TE2{aborted user}"
    )


@pytest.mark.parametrize("hangs", [True, False])
async def test_c282_a_cancel_while_request_error_is_asked(hangs: bool) -> None:
    store, plugin = MemoryStore(), Cancels("request_error", hangs=hangs)
    agent = make(scripted(Reply.fail("RATE_LIMIT", "slow down", after="half")), plugins=[plugin])
    async with opened(agent, store) as (_, ref):
        receipt = await ref.followup("go")
        await wait_all_tasks_blocked()
        if hangs:
            await ref.cancel()
        outcome = await ref.outcome(receipt.message_id)
    assert await order(store) == SENT + f"C* TC1 A{{cut}} SE {END}"
    assert outcome.reason.kind == "aborted"
    error: Any = getattr(outcome.reason, "error", None)
    assert (error.code, error.message) == ("RATE_LIMIT", "slow down")


async def test_c282_a_cancel_in_request_error_that_then_throws() -> None:
    store = MemoryStore()

    class Throws(Plugin):
        async def request_error(self, ctx: SeamContext, failed: Failed, next: Any, /) -> Any:
            await ctx.agent.cancel()
            raise ValueError("mine")

    async with opened(make(scripted(Reply.fail("RATE_LIMIT", "slow down")), plugins=[Throws()]), store) as (_, ref):
        await ref.followup("go")
        await ref.wait_idle()
    assert await order(store) == SENT + f"TC1 SE {END}"
