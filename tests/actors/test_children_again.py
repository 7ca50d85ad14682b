"""C283: a child that was disposed and is spawned again is a child again, and its parent's log says so."""

from __future__ import annotations

from typing import Any

from helpers import check, events, make, records, say, scripted

from callboard.actors import Agent, System, ToolContext, tool
from callboard.actors.limits import Limits
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore


async def test_c283_a_disposed_child_that_is_spawned_again_is_a_child_again() -> None:
    """Its death was told with its dispose; so is its second birth, and a cancel of the parent reaches it as before."""
    child = Agent("worker", model=scripted(Reply.hang()), plugins=())

    @tool(replay="safe")
    async def hire(ctx: ToolContext[Any]) -> str:
        """Makes a child without a task, or finds it."""
        return str((await ctx.spawn(child, id="w")).id)

    calls = (Reply.tools((f"c{n}", "hire", {})) for n in range(4))
    agent = make(scripted(*(reply for call in calls for reply in (call, "ok"))), tools=[hire], limits=Limits(children=1))
    store = MemoryStore()
    async with System.open(store, agents=[agent, child]) as system:
        ref = await system.spawn(agent, id="a")
        await say(ref, "one")
        await say(ref, "two")
        assert [event.child for event in await events(store, e.ChildSpawned)] == ["w"], "it lives, and is found"
        hired = await system.get("w")
        await hired.dispose()
        assert (await ref.info()).children == ()
        await say(ref, "three")
        assert (await ref.info()).children == ("w",)
        await hired.followup("work")
        await ref.cancel()
        await hired.wait_idle()
        assert [
            type(record.event) for record in await records(store) if isinstance(record.event, e.ChildSpawned | e.ChildEnded)
        ] == [
            e.ChildSpawned,
            e.ChildEnded,
            e.ChildSpawned,
        ]
        assert [event.cause.kind for event in await events(store, e.TurnCancel, "w")] == ["parent"]
        await hired.dispose()
        assert (await ref.info()).children == ()
        await system.delete("w")
        assert len(await events(store, e.ChildEnded)) == 2
    await check(store)
