"""A delete from inside a turn waits for the turns of a whole family: one that could never end fails before anything stops."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, make, records, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, System, ToolContext, delegate, tool
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import CallboardError


@tool
async def wipe(ctx: ToolContext[Any], id: str) -> str:
    """Delete an agent and all below it; say what came of it."""
    try:
        await ctx.deps["system"].delete(id)
    except CallboardError as error:
        return f"{type(error).__name__}: {error.message}"
    return "gone"


def worker(*replies: Any, **options: Any) -> Agent[Any, Any]:
    """A child's definition."""
    return Agent("worker", model=scripted(*replies), plugins=()).replace(**options)


async def listed(system: System) -> list[str]:
    """Everybody there is."""
    return [agent.id async for agent in system.agents()]


@pytest.mark.parametrize("background", [True, False])
async def test_c270_a_descendant_cannot_delete_the_tree_it_stands_in_and_nothing_of_it_is_changed(background: bool) -> None:
    """In the background nobody waits for the caller: only the tree as a whole shows that it would delete itself."""
    child = worker(Reply.tools(("w", "wipe", {"id": "a"})), "done", tools=[wipe])
    hanging = Agent("hanging", model=scripted(Reply.hang()), plugins=())
    calls = Reply.tools(("h", "hanging", {"task": "hang"}), ("c", "worker", {"task": "go"}))
    tools = [delegate(child, background=background), delegate(hanging, background=True)]
    top = make(scripted(calls, "waiting", "noted"), tools=tools)
    store, deps = MemoryStore(), dict[str, Any]()
    async with System.open(store, agents=[top], deps=deps, grace=0) as system:
        deps["system"] = system
        ref = await system.spawn(top, id="a")
        await ref.ask("hi")
        await wait_all_tasks_blocked()
        (result,) = await events(store, e.ToolResult, "a/1.1.c")
        text = "".join(getattr(block, "text", "") for block in result.content)
        assert text.startswith("AskCycle") and "a/1.1.c" in text
        assert await listed(system) == ["a", "a/1.1.c", "a/1.1.h"]
        assert (await system.get("a/1.1.h")).status == "running", "its sibling was not cancelled"
        for agent in ("a", "a/1.1.h"):
            assert await events(store, e.TurnCancel, agent) == []
    await check(store)


async def test_c270_a_tree_of_which_a_member_waits_for_the_caller_is_left_as_it_is() -> None:
    @tool
    async def ask_other(ctx: ToolContext[Any]) -> str:
        """Ask the one that deletes."""
        return str((await ctx.ask("b", "well?")).text)

    asking = worker(Reply.tools(("q", "ask_other", {})), "done", tools=[ask_other])
    top = make(
        scripted(Reply.tools(("c", "worker", {"task": "go"})), "waiting", "noted"), tools=[delegate(asking, background=True)]
    )
    begin = trio.Event()

    @tool
    async def wait(ctx: ToolContext[Any]) -> str:
        """Until the other one asks."""
        await begin.wait()
        return "now"

    wiper = Agent("wiper", model=scripted(Reply.tools(("g", "wait", {})), Reply.tools(("w", "wipe", {"id": "a"})), "ok", "well"))
    wiper = wiper.replace(tools=[wipe, wait], plugins=())
    store, deps = MemoryStore(), dict[str, Any]()
    async with System.open(store, agents=[top, wiper], deps=deps) as system:
        deps["system"] = system
        other = await system.spawn(wiper, id="b")
        asked = await other.followup("go")
        ref = await system.spawn(top, id="a")
        await ref.ask("hi")
        await wait_all_tasks_blocked()
        begin.set()
        assert (await other.outcome(asked.message_id)).text == "ok"
        text = str((await events(store, e.ToolResult, "b"))[1].content)
        assert "AskCycle" in text and "b → a/1.1.c → b" in text
        await wait_all_tasks_blocked()
        assert await listed(system) == ["a", "a/1.1.c", "b"]
        assert [record.event.reason.kind for record in await records(store, "a") if isinstance(record.event, e.TurnEnd)] == [
            "completed",
            "completed",
        ]
        # From outside of turns nobody is held up by it.
        await system.delete("a")
        assert await listed(system) == ["b"]
    await check(store)


async def test_a_tool_deletes_a_tree_that_does_not_wait_for_it() -> None:
    child = worker("found")
    top = make(scripted(Reply.tools(("c", "worker", {"task": "go"})), "thanks"), tools=[delegate(child)])
    wiper = Agent("wiper", model=scripted(Reply.tools(("w", "wipe", {"id": "a"})), "ok"), tools=[wipe], plugins=())
    deps = dict[str, Any]()
    async with System.open(":memory:", agents=[top, wiper], deps=deps) as system:
        deps["system"] = system
        await (await system.spawn(top, id="a")).ask("hi")
        await (await system.spawn(wiper, id="b")).ask("go")
        assert await listed(system) == ["b"]
