"""The boxed `Budget` over agents, time and restarts: what a label and a window count, and what is read back from the logs."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from crashing import image, live
from helpers import check, events, make, opened, records, say, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, System, delegate, tool
from callboard.actors.plugins import Budget, budget
from callboard.actors.testing import Reply, ScriptedModel, trio_wall
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Usage
from callboard.storage.testing import FaultyStore

WALL = "2026-12-01T08:00Z"


def answering(output: int) -> ScriptedModel:
    """A model whose every answer costs so much."""
    return ScriptedModel(lambda request: Reply.text("done", usage=Usage(output=output)))


async def ends(store: Any, agent: str = "a") -> list[str]:
    """How the turns of an agent ended: by which limit, or by what."""
    found = await events(store, e.TurnEnd, agent)
    return [end.reason.limit if isinstance(end.reason, e.Limited) else end.reason.kind for end in found]


async def ask(system: System, agent: Any, id: str, customer: str | None = "acme") -> str:
    """One turn of an agent of a customer; how it ended."""
    ref = await system.spawn(agent, id=id, labels={"customer": customer} if customer else None)
    await ref.followup("hi")
    await ref.wait_idle()
    return (await ends(system.store, id))[-1]


@pytest.mark.parametrize("bounds", [{"tokens": 100}, {"steps": 2}, {"cost": 100.0, "prices": {"scripted": (0, 1e6)}}])
async def test_c216_all_agents_with_a_label_share_a_budget_and_others_have_none(bounds: Any) -> None:
    store = MemoryStore()
    agent = make(answering(50))
    async with System.open(store, agents=[agent], plugins=[Budget(label="customer", **bounds)]) as system:
        limit = next(iter(bounds))
        assert await ask(system, agent, "1") == "completed"
        assert await ask(system, agent, "2", "other") == "completed"
        assert await ask(system, agent, "3", None) == "completed"
        assert await ask(system, agent, "4") == "completed"
        assert await ask(system, agent, "1") == limit, "since ever, whichever turn"
        assert await ask(system, agent, "5") == limit
        assert await ask(system, agent, "2", "other") == "completed"
    async with System.open(store, agents=[agent], plugins=[Budget(label="customer", **bounds)]) as system:
        assert await ask(system, agent, "6") == limit, "also after a restart"
        assert await ask(system, agent, "2", "other") == limit
        assert await ask(system, agent, "3", None) == "completed"
    await check(store)


async def test_c216_children_count_once_for_the_label_they_inherit() -> None:
    store = MemoryStore()
    child = Agent("child", model=answering(30), plugins=())
    calls = Reply.tools(("c1", "child", {"task": "t"}), usage=Usage(output=10))
    parent = make(scripted(calls, Reply.text("done", usage=Usage(output=10))), tools=[delegate(child)])
    async with System.open(store, agents=[parent]) as system:
        assert await ask(system, parent, "1") == "completed"
        assert (await system.usage(labels={"customer": "acme"})).total == 50
        assert (await (await system.get("1")).info()).usage.total == 50, "of its subtree"
    other = Agent("other", model=answering(1), plugins=())
    for tokens, expected in ((51, "completed"), (51, "tokens")):
        async with System.open(store, agents=[parent, other], plugins=[Budget(label="customer", tokens=tokens)]) as system:
            assert await ask(system, other, "2") == expected


async def test_c216_a_window_forgets_what_is_older(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    day = Budget(label="customer", tokens=100, window_s=86_400)
    agent = make(answering(50))
    async with System.open(store, agents=[agent], plugins=[day], now=trio_wall(WALL)) as system:
        assert await ask(system, agent, "1") == "completed"
        await trio.sleep(10 * 3600)
        assert await ask(system, agent, "2") == "completed"
        assert await ask(system, agent, "3") == "tokens"
        await trio.sleep(14 * 3600 - 10)
        assert await ask(system, agent, "3") == "tokens"
    async with System.open(store, agents=[agent], plugins=[day], now=trio_wall("2026-12-02T07:59Z")) as system:
        assert await ask(system, agent, "3") == "tokens", "a restart does not begin it anew"
        await trio.sleep(61)
        assert await ask(system, agent, "3") == "completed", "the first has left the window"
        assert await ask(system, agent, "3") == "tokens", "the second has not"


async def test_c216_a_window_of_one_agent_spans_its_turns(autojump_clock: MockClock) -> None:
    agent = make(answering(1), plugins=[Budget(steps=2, window_s=60)])
    store = MemoryStore()
    async with opened(agent, store, now=trio_wall(WALL)) as (_, ref):
        for _ in range(3):
            await ref.followup("hi")
        await ref.wait_idle()
    async with opened(agent, store, now=trio_wall("2026-12-01T08:00:30Z")) as (_, ref):
        await ref.followup("hi")
        await ref.wait_idle()
        await trio.sleep(31)
        await ref.followup("hi")
        await ref.wait_idle()
    assert await ends(store) == ["completed", "completed", "steps", "steps", "completed"]


@tool(replay="safe", mode="parallel")
async def look() -> str:
    """Look."""
    return "seen"


def looking(first: int, calls: int) -> ScriptedModel:
    """A model that looks that often, from the `first` call on; each answer costs 10."""
    cost = Usage(output=10)
    return scripted(
        *(Reply.tools((f"c{n}", "look", {}), usage=cost) for n in range(first, calls)), Reply.text("done", usage=cost)
    )


@pytest.mark.parametrize("bounds", [{"steps": 4}, {"tokens": 40}, {"cost": 40.0, "prices": {"scripted": (0, 1e6)}}])
@pytest.mark.parametrize("place", ["Q1", "A", "call(c1)", "res(c1)", "SS1.3"])
async def test_c216_after_a_restart_in_the_middle_what_was_spent_still_counts(bounds: Any, place: str) -> None:
    async def hi(ref: Any) -> None:
        await say(ref, "hi")

    first = await live(make(looking(0, 9), tools=[look], plugins=[Budget(**bounds)]), hi)
    calls = sum(isinstance(r.event, e.RequestSent) for r in first.records)
    assert calls == 4
    cut = first.upto(place, 2 if place in ("Q1", "A") else 1)
    store = await image(first.records, cut)
    agent = make(looking(2, 9), tools=[look], plugins=[Budget(**bounds)])
    async with opened(agent, store) as (_, ref):
        await ref.wait_idle()
        assert await ends(store) == [next(iter(bounds))]
        # A call that the crash cut is a step, and cost nothing that anybody knows of.
        sent = len(await events(store, e.RequestSent))
        assert sent == 4 + (place == "Q1" and "steps" not in bounds)


async def test_c216_after_a_restart_the_turns_time_goes_on(autojump_clock: MockClock) -> None:
    @tool
    async def slow() -> str:
        """Wait for an hour."""
        await trio.sleep(3600)
        return "done"

    def agent(*replies: Any) -> Any:
        return make(scripted(*replies), tools=[slow], plugins=[Budget(wall_s=60)])

    store = MemoryStore()
    async with opened(agent(Reply.tools(("c1", "slow", {}))), store, grace=0, now=trio_wall(WALL)) as (_, ref):
        await ref.followup("hi")
        await trio.sleep(1)
    async with opened(agent("done"), store, now=trio_wall("2026-12-01T08:02Z")) as (_, ref):
        await ref.wait_idle()
        assert await ends(store) == ["wall_s"]


@pytest.mark.parametrize("calls", [3, 4])
async def test_c216_after_a_restart_of_parent_and_child_both_count(calls: int) -> None:
    """The parent has sent 1, the child is in its second: with one more of each there are 4."""
    store = MemoryStore()

    def agents(*, parent: Any, child: Any) -> Any:
        below = Agent("child", model=child, tools=[look], plugins=())
        return make(parent, tools=[delegate(below)], plugins=[Budget(steps=calls)])

    first = agents(
        parent=scripted(Reply.tools(("c1", "child", {"task": "t"}))),
        child=scripted(Reply.tools(("c1", "look", {})), Reply.hang()),
    )
    async with opened(first, store, grace=0) as (_, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
    child = next(r.event.child for r in await records(store) if isinstance(r.event, e.ChildSpawned))
    second = agents(parent=scripted("done"), child=scripted("found"))
    async with opened(second, store) as (_, ref):
        await ref.wait_idle()
        # Three are spent (the one that was cut, too).
        assert await ends(store, child) == (["completed"] if calls == 4 else ["steps"])
        assert await ends(store) == ["steps"]


async def test_c216_after_a_restart_ended_children_count_by_their_logs_and_deleted_ones_by_their_parents() -> None:
    for delete in (False, True):
        store = MemoryStore()
        child = Agent("child", model=answering(30), plugins=())

        def agent(*replies: Any, child: Any = child) -> Any:
            return make(scripted(*replies), tools=[delegate(child), look], plugins=[Budget(tokens=60)])

        calls = Reply.tools(("c1", "child", {"task": "t"}), usage=Usage(output=10))
        async with opened(agent(calls, Reply.hang()), store, grace=0) as (system, ref):
            await ref.followup("hi")
            await wait_all_tasks_blocked()
            if delete:
                (below,) = [agent.id async for agent in system.agents() if agent.parent]
                await system.delete(below)
        last = Reply.tools(("c2", "look", {}), usage=Usage(output=20))
        async with opened(agent(last, "never"), store) as (_, ref):
            await ref.wait_idle()
            assert await ends(store) == ["tokens"], "10, 30 and 20"


async def test_c216_ledgers_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = Budget()
    agent = make(answering(1), plugins=[mine])
    async with System.open(":memory:", agents=[agent]) as system:
        for n in range(20):
            await ask(system, agent, str(n))
        assert not mine._ledgers  # pyright: ignore[reportPrivateUsage]
        assert not mine._held  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(budget, "KEEP", 5)
    shared = Budget(label="customer", tokens=10)
    async with System.open(":memory:", agents=[agent], plugins=[shared]) as system:
        for n in range(20):
            await ask(system, agent, str(n), f"customer {n}")
        assert len(shared._ledgers) <= 5  # pyright: ignore[reportPrivateUsage]
        for _ in range(9):
            assert await ask(system, agent, "0", "customer 0") == "completed"
        assert await ask(system, agent, "0", "customer 0") == "tokens", "what went came back from the index"


class CountsReads(FaultyStore):
    """Counts how often a log is read."""

    reads = 0

    def read(self, *args: Any, **options: Any) -> Any:
        self.reads += 1
        return super().read(*args, **options)


@pytest.mark.parametrize("mine", [Budget(tokens=1000), Budget(tokens=1000, label="customer")], ids=["turn", "label"])
async def test_c216_a_fresh_turn_reads_no_log(mine: Budget) -> None:
    store = CountsReads(MemoryStore())
    agent = make(answering(1), plugins=[mine])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a", labels={"customer": "acme"})
        await say(ref, "one")
        before = store.reads
        await say(ref, "two")
        assert store.reads == before


async def test_c216_each_agent_has_its_own_default_budget() -> None:
    child = Agent("child", model=answering(1))
    script = scripted(Reply.tools(("c1", "child", {"task": "t"})), "done")
    async with opened(Agent("demo", model=script, tools=[delegate(child)])) as (system, ref):
        runtime: Any = system._runtime  # pyright: ignore[reportPrivateUsage]
        await say(ref, "hi")
        assert await ends(system.store) == ["completed"]
        own = [[p for p in runtime.policies.of(agent) if isinstance(p, Budget)] for agent in runtime.definitions]
        assert len(own) == 2 and own[0] != own[1] and all(len(one) == 1 for one in own)
