"""What an agent waits for: each kind with its times, from the log where it can be, from memory where it must."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import trio
from helpers import make, opened, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, Ask, System, ToolContext, Wait, delegate, tool
from callboard.actors.plugins import Retry
from callboard.actors.testing import Reply, ScriptedModel, trio_wall
from callboard.storage.engines.memory import MemoryStore

EIGHT = datetime(2026, 12, 1, 8, tzinfo=UTC)


def wall() -> Any:
    return trio_wall(EIGHT)


async def waits(system: System, id: str = "a") -> list[Wait]:
    """Without the milliseconds, which the writer's timers make uneven."""
    info = await (await system.get(id)).info()
    return [Wait(wait.kind, wait.what, _whole(wait.since), _whole(wait.until)) for wait in info.waits]


def _whole(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(microsecond=0)


async def test_the_model_and_the_next_attempt(autojump_clock: MockClock) -> None:
    agent = make(scripted(Reply.fail("SERVER", status=500), Reply.hang("x")), plugins=[Retry(first_s=8, max_s=8, jitter=0)])
    async with opened(agent, now=wall(), grace=0) as (system, ref):
        await ref.followup("hi")
        await trio.sleep(1)
        assert await waits(system) == [Wait("retry", "turn 1, step 1, attempt 2", None, EIGHT + timedelta(seconds=8))]
        await trio.sleep(30)
        (wait,) = await waits(system)
        assert (wait.kind, wait.what, wait.since) == ("model", "turn 1, step 1, attempt 2", EIGHT + timedelta(seconds=8))
        await ref.cancel()


async def test_a_model_slot(autojump_clock: MockClock) -> None:
    agent = make(ScriptedModel([Reply.hang("x")] * 2))
    async with opened(agent, now=wall(), model_slots=1, grace=0) as (system, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        other = await system.spawn(agent, id="b")
        await other.followup("hi")
        await wait_all_tasks_blocked()
        assert [wait.kind for id in "ab" for wait in await waits(system, id)] == ["model", "model-slot"]
        await ref.cancel()
        await wait_all_tasks_blocked()
        assert [wait.kind for wait in await waits(system, "b")] == ["model"]
        await other.cancel()


async def test_tools_children_questions_and_other_agents(autojump_clock: MockClock) -> None:
    @tool(mode="parallel")
    async def slow() -> str:
        """Take long."""
        await trio.sleep(250)
        return ""

    @tool(mode="parallel")
    async def ask_bob(ctx: ToolContext[Any]) -> str:
        """Ask."""
        return str((await ctx.ask("bob", "hm?")).text)

    @tool(mode="parallel", approval=lambda ctx, call: Ask("Shall I?", expires_s=100))
    async def risky() -> str:
        """Ask first."""
        return ""

    worker = Agent("worker", model=scripted(Reply.hang("hm")), plugins=())
    calls = Reply.tools(("c1", "slow", {}), ("c2", "worker", {"task": "go"}), ("c3", "risky", {}), ("c4", "ask_bob", {}))
    agent = make(scripted(calls), tools=[slow, delegate(worker), risky, ask_bob])
    async with opened(agent, now=wall(), grace=0) as (system, ref):
        await system.spawn(worker.replace(name="other", model=scripted(Reply.hang("hm"))), id="bob")
        await ref.remind("tea", after_s=1000)
        await trio.sleep(5)
        await ref.followup("hi")
        await trio.sleep(50)
        since = EIGHT + timedelta(seconds=5)
        assert await waits(system) == [
            Wait("tool", "slow (c1)", since),
            Wait("child", "a/1.1.c2", since),
            Wait("tool", "ask_bob (c4)", since),
            Wait("approval", "Shall I?", since, since + timedelta(seconds=100)),
            Wait("ask", "bob", since),
        ]
        assert [agent.id async for agent in system.agents(waiting="approval")] == ["a"]
        info = await ref.info()
        assert (info.status, info.turn, info.step, info.children) == ("running", 1, 1, ("a/1.1.c2",))
        await ref.cancel()


async def test_an_idle_agent_waits_for_its_next_reminder(autojump_clock: MockClock) -> None:
    async with opened(make(scripted()), now=wall()) as (system, ref):
        assert await waits(system) == []
        await ref.remind("cake", after_s=7200)
        await ref.remind("tea", after_s=3600)
        assert await waits(system) == [Wait("timer", "tea", None, EIGHT + timedelta(hours=1))]


async def test_a_definition_that_is_missing(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    worker = Agent("worker", model=scripted(Reply.hang("hm")), plugins=())
    agent = make(scripted(Reply.tools(("c1", "worker", {"task": "go"}))), tools=[delegate(worker)])
    async with opened(agent, store, grace=0) as (_, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
    renamed = Agent("another", model=scripted(), plugins=())
    async with System.open(store, agents=[agent.replace(tools=[delegate(renamed, name="worker")])], grace=0) as system:
        await trio.sleep(1)
        assert [(wait.kind, wait.what) for wait in await waits(system)] == [("child", "a/1.1.c1"), ("definition", "a/1.1.c1")]
