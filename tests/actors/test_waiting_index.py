"""What agents wait for can be searched in the index, in the kinds that begin and end with records; info says the same."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, make, records, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, System, ToolContext, delegate, tool
from callboard.actors.plugins import Retry
from callboard.actors.testing import Reply, trio_wall
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import UsageError
from callboard.storage.folds.waits import KINDS
from callboard.storage.index import IndexFold

WALL = "2026-12-01T08:00Z"


async def waiting(system: System) -> dict[str, list[str]]:
    """Who waits for what: the same whether it is searched for, looked at, or counted again from the log."""
    found = {kind: [agent.id async for agent in system.agents(waiting=kind)] for kind in KINDS}
    async for agent in system.agents():
        info = await (await system.get(agent.id)).info()
        assert {wait.kind for wait in info.waits} & set(KINDS) == set(agent.waits), agent.id
        fold = IndexFold()
        for record in await records(system.store, agent.id):
            fold.apply(record)
        assert fold.summary().waits == agent.waits
    return {kind: ids for kind, ids in found.items() if ids}


async def test_each_kind_begins_and_ends_with_records(autojump_clock: MockClock) -> None:
    gate = trio.Event()

    @tool(replay="safe", mode="parallel")
    async def ask_bob(ctx: ToolContext[Any]) -> str:
        """Ask another agent."""
        return str((await ctx.ask("bob", "well?")).text)

    @tool(replay="safe", mode="parallel", approval="May it?")
    async def sign() -> str:
        """Sign."""
        return "signed"

    @tool(replay="safe")
    async def wait() -> str:
        """Until the test says so."""
        await gate.wait()
        return "now"

    worker = Agent("worker", model=scripted(Reply.tools(("w", "wait", {})), "done"), tools=[wait], plugins=())
    other = Agent("other", model=scripted(Reply.tools(("w", "wait", {})), "done"), tools=[wait], plugins=())
    bob = Agent("bob", model=scripted(Reply.tools(("w", "wait", {})), "fine"), tools=[wait], plugins=())
    calls = Reply.tools(
        ("c1", "worker", {"task": "go"}), ("c2", "sign", {}), ("c3", "ask_bob", {}), ("c4", "other", {"task": "slowly"})
    )
    lead = make(scripted(calls, "done", "noted"), tools=[delegate(worker), delegate(other, background=True), sign, ask_bob])
    flaky = Agent(
        "flaky", model=scripted(Reply.fail("RATE_LIMIT", status=429), "well"), plugins=[Retry(first_s=60, max_s=60, jitter=0)]
    )
    store = MemoryStore()
    async with System.open(store, agents=[lead, bob, flaky], now=trio_wall(WALL)) as system:
        await system.spawn(bob, id="bob")
        ref = await system.spawn(lead, id="a")
        asked = await ref.followup("go")
        tried = await (await system.spawn(flaky, id="f")).followup("hi")
        timed = await system.spawn(flaky, id="t")
        await timed.remind("later", after_s=3600, id="r")
        await wait_all_tasks_blocked()
        assert await waiting(system) == {"approval": ["a"], "ask": ["a"], "child": ["a"], "retry": ["f"], "timer": ["t"]}
        async for question in system.approvals():
            await system.answer(question.id, "allow", by="ann")
        assert (await (await system.get("f")).outcome(tried.message_id)).text == "well"
        await wait_all_tasks_blocked()
        assert await waiting(system) == {"ask": ["a"], "child": ["a"], "timer": ["t"]}
        await timed.cancel_timer("r")
        gate.set()
        assert (await ref.outcome(asked.message_id)).text == "done"
        await ref.wait_idle()
        await (await system.get("a/1.1.c4")).wait_idle()
        await ref.wait_idle()
        await wait_all_tasks_blocked()
        assert await waiting(system) == {}
    await check(store)


async def test_an_agent_at_rest_waits_for_its_children_in_the_background() -> None:
    worker = Agent("worker", model=scripted(Reply.hang()), plugins=())
    lead = make(scripted(Reply.tools(("c", "worker", {"task": "go"})), "sent", "sad"), tools=[delegate(worker, background=True)])
    async with System.open(":memory:", agents=[lead], grace=0) as system:
        ref = await system.spawn(lead, id="a")
        await ref.ask("hi")
        assert [agent.id async for agent in system.agents(waiting="child")] == ["a"]
        assert [(wait.kind, wait.what) for wait in (await ref.info()).waits] == [("child", "a/1.1.c")]
        await (await system.get("a/1.1.c")).cancel()
        await wait_all_tasks_blocked()
        assert [agent.id async for agent in system.agents(waiting="child")] == []


async def test_agents_of_one_status(autojump_clock: object) -> None:
    hangs = make(scripted(Reply.hang()))
    async with System.open(":memory:", agents=[hangs], grace=0) as system:
        for id in ("a", "b", "c"):
            await system.spawn(hangs, id=id)
        await (await system.get("b")).followup("hi")  # running from here on, whatever is on disk
        assert [agent.id async for agent in system.agents(status="running")] == ["b"]
        await wait_all_tasks_blocked()
        assert [agent.id async for agent in system.agents(status="running")] == ["b"]
        assert [agent.id async for agent in system.agents(status="idle")] == ["a", "c"]
        fork = await (await system.get("b")).fork(id="d", at=3)
        assert fork.status == "idle" and [agent.id async for agent in system.agents("d", status="running")] == []
        with pytest.raises(UsageError, match="no agent is 'asleep'; search for one that is idle, running, failed"):
            system.agents(status="asleep")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def test_a_kind_that_the_index_does_not_have_is_refused_by_name() -> None:
    async with System.open(":memory:") as system:
        with pytest.raises(UsageError, match="approval, ask, child, retry, timer"):
            system.agents(waiting="model")
