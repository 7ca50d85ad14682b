"""Callers that are cancelled in the middle: what they did is done all the same, and whoever waits for it hears of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from helpers import check, make, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import System, ToolContext, tool
from callboard.actors.testing import Reply
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentDeleted, InputDropped, StoreFull
from callboard.storage.store import Head
from callboard.storage.testing import FaultyStore


async def left(store: FaultyStore, act: Callable[[], Awaitable[object]]) -> None:
    """Begin to do it, and be cancelled before the disk has answered."""
    store.hold()
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(act)
            await wait_all_tasks_blocked()
            scope.cancel()
            nursery.start_soon(_release, store)


async def _release(store: FaultyStore) -> None:
    with trio.CancelScope(shield=True):
        await wait_all_tasks_blocked()
        store.release()


@tool(approval="May I?")
async def act() -> str:
    """Acts."""
    return "acted"


async def test_an_answer_whose_giver_has_left_lets_the_turn_go_on(autojump_clock: MockClock) -> None:
    store = FaultyStore(MemoryStore())
    agent = make(scripted(Reply.tools(("c1", "act", {})), "done"), tools=[act])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("go")
        await wait_all_tasks_blocked()
        (question,) = [each async for each in system.approvals()]
        await left(store, lambda: system.answer(question.id, "allow", by="ann"))
        with trio.fail_after(60):
            await ref.wait_idle()
    await check(store)


async def test_who_asked_hears_of_a_withdrawal_by_somebody_who_has_left(autojump_clock: MockClock) -> None:
    store = FaultyStore(MemoryStore())
    agent = make(scripted(Reply.tools(("c1", "act", {}))), tools=[act])
    heard: list[str] = []
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("go")

        async def asks(id: str) -> None:
            try:
                await ref.ask("too late", message_id=id)
            except InputDropped as error:
                heard.append(error.why)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(asks, "m")
            nursery.start_soon(asks, "n")
            await wait_all_tasks_blocked()
            await left(store, lambda: ref.withdraw("m"))
            await left(store, lambda: ref.replace("n", "another"))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
    assert heard == ["withdrawn", "replaced"]
    await check(store)


async def test_an_agent_whose_deleter_has_left_is_gone(autojump_clock: MockClock) -> None:
    store = FaultyStore(MemoryStore())
    agent = make(scripted("one", "two"))
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("hi")
        await left(store, lambda: system.delete("a"))
        with pytest.raises(AgentDeleted):
            await system.get("a")
        again = await system.spawn(agent, id="a")
        assert (await again.ask("hi")).text == "two"
    await check(store)


async def test_an_agent_that_was_opened_for_somebody_who_has_left_goes_on_with_its_turn(autojump_clock: MockClock) -> None:
    class Slow(MemoryStore):
        """Holds who looks for the child."""

        held = False

        async def head(self, agent: str) -> Head | None:
            if agent == "c" and self.held:
                await trio.sleep_forever()
            return await super().head(agent)

    @tool
    async def spawns(ctx: ToolContext[Any]) -> str:
        """Spawns."""
        await ctx.spawn(child, id="c")
        return "spawned"

    @tool(replay="safe")
    async def waits() -> str:
        """Waits."""
        await trio.sleep(100)
        return "waited"

    slow = Slow()
    store, child = FaultyStore(slow), make(scripted(), name="child")
    calls = [Reply.tools((f"c{n}", name, {})) for n, name in enumerate(["spawns", "waits"])]
    agent = make(scripted(calls[0], "one", calls[1], "two"), tools=[spawns, waits])
    async with System.open(store, agents=[agent, child], idle_after=10) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("begin")
        await trio.sleep(30)  # the child is dropped from memory
        await ref.followup("wait", message_id="m")
        await wait_all_tasks_blocked()
        store.fail_next(StoreFull("the disk is full; free some space"))
        with pytest.raises(StoreFull):
            await ref.steer("hurry")
        slow.held = True
        with trio.move_on_after(0.001) as scope:
            await ref.wait_idle()
        assert scope.cancelled_caught
        slow.held = False
        await trio.sleep(1000)
        head = await store.head("a")
        assert head is not None and not head.summary.open
        assert (await ref.outcome("m")).text == "two"
    await check(store)
