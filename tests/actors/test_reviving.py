"""An agent whose log failed for want of space goes on by itself once the store takes writes again."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, make, order, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, System, ToolContext, delegate, tool
from callboard.actors.reviving import LONGEST_S, may_heal
from callboard.actors.testing import Reply, ScriptedModel, trio_wall
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import CommitFailed, FenceLost, StoreError, StoreFull
from callboard.storage.messages import Request
from callboard.storage.testing import FaultyStore

FULL = StoreFull("the disk is full; free some space")


def says(request: Request) -> Reply:
    """Works once, then tells."""
    return Reply.text("done") if request.messages[-1].results else Reply.tools(("w", "work", {}))


async def test_c276_a_turn_that_a_full_disk_cut_goes_on_without_anybody_asking(autojump_clock: MockClock) -> None:
    store, runs = FaultyStore(MemoryStore()), list[float]()

    @tool(replay="safe")
    async def work(ctx: ToolContext[Any]) -> str:
        """Work."""
        runs.append(trio.current_time())
        if len(runs) == 1:
            store.fail_next(FULL, times=7)
        return "worked"

    agent = make(ScriptedModel(says), tools=[work])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi", message_id="m")
        await wait_all_tasks_blocked()
        assert str(ref.status) == "failed"
        await trio.sleep(3 * LONGEST_S)
        assert str(ref.status) == "idle"
    await check(store)
    assert (await order(store)).endswith("Q1 TR1 F1{retry} H{resume} Q2 C* A call(w) res(w) SE SS1.2 Q1 C* A SE TE1{completed}")
    assert len(runs) == 2, "it does not run for every look"
    assert len(await events(store, e.TurnResume)) == 1


@pytest.mark.parametrize("error", [StoreError("the disk did not answer"), OSError(5, "Input/output error")])
async def test_c276_a_turn_that_is_cut_in_the_middle_by_any_failure_of_the_store_goes_on(
    autojump_clock: MockClock, error: Exception
) -> None:
    store = FaultyStore(MemoryStore())

    @tool(replay="safe")
    async def work() -> str:
        """Works long."""
        await trio.sleep(10)
        return "worked"

    agent = make(ScriptedModel(says), tools=[work])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await trio.sleep(1)
        store.fail_next(error)
        with pytest.raises(CommitFailed):
            await ref.inject("beside it")
        await trio.sleep(3 * LONGEST_S)
        assert (str(ref.status), (await order(store))[-14:]) == ("idle", "TE1{completed}")
    await check(store)


async def test_c276_an_exit_that_cannot_read_what_it_needs_is_its_agents_misfortune_and_heals(autojump_clock: MockClock) -> None:
    class Unread(MemoryStore):
        """The log of the child cannot be read for a while."""

        until = 0.0

        def read(self, agent: str, *args: Any, **options: Any) -> Any:
            if agent != "a" and trio.current_time() < self.until:
                raise StoreError("the disk did not answer")
            return super().read(agent, *args, **options)

    def fails_at_first(request: Request) -> Reply:
        store.until = store.until or trio.current_time() + 50
        return Reply.fail("SERVER_ERROR", "not now") if trio.current_time() < store.until else Reply.text("done")

    store, child = Unread(), make(ScriptedModel(fails_at_first), name="worker")
    replies = scripted(Reply.tools(("w", "worker", {"task": "go"})), "all is done")
    agent = make(replies, tools=[delegate(child, restarts=(1, 60))])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        assert (await ref.ask("begin")).text == "all is done"
        await trio.sleep(10 * LONGEST_S)
        assert not any(head.summary.attention for head in await store.agents())
        assert [end.reason.kind for end in await events(store, e.TurnEnd, "a/1.1.w")] == ["completed"]
    await check(store)


async def test_c276_many_wait_for_the_first_that_can_write(autojump_clock: MockClock) -> None:
    store, gate = FaultyStore(MemoryStore()), trio.Event()

    @tool(replay="safe")
    async def work() -> str:
        """Work, once the test says so."""
        await gate.wait()
        return "worked"

    agent = make(ScriptedModel(says), tools=[work])
    async with System.open(store, agents=[agent]) as system:
        refs = [await system.spawn(agent, id=f"a{n}") for n in range(40)]
        for ref in refs:
            await ref.followup("hi")
        await wait_all_tasks_blocked()
        store.fail_next(FULL, times=60)
        gate.set()
        await trio.sleep(1)
        assert {ref.status for ref in refs} == {"failed"}
        await trio.sleep(60 * LONGEST_S)
        assert {ref.status for ref in refs} == {"idle"}
        assert not any(head.summary.attention for head in await store.agents())
    await check(store)


async def test_an_idle_agent_that_failed_is_left_alone(autojump_clock: MockClock) -> None:
    store, agent = FaultyStore(MemoryStore()), make(scripted("hello"))
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        store.fail_next(FULL)
        with pytest.raises(StoreFull):
            await ref.inject("aside")
        opened = system.statistics()["opened"]
        await trio.sleep(10 * LONGEST_S)
        assert (ref.status, system.statistics()["opened"]) == ("failed", opened)
        assert (await ref.ask("hi")).text == "hello"


async def test_the_report_says_what_fails_now(autojump_clock: MockClock) -> None:
    store, agent = MemoryStore(), make(ScriptedModel(lambda request: Reply.hang()))
    async with System.open(store, agents=[agent], grace=0) as system:
        for id in ("a", "b", "c"):
            await (await system.spawn(agent, id=id)).followup("hi")
    async with System.open(store, agents=[agent.replace(name="other")]) as system:
        assert sorted(system.report.failed) == ["a", "b", "c"] and not system.report.ok
        await system.delete("c")
        system.define(agent.replace(model=scripted("fine", "fine")))
        await trio.sleep(1)
        assert system.report.ok and system.report.failed == {}
        assert sorted(system.report.later) == ["a", "b"]


def test_only_what_the_store_may_heal_is_tried_again() -> None:
    fenced, broken, own = CommitFailed("x"), CommitFailed("x"), CommitFailed("the end of a turn could not be written")
    fenced.__cause__, broken.__cause__ = FenceLost("another"), StoreError("I/O")
    assert [may_heal(error) for error in (FULL, broken, fenced, own)] == [True, True, False, False]


async def test_one_that_cannot_be_read_holds_up_nobody_and_is_tried_ever_more_rarely(autojump_clock: MockClock) -> None:
    tried: list[float] = []

    class Torn(FaultyStore):
        async def head(self, agent: str) -> Any:
            if agent == "b" and torn:
                tried.append(trio.current_time())
                raise StoreError("a page of it is torn")
            return await super().head(agent)

    torn: list[bool] = []
    store, gate = Torn(MemoryStore()), trio.Event()

    @tool(replay="safe")
    async def work() -> str:
        """Work, once the test says so."""
        await gate.wait()
        return "worked"

    agent = make(ScriptedModel(says), tools=[work])
    async with System.open(store, agents=[agent]) as system:
        refs = [await system.spawn(agent, id=id) for id in "abc"]
        for ref in refs:
            await ref.followup("hi")
        await wait_all_tasks_blocked()
        torn.append(True)
        store.fail_next(FULL, times=3)
        gate.set()
        await trio.sleep(100 * LONGEST_S)
        assert [ref.status for ref in refs] == ["idle", "failed", "idle"]
        assert len(tried) < 120


async def test_an_agent_that_is_looked_at_again_right_now_is_counted(autojump_clock: MockClock) -> None:
    class Slow(FaultyStore):
        async def head(self, agent: str) -> Any:
            if slow:
                await trio.sleep(10)
            return await super().head(agent)

    slow: list[bool] = []
    store, gate = Slow(MemoryStore()), trio.Event()

    @tool(replay="safe")
    async def work() -> str:
        """Work, once the test says so."""
        await gate.wait()
        return "worked"

    agent = make(ScriptedModel(says), tools=[work])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        slow.append(True)
        store.fail_next(FULL)
        gate.set()
        await trio.sleep(5)
        assert (ref.status, system.statistics()["reviving"]) == ("failed", 1)
        await trio.sleep(60)
        assert (ref.status, system.statistics()["reviving"]) == ("idle", 0)


@pytest.mark.parametrize("times", [1, 3])
async def test_c212_a_task_whose_pause_ends_on_a_full_disk_is_not_forgotten(autojump_clock: MockClock, times: int) -> None:
    """On disk it still waits for its time, and nothing else is to be done: the clock has to be told of it again."""
    store = FaultyStore(MemoryStore())
    worker = Agent("worker", model=scripted(Reply.fail("BAD_REQUEST"), *["found"] * 5), plugins=())
    leads = scripted(Reply.tools(("c1", "worker", {"task": "go"})), "sent", *["heard"] * 5)
    agent = make(leads, tools=[delegate(worker, background=True, restarts=(3, 600))])
    async with System.open(store, agents=[agent], now=trio_wall("2026-12-01T08:00Z")) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("hi")
        await trio.sleep(0.5)
        assert len(await events(store, e.TurnEnd, "a/1.1.c1")) == 1, "and the next try comes in half a second"
        store.fail_next(FULL, times=times)
        await trio.sleep(120)
        assert (ref.status, system.statistics()["reviving"]) == ("idle", 0)
    assert [e.kind_of(event.reason) for event in await events(store, e.ChildEnded)] == ["completed"]
    await check(store)
