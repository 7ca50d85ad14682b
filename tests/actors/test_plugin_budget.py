"""The boxed `Budget` (C216): what is refused, what waits, and what counts together, alone and side by side."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
from helpers import check, events, make, opened, order, say, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, Plugin, System, delegate, tool
from callboard.actors.answers import Boundary, Enter, Reject
from callboard.actors.plugins import Budget
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel, trio_wall
from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import UsageError
from callboard.storage.messages import Chunk, Request, Usage

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi)"
"""How every turn here begins."""


def costing(*tokens: int, calls: int = 0) -> ScriptedModel:
    """A model whose answers cost so much; the first `calls` of them call `look`."""
    usages = [Usage(output=n) for n in tokens]
    return scripted(
        *(Reply.tools((f"c{n}", "look", {}), usage=usage) for n, usage in enumerate(usages[:calls])),
        *(Reply.text("done", usage=usage) for usage in usages[calls:]),
    )


@tool(mode="parallel", replay="safe")
async def look() -> str:
    """Look."""
    return "seen"


def limit_of(end: e.TurnEnd) -> str:
    """The limit that a turn ended with, or how else it ended."""
    return end.reason.limit if isinstance(end.reason, e.Limited) else end.reason.kind


async def limits(store: Any, agent: str = "a") -> list[str]:
    """How the turns of an agent ended."""
    return [limit_of(end) for end in await events(store, e.TurnEnd, agent)]


@pytest.mark.parametrize(
    ("budget", "limit"),
    [
        (Budget(steps=0), "steps"),
        (Budget(tokens=0), "tokens"),
        (Budget(cost=0, prices={"scripted": (1, 1)}), "cost"),
        (Budget(wall_s=0), "wall_s"),
        (Budget(steps=0, label="customer"), "steps"),
        (Budget(tokens=0, window_s=60), "tokens"),
    ],
    ids=repr,
)
async def test_c216_none_is_none_and_not_unlimited(budget: Budget, limit: str) -> None:
    model = costing(1)
    async with System.open(MemoryStore(), agents=[]) as system:
        agent = make(model, plugins=[budget])
        ref = await system.spawn(agent, id="a", labels={"customer": "acme"})
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} SE TE1{{limit}}", "no header, no request"
        assert await limits(system.store) == [limit]
        await check(system.store)
    assert model.requests == []


async def test_c216_steps_are_model_calls_of_one_turn() -> None:
    agent = make(costing(1, 1, 1, 1, 1, calls=4), tools=[look], plugins=[Budget(steps=2)])
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        await say(ref, "again")
        once = "Q1 C* A call({0}) res({0}) SE"
        assert await order(system.store) == (
            f"{OPEN} H{{initial}} X {once.format('c0')} SS1.2 {once.format('c1')} SS1.3 SE TE1{{limit}} "
            f"put[t](again) TS2 claim(again) SS2.1 U(again) {once.format('c2')} SS2.2 {once.format('c3')} SS2.3 SE TE2{{limit}}"
        )


async def test_c216_failed_attempts_count() -> None:
    from callboard.actors.plugins import Retry

    model = scripted(Reply.fail("SERVER"), Reply.fail("SERVER"), "done")
    agent = make(model, plugins=[Retry(first_s=0, jitter=0), Budget(steps=2)])
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} H{{initial}} X Q1 F1{{retry}} Q2 F2{{retry}} SE TE1{{limit}}"


async def test_c216_tokens_and_what_a_call_may_answer_with() -> None:
    agent = make(costing(60, 10, calls=1), tools=[look], plugins=[Budget(tokens=100)], max_tokens=40)
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        assert await limits(system.store) == ["completed"], "60 spent and 40 to come are 100"
    agent = make(costing(61, 10, calls=1), tools=[look], plugins=[Budget(tokens=100)], max_tokens=40)
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Limited)
        text = "the budget of 100 tokens has no room for this call: 61 are spent, and it may take 40"
        assert (end.reason.limit, end.reason.text) == ("tokens", text)


async def test_c216_money_by_the_price_of_the_model() -> None:
    prices = {"scripted": (100.0, 1.0), "scripted:demo": (0.0, 1_000_000.0)}
    for bound, expected in ((3.0, "completed"), (2.0, "cost")):
        agent = make(costing(2, 1, calls=1), tools=[look], plugins=[Budget(cost=bound, prices=prices)])
        async with opened(agent) as (system, ref):
            await say(ref, "hi")
            assert await limits(system.store) == [expected]


async def test_c216_a_model_without_a_price_is_named() -> None:
    agent = make(costing(1, 1, calls=1), plugins=[Budget(cost=1, prices={"openai": (1, 1)})], max_tokens=5)
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        (end,) = await events(system.store, e.TurnEnd)
        assert isinstance(end.reason, e.Errored) and "no price for scripted:demo" in end.reason.error.message


async def test_c216_wall_time_is_looked_at_before_each_call(autojump_clock: MockClock) -> None:
    @tool
    async def slow() -> str:
        """Take ten seconds."""
        await trio.sleep(10)
        return "done"

    model = scripted(*(Reply.tools((f"c{n}", "slow", {})) for n in range(5)), "done")
    agent = make(model, tools=[slow], plugins=[Budget(wall_s=25)])
    async with opened(agent, now=trio_wall("2026-12-01T08:00Z")) as (system, ref):
        await say(ref, "hi")
        assert await limits(system.store) == ["wall_s"]
        assert len(await events(system.store, e.RequestSent)) == 3


# -- trees


def tree(budget: Budget, *, parent: Any = None, children: Any, calls: int = 1, **options: Any) -> Agent[Any, Any]:
    """A parent with this budget, which delegates `calls` tasks at once; the children have no plugins of their own."""
    child = Agent("child", model=children, plugins=(), **options)
    asks = Reply.tools(*((f"c{n}", "child", {"task": f"task {n}"}) for n in range(calls)), usage=Usage(output=10))
    return make(parent or scripted(asks, "done"), tools=[delegate(child)], plugins=[budget])


async def test_c216_a_tree_spends_together_and_the_childs_first_request_is_refused() -> None:
    children = costing(1)
    async with opened(tree(Budget(steps=1), children=children)) as (system, ref):
        await say(ref, "hi")
        (child,) = [agent.id async for agent in system.agents() if agent.parent]
        assert (await order(system.store, child)).endswith("SS1.1 U(task 0) SE TE1{limit}")
        assert [r.error for r in await events(system.store, e.ToolResult)] == ["CHILD_LIMIT"]
        assert await limits(system.store) == ["steps"], "nor is there room for another call of the parent"
    assert children.requests == []


async def test_c216_alone_each_spends_for_itself() -> None:
    async with opened(tree(Budget(steps=1, tree=False), children=costing(1))) as (system, ref):
        await say(ref, "hi")
        assert [r.error for r in await events(system.store, e.ToolResult)] == [None]
        assert await limits(system.store) == ["steps"]


async def test_c216_alone_means_alone_also_for_those_who_share_the_plugin() -> None:
    budget = Budget(steps=2, tree=False)
    child = Agent("child", model=costing(1), plugins=[budget])
    script = scripted(Reply.tools(("c1", "child", {"task": "task"})), "done")
    async with opened(make(script, tools=[delegate(child)], plugins=[budget])) as (system, ref):
        await say(ref, "hi")
        assert await limits(system.store) == ["completed"], "the child's call is none of the parent's two"


async def test_c216_a_budget_of_the_system_is_one_for_each_tree() -> None:
    agent = tree(Budget(steps=99), children=costing(1))
    store = MemoryStore()
    async with System.open(store, agents=[agent], plugins=[Budget(steps=2)]) as system:
        ref = await system.spawn(agent, id="a")
        await say(ref, "hi")
        assert await limits(store) == ["steps"], "one call of the parent, one of the child"
    await check(store)


class Slow:
    """Children that answer one after the other, when told to; and how many run at once."""

    def __init__(self, tokens: int) -> None:
        self.tokens, self.running, self.most, self.go = tokens, 0, 0, trio.Event()

    def model(self) -> ScriptedModel:
        """Their model."""
        play = self

        class Paced(ScriptedModel):
            async def stream(self, request: Request) -> AsyncIterator[Chunk]:
                play.running += 1
                play.most = max(play.most, play.running)
                await play.go.wait()
                yield c.usage(output=play.tokens)
                play.running -= 1
                yield c.finish("stop")

        return Paced([])


@pytest.mark.parametrize(("used", "ends"), [(10, ["completed"] * 4), (100, ["completed", "completed", "tokens", "tokens"])])
async def test_c216_side_by_side_they_wait_for_each_other_and_never_overspend(used: int, ends: list[str]) -> None:
    slow = Slow(used)
    agent = tree(Budget(tokens=250), children=slow.model(), calls=4, max_tokens=100)
    async with opened(agent) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        assert slow.running == 2, "10 are spent, 200 are reserved: no third fits beside them"
        slow.go.set()
        await ref.wait_idle()
        children = [agent.id async for agent in system.agents() if agent.parent]
        assert sorted([limit for child in children for limit in await limits(system.store, child)]) == ends
        assert slow.most == 2
        assert sum([(await (await system.get(child)).info()).usage.total for child in children]) <= 240


async def test_c216_who_waits_can_be_cancelled_and_gives_back_nothing_it_had_not() -> None:
    slow = Slow(10)
    agent = tree(Budget(tokens=150), children=slow.model(), calls=3, max_tokens=100)
    async with opened(agent) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        assert slow.running == 1
        await ref.cancel()
        await ref.wait_idle()
        assert await limits(system.store) == ["aborted"]


class Cached(Plugin):
    """Answers without a model, from further out."""

    async def stream(
        self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]]
    ) -> AsyncIterator[Chunk]:
        if ctx.id == "a":
            for chunk in Reply.tools(("c1", "child", {"task": "t"})).chunks_for(request) if ctx.step == 1 else ():
                yield chunk
            return
        async for chunk in next(request):
            yield chunk


async def test_c216_a_call_that_was_never_made_keeps_nobody_waiting() -> None:
    child = Agent("child", model=costing(1), plugins=(), max_tokens=100)
    agent = make(scripted(), tools=[delegate(child)], plugins=[Cached(), Budget(tokens=100)], max_tokens=100)
    async with opened(agent) as (system, ref):
        with trio.fail_after(60):
            await say(ref, "hi")
        assert [r.error for r in await events(system.store, e.ToolResult)] == [None]


class Asks(Plugin):
    """Asks a model beside the dialogue before each step."""

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        await ctx.model("Is that so?")
        return await next(boundary)


async def test_c216_a_plugins_own_calls_count() -> None:
    model = costing(30, 30, 30, 30)
    async with opened(make(model, plugins=[Asks(), Budget(tokens=40)])) as (system, ref):
        await say(ref, "hi")
        await say(ref, "again")
        assert await limits(system.store) == ["completed", "completed"], "30 and at least 1 to come"
    async with opened(make(costing(40, 30), plugins=[Asks(), Budget(tokens=40)])) as (system, ref):
        await say(ref, "hi")
        assert await limits(system.store) == ["tokens"]


@pytest.mark.parametrize(
    "wrong",
    [{"steps": -1}, {"tokens": -1}, {"cost": 1}, {"window_s": -1}, {"wall_s": 1, "label": "x"}, {"wall_s": 1, "window_s": 5}],
)
def test_bounds_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Budget(**wrong)


def test_a_budget_of_turns_is_generous_and_one_of_a_label_has_no_steps() -> None:
    assert repr(Budget()) == "Budget(steps=100)"
    assert repr(Budget(steps=None)) == "Budget()"
    assert repr(Budget(tokens=5, label="customer")) == "Budget(tokens=5)"
    assert repr(Budget(tokens=5, window_s=60)) == "Budget(tokens=5)"
