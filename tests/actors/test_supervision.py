"""Section 16, restarts: the task of a child that failed is put again, in the same child, until it is done or failed too often."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import trio
from helpers import check, events, make, order, records, say, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, LimitReached, Plugin, Reject, System, delegate
from callboard.actors.testing import Reply, ScriptedModel, every_crash, trio_wall
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import UsageError
from callboard.storage.messages import Request
from callboard.storage.store import Store

CHILD = "a/1.1.c1"
FAILED = "Q1 C* F1{raise} SE"
WALL = "2026-12-01T08:00Z"


def worker(*replies: Any, **options: Any) -> Agent[Any, Any]:
    """The child's definition."""
    return Agent("worker", model=scripted(*replies), plugins=()).replace(**options)


def parent(child: Agent[Any, Any], *replies: Any, restarts: Any = (3, 60), background: bool = False) -> Agent[Any, Any]:
    """A parent whose delegation is supervised."""
    tool = delegate(child, restarts=restarts, background=background)
    return make(scripted(Reply.tools(("c1", "worker", {"task": "go"})), *replies), tools=[tool])


async def run(agent: Agent[Any, Any], store: MemoryStore) -> None:
    """One turn of the parent, until nothing moves."""
    async with System.open(store, agents=[agent], now=trio_wall(WALL)) as system:
        ref = await system.spawn(agent, id="a")
        await say(ref, "hi")
        await trio.sleep(600)
    await check(store)


def down(times: int, then: str = "done") -> list[Any]:
    """A model that fails so often."""
    return [*(Reply.fail("SERVER", status=500) for _ in range(times)), then]


