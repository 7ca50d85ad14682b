"""The context of a call: facts, and the few things a tool may do, with ids that survive a second run."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
import trio

from callboard.actors.testing.contexts import Handle, Replied, tool_context
from callboard.actors.tools import ToolContext, tool
from callboard.storage.errors import UsageError
from callboard.storage.events import Route


def test_c131_a_context_says_where_it_is() -> None:
    scope = trio.CancelScope()
    ctx = tool_context(
        deps=3,
        labels={"user": "ann"},
        agent="trip-42",
        turn=2,
        step=3,
        call_id="c4",
        sender="ann",
        route=Route("web"),
        scope=scope,
    )
    assert (ctx.agent.id, ctx.turn, ctx.step, ctx.call_id, ctx.effect_key) == ("trip-42", 2, 3, "c4", "trip-42/2/3/c4")
    assert (ctx.deps, ctx.labels, ctx.sender, ctx.route, ctx.scope) == (3, {"user": "ann"}, "ann", Route("web"), scope)
    assert isinstance(ctx, ToolContext)
    assert repr(ctx) == "<ToolContext trip-42/2/3/c4>"


async def test_the_defaults_are_enough_for_a_tool() -> None:
    ctx = tool_context()
    assert (ctx.agent.id, ctx.labels, ctx.deps, ctx.route) == ("agent", {}, None, None)
    assert not ctx.scope.cancel_called


def test_now_is_aware_and_set_by_the_test() -> None:
    noon = datetime(2026, 12, 1, 12, tzinfo=UTC)
    assert tool_context(now=noon).now == noon
    assert tool_context().now.tzinfo is UTC


async def test_c273_a_tool_that_runs_again_makes_the_same_ids() -> None:
    async def body(ctx: ToolContext) -> list[str]:
        first = await ctx.send("b", "one")
        named = await ctx.send(Handle("b"), "two", message_id="mine")
        second = await ctx.send("c", "three")
        return [first.message_id, named.message_id, second.message_id]

    once, again = tool_context(effect_key="a/1/2/c1"), tool_context(effect_key="a/1/2/c1")
    assert await body(once) == ["a/1/2/c1#1", "mine", "a/1/2/c1#2"]
    assert await body(again) == ["a/1/2/c1#1", "mine", "a/1/2/c1#2"]
    assert [(sent.to, sent.content) for sent in once.recorded.sent] == [("b", "one"), ("b", "two"), ("c", "three")]


async def test_asks_are_answered_from_a_table_or_by_a_function() -> None:
    ctx = tool_context(answers={"b": "yes"})
    assert await ctx.ask("b", "really?", timeout=3) == "yes"
    assert ctx.recorded.asked[0].message_id == "agent/1/1/c1#1"
    with pytest.raises(UsageError, match="the test has no answer"):
        await ctx.ask("c", "really?")
    assert await tool_context(answers=lambda to, content: f"{to}: {content}").ask("b", "x") == "b: x"


async def test_replies_children_notes_and_progress_are_recorded() -> None:
    ctx = tool_context()
    await ctx.reply("hi", route=Route("web", "1"))
    child = await ctx.spawn(object())
    named = await ctx.spawn(object(), id="worker")
    ctx.note("seen", [1])
    ctx.progress("half")
    assert ctx.recorded.replies == [Replied("hi", Route("web", "1"), "agent/1/1/c1#1")]
    assert (child.id, named.id) == ("agent/1/1/c1#2", "worker")
    assert [(note.kind, note.data) for note in ctx.recorded.notes] == [("seen", [1])]
    assert ctx.recorded.progress_texts == ["half"]


async def test_a_context_runs_programs() -> None:
    @tool
    async def shout(ctx: ToolContext, text: str) -> str:
        return (await ctx.process("tr", "a-z", "A-Z", input=text)).stdout

    assert await shout(tool_context(), "oslo") == "OSLO"