async def test_c212_a_failed_task_is_put_again_in_the_same_child(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    await run(parent(worker(*down(2)), "thanks"), store)
    assert await order(store, CHILD) == (
        "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 F1{raise} SE TE1{error} put[t](go) "
        "TS2 claim(go) SS2.1 U(go) Q1 F1{raise} SE TE2{error} put[t](go) "
        "TS3 claim(go) SS3.1 U(go) Q1 C* A SE TE3{completed}"
    )
    assert await order(store) == (
        "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A call(c1) born died{completed} res(c1) SE "
        "SS1.2 Q1 C* A SE TE1{completed}"
    )
    assert [result.error for result in await events(store, e.ToolResult)] == [None]
    times = {type(record.event): record.time for record in await records(store, CHILD)}
    puts = [r for r in await records(store, CHILD) if isinstance(r.event, e.InboxPut)]
    pauses = [r.event.not_before - r.time for r in puts if isinstance(r.event, e.InboxPut) and r.event.not_before]
    assert pauses == [1000, 2000] and times[e.TurnEnd] - puts[0].time == pytest.approx(3000, abs=10)


async def test_c212_past_the_limit_the_parent_hears_of_it_once(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    await run(parent(worker(*down(9)), "sad", restarts=(2, 60)), store)
    (result,) = await events(store, e.ToolResult)
    assert result.error == "CHILD_ERROR"
    assert len(await events(store, e.TurnEnd, CHILD)) == 3
    (ended,) = await events(store, e.ChildEnded)
    assert isinstance(ended.reason, e.Errored)


async def test_c212_restarts_long_ago_do_not_count(autojump_clock: MockClock) -> None:
    store = MemoryStore()

    class Slow(Plugin):
        async def assemble(self, ctx: Any, assembly: Any, next: Any) -> Any:
            await trio.sleep(40)
            return await next(assembly)

    await run(parent(worker(*down(4)).replace(plugins=[Slow()]), "thanks", restarts=(1, 30)), store)
    assert len(await events(store, e.TurnEnd, CHILD)) == 5
    assert [e.kind_of(event.reason) for event in await events(store, e.ChildEnded)] == ["completed"]


class Stops(Plugin):
    """Ends the child's turns in one way, so many times."""

    def __init__(self, times: int, how: Callable[[], Any]) -> None:
        self.left, self.how = times, how

    async def pre_step(self, ctx: Any, boundary: Any, next: Any) -> Any:
        self.left -= 1
        return await next(boundary) if self.left < 0 else self.how()


def limit() -> Any:
    raise LimitReached("steps", "too many")


@pytest.mark.parametrize(
    ("stops", "replies", "error", "turns"),
    [
        (Stops(1, limit), ["done"], None, 2),
        (Stops(1, lambda: Reject("no")), ["done"], "CHILD_BLOCKED", 1),
        (Stops(0, limit), [Reply.max_tokens("half"), "done"], "CHILD_MAX_TOKENS", 1),
    ],
)
async def test_c212_a_limit_is_a_failure_and_what_repeating_does_not_change_is_none(
    autojump_clock: MockClock, stops: Plugin, replies: list[Any], error: str | None, turns: int
) -> None:
    store = MemoryStore()
    await run(parent(worker(*replies, plugins=[stops]), "thanks"), store)
    assert [result.error for result in await events(store, e.ToolResult)] == [error]
    assert len(await events(store, e.TurnEnd, CHILD)) == turns


async def test_c212_a_cancelled_child_is_not_restarted(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    agent = parent(worker(Reply.hang("I am")), "sad")
    async with System.open(store, agents=[agent], now=trio_wall(WALL)) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await (await system.get(CHILD)).cancel()
        await ref.wait_idle()
    assert [result.error for result in await events(store, e.ToolResult)] == ["CHILD_ABORTED"]
    assert len(await events(store, e.InboxPut, CHILD)) == 1


async def test_c212_an_interrupted_task_is_put_again(autojump_clock: MockClock) -> None:
    store, image = MemoryStore(), MemoryStore()
    agent = parent(worker(Reply.hang("I am"), recovery="end"), "thanks")
    async with System.open(store, agents=[agent], now=trio_wall(WALL)) as system:
        await (await system.spawn(agent, id="a")).followup("hi")
        await wait_all_tasks_blocked()
        image = store.copy()
    agent = make(scripted("thanks"), tools=[delegate(worker("done", recovery="end"), restarts=(3, 60))])
    async with System.open(image, agents=[agent], now=trio_wall(WALL)) as system:
        await (await system.get("a")).wait_idle()
    await check(image)
    assert [e.kind_of(end.reason) for end in await events(image, e.TurnEnd, CHILD)] == ["interrupted", "completed"]
    assert [result.error for result in await events(image, e.ToolResult)] == [None]


async def test_c212_a_cancel_in_the_pause_ends_the_child(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    agent = parent(worker(*down(9)), "sad")
    async with System.open(store, agents=[agent], now=trio_wall(WALL)) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await trio.sleep(0.5)
        child = await system.get(CHILD)
        assert child.status == "idle" and [wait.kind for wait in (await child.info()).waits] == ["timer"]
        await ref.cancel()
        await ref.wait_idle()
        await trio.sleep(600)
    await check(store)
    assert (await order(store, CHILD)).endswith("TE1{error} put[t](go) drop(go){cancelled}")
    (ended,) = await events(store, e.ChildEnded)
    assert isinstance(ended.reason, e.Aborted)


async def test_c212_siblings_go_on_and_the_background_is_supervised_too(autojump_clock: MockClock) -> None:
    store, failed = MemoryStore(), Counter[str]()

    def says(request: Request) -> Reply:
        text = request.messages[-1].text
        failed[text] += 1
        return Reply.fail("SERVER", status=500) if text == "bad" and failed[text] < 3 else Reply.text(f"{text} done")

    def leads(request: Request) -> Reply:
        texts = [message.text for message in request.messages]
        if len(request.messages) > 1:
            return Reply.text(f"heard {texts[-1]}")
        return Reply.tools(*((task, "worker", {"task": task}) for task in ("bad", "good")))

    child = Agent("worker", model=ScriptedModel(says), plugins=())
    lead = make(ScriptedModel(leads), tools=[delegate(child, restarts=(3, 60), background=True)])
    await run(lead, store)
    heard = [put.message.text for put in await events(store, e.InboxPut)]
    assert heard == ["hi", "good done", "bad done"] and failed == {"good": 1, "bad": 3}
    assert [e.kind_of(end.reason) for end in await events(store, e.ChildEnded)] == ["completed", "completed"]


@pytest.mark.parametrize("fails", [2, 9])
@pytest.mark.parametrize("background", [False, True])
async def test_c212_restarts_survive_every_crash(autojump_clock: MockClock, fails: int, background: bool) -> None:
    wall = trio_wall(WALL)

    def says(request: Request) -> Reply:
        tries = sum(message.text == "go" for message in request.messages)
        return Reply.fail("SERVER", status=500) if tries <= fails else Reply.text("done")

    def leads(request: Request) -> Reply:
        if any(message.results for message in request.messages):
            return Reply.text(request.messages[-1].text or next(iter(request.messages[-1].results.values())))
        return Reply.tools(("c1", "worker", {"task": "go"}))

    child = Agent("worker", model=ScriptedModel(says), plugins=())
    lead = make(ScriptedModel(leads), tools=[delegate(child, restarts=(3, 60), background=background)])

    async def scenario(store: Store) -> str:
        async with System.open(store, agents=[lead], now=wall) as system:
            ref = await system.spawn(lead, id="a")
            await ref.ask("hi", message_id="m")
            await trio.sleep(600)
            return (await ref.messages())[-1].text

    crashes = 0
    async for crash in every_crash(scenario):
        crashes += 1
        (ended,) = await events(crash.store, e.ChildEnded)
        assert e.kind_of(ended.reason) == ("completed" if fails == 2 else "error"), crash
        assert crash.result.startswith("done" if fails == 2 else ("a/1.1.c1 ended" if background else "The child a/1.1.c1")), (
            crash
        )
        assert len(await events(crash.store, e.InboxPut, CHILD)) == min(fails, 3) + 1
    assert crashes > 6


def test_a_policy_that_makes_no_sense_is_refused() -> None:
    for restarts in ((-1, 60), (3, 0), (1000, 60), "often"):
        with pytest.raises(UsageError, match="pair"):
            delegate(worker(), restarts=restarts)  # type: ignore[arg-type]
