"""A parent that could not be opened when its child ended hears of it once when it comes back, however it comes back."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, make, order, records, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, System, ToolContext, delegate, tool
from callboard.actors.testing import Reply, ScriptedModel, every_crash, trio_wall
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Request
from callboard.storage.store import Store
from callboard.storage.testing import FaultyStore

CHILD = "a/1.1.c1"
WALL = "2026-12-01T08:00Z"


def worker(*replies: Any, **options: Any) -> Agent[Any, Any]:
    """The child's definition."""
    return Agent("worker", model=scripted(*replies), plugins=()).replace(**options)


def parent(child: Agent[Any, Any], *replies: Any, **options: Any) -> Agent[Any, Any]:
    """A parent whose child works in the background."""
    return make(scripted(*replies), tools=[delegate(child, background=True, **options)])


async def begin(store: MemoryStore, **options: Any) -> None:
    """The parent has sent its child to work and is at rest; the child's model hangs when the system closes."""
    agent = parent(worker(Reply.hang("so far")), Reply.tools(("c1", "worker", {"task": "go"})), "sent", **options)
    async with System.open(store, agents=[agent], grace=0, now=trio_wall(WALL)) as system:
        await (await system.spawn(agent, id="a")).ask("hi")
        await wait_all_tasks_blocked()
    await check(store)


async def ends(store: MemoryStore) -> list[str]:
    """The terminal messages that the parent got."""
    return [put.message.text for put in await events(store, e.InboxPut) if put.message.id.endswith("#end")]


@pytest.mark.parametrize("how", ["start", "define"])
async def test_c211_a_parent_that_comes_back_gets_the_end_of_its_child(autojump_clock: MockClock, how: str) -> None:
    """With a new start, or with its definition: nobody has to ask for it."""
    store, child = MemoryStore(), worker("found")
    await begin(store)
    async with System.open(store, agents=[child]) as system:
        await (await system.get(CHILD)).wait_idle()
        await trio.sleep(100)
        assert await ends(store) == [] and await events(store, e.ChildEnded) == []
        if how == "define":
            system.define(parent(child, "thanks"))
            await trio.sleep(100)
    if how == "start":
        async with System.open(store, agents=[parent(child, "thanks")]) as system:
            await (await system.get("a")).wait_idle()
    await check(store)
    assert await ends(store) == ["found"]
    (ended,) = await events(store, e.ChildEnded)
    assert ended.usage.total > 0
    assert (await order(store)).endswith(
        "died{completed} put[s](found) TS2 claim(found) SS2.1 U(found) H{resume} Q1 C* A SE TE2{completed}"
    )
    async with System.open(store, agents=[parent(child)]) as system:
        await wait_all_tasks_blocked()
    assert len(await ends(store)) == 1


@pytest.mark.parametrize("how", ["start", "define"])
async def test_c211_the_end_is_told_also_while_the_child_is_at_something_else(autojump_clock: MockClock, how: str) -> None:
    """Somebody has written to the child since, and the turn that is open then is not the task's."""
    store, child = MemoryStore(), worker("found", Reply.hang("well"))
    await begin(store)
    async with System.open(store, agents=[child], grace=0) as system:
        ref = await system.get(CHILD)
        await ref.wait_idle()
        await ref.followup("what else?")
        await wait_all_tasks_blocked()
        assert ref.status == "running" and await ends(store) == []
        if how == "define":
            system.define(parent(child, "thanks"))
            await trio.sleep(100)
    if how == "start":
        async with System.open(store, agents=[parent(worker(Reply.hang("well")), "thanks")], grace=0):
            await trio.sleep(100)
    await check(store)
    assert await ends(store) == ["found"] and len(await events(store, e.ChildEnded)) == 1


async def test_c211_a_child_that_was_deleted_meanwhile_has_ended() -> None:
    store = MemoryStore()
    await begin(store)
    async with System.open(store, agents=[worker(Reply.hang())], grace=0) as system:
        await system.delete(CHILD)
    async with System.open(store, agents=[parent(worker(), "sad")]) as system:
        await (await system.get("a")).wait_idle()
    await check(store)
    assert await ends(store) == [f"{CHILD} was aborted, cause disposed"]
    assert len(await events(store, e.ChildEnded)) == 1


async def test_c211_a_child_whose_task_was_dropped_before_it_began_tells_its_parent(autojump_clock: MockClock) -> None:
    """A cancel from outside in the pause of a supervisor, and a delete: there is no turn whose end would tell."""
    for act in ("cancel", "delete"):
        store = MemoryStore()
        agent = parent(
            worker(Reply.fail("BAD_REQUEST")), Reply.tools(("c1", "worker", {"task": "go"})), "sent", "sad", restarts=(3, 600)
        )
        async with System.open(store, agents=[agent], now=trio_wall(WALL)) as system:
            ref = await system.spawn(agent, id="a")
            await ref.ask("hi")
            await wait_all_tasks_blocked()
            if act == "cancel":
                await (await system.get(CHILD)).cancel()
            else:
                await system.delete(CHILD)
            await wait_all_tasks_blocked()
            assert (await ref.info()).turn == 2
        await check(store)
        assert len(await ends(store)) == len(await events(store, e.ChildEnded)) == 1


async def test_c211_a_task_that_a_cancel_drops_while_its_failed_turn_is_written_is_told(autojump_clock: MockClock) -> None:
    """The turn's end is appended and says nothing to the parent, since the task was to be put again."""
    store, fails = FaultyStore(MemoryStore()), trio.Event()
    child = worker(Reply.wait(fails, Reply.fail("BAD_REQUEST")))
    agent = parent(child, Reply.tools(("c1", "worker", {"task": "go"})), "sent", "sad", restarts=(3, 600))
    async with System.open(store, agents=[agent], now=trio_wall(WALL)) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("hi")
        await wait_all_tasks_blocked()
        store.hold()
        fails.set()
        await wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.cancel)
            await wait_all_tasks_blocked()
            store.release()
        await trio.sleep(1000)
    await check(store)
    assert len(await events(store, e.ChildEnded)) == 1


@pytest.mark.parametrize("background", [True, False])
@pytest.mark.parametrize(
    ("wait_s", "replies", "away", "all_ends"),
    [
        (100, [Reply.fail("BAD_REQUEST"), "found"], ["error", "completed"], ["error", "completed"]),
        (0, [Reply.fail("BAD_REQUEST")], ["error"], ["error", "completed"]),
        (100, [Reply.fail("BAD_REQUEST")] * 4, ["error"] * 4, ["error"] * 4),
    ],
    ids=["while it is away", "when it is back", "in vain"],
)
async def test_c212_a_failed_child_is_put_again_also_without_its_parent(
    autojump_clock: MockClock, background: bool, wait_s: float, replies: list[Any], away: list[str], all_ends: list[str]
) -> None:
    store = MemoryStore()
    failing, well = worker(*replies), worker("found")
    tool: dict[str, Any] = {"background": background, "restarts": (3, 600)}
    first = make(scripted(Reply.tools(("c1", "worker", {"task": "go"})), "sent"), tools=[delegate(worker(Reply.hang()), **tool)])
    async with System.open(store, agents=[first], grace=0, now=trio_wall(WALL)) as system:
        await (await system.spawn(first, id="a")).followup("hi")
        await wait_all_tasks_blocked()
    async with System.open(store, agents=[failing], now=trio_wall(WALL)) as system:
        await (await system.get(CHILD)).wait_idle()
        await trio.sleep(wait_s)
        assert list(system.report.failed) == ["a"]
    assert [e.kind_of(event.reason) for event in await events(store, e.TurnEnd, CHILD)] == away
    assert await events(store, e.ChildEnded) == []
    last = make(scripted("thanks"), tools=[delegate(well, **tool)])
    async with System.open(store, agents=[last], now=trio_wall(WALL)) as system:
        await trio.sleep(100)
        assert system.report.ok
    await check(store)
    assert [e.kind_of(event.reason) for event in await events(store, e.TurnEnd, CHILD)] == all_ends
    assert [e.kind_of(event.reason) for event in await events(store, e.ChildEnded)] == all_ends[-1:]
    assert [text == "found" for text in await ends(store)] == ([all_ends[-1] == "completed"] if background else [])
    assert not any(head.summary.attention for head in await store.agents())


@pytest.mark.parametrize("fails", [0, 1])
async def test_c212_what_is_told_later_is_told_once_after_every_crash(autojump_clock: MockClock, fails: int) -> None:
    """The parent is away while its child ends, and comes back; killed behind every commit of all three lives."""

    def says(request: Request) -> Reply:
        tries = sum(message.role == "user" for message in request.messages)
        return Reply.fail("BAD_REQUEST") if tries <= fails else Reply.text("found")

    def leads(request: Request) -> Reply:
        return Reply.text("noted") if request.messages[-1].role == "user" and len(request.messages) > 1 else _calls(request)

    def _calls(request: Request) -> Reply:
        return Reply.text("sent") if request.messages[-1].results else Reply.tools(("c1", "worker", {"task": "go"}))

    async def scenario(store: Store) -> list[str]:
        child = Agent("worker", model=ScriptedModel(says), plugins=())
        hanging = Agent("worker", model=ScriptedModel(lambda request: Reply.hang()), plugins=())
        for worker in (hanging, child):
            lead = make(ScriptedModel(leads), tools=[delegate(worker, background=True, restarts=(3, 600))])
            if worker is child:
                async with System.open(store, agents=[child], now=trio_wall(WALL)) as system:
                    await trio.sleep(10)
            async with System.open(store, agents=[lead], grace=0, now=trio_wall(WALL)) as system:
                await (await system.spawn(lead, id="a")).followup("hi", message_id="m")
                await trio.sleep(10)
        return [
            record.event.message.text
            async for record in store.read("a", types={"inbox/put"})
            if isinstance(record.event, e.InboxPut) and record.event.message.id.endswith("#end")
        ]

    crashes = 0
    async for crash in every_crash(scenario):
        crashes += 1
        assert crash.result == ["found"], crash
        assert len(await events(crash.store, e.ChildEnded)) == 1, crash
        assert len(await events(crash.store, e.TurnEnd, CHILD)) == 1 + fails, crash
    assert crashes > 8


async def test_c283_a_child_without_a_task_that_was_disposed_meanwhile_has_ended_and_can_be_born_again(
    autojump_clock: MockClock,
) -> None:
    """Behind every commit of it: the parent is away while its child is disposed, comes back, and has it once more."""
    helper = Agent("helper", model=ScriptedModel(lambda request: Reply.text("yes")), plugins=())

    @tool(replay="safe")
    async def have(ctx: ToolContext) -> str:
        """Have a helper."""
        return str((await ctx.spawn(helper, id="h")).id)

    def leads(request: Request) -> Reply:
        return Reply.text("done") if request.messages[-1].results else Reply.tools(("c1", "have", {}))

    lead = make(ScriptedModel(leads), tools=[have])

    async def asks(store: Store, id: str) -> None:
        async with System.open(store, agents=[lead, helper], now=trio_wall(WALL)) as system:
            ref = await system.spawn(lead, id="a")
            await ref.ask("have one", message_id=id)

    async def scenario(store: Store) -> str:
        await asks(store, "m1")
        async with System.open(store, agents=[helper], now=trio_wall(WALL)) as system:
            if await store.find("a", "m2") is None:
                await (await system.get("h")).dispose()
        await asks(store, "m2")
        async with System.open(store, agents=[lead, helper]) as system:  # the end that is told is told of the first birth alone
            return " ".join((await (await system.get("a")).info()).children)

    crashes = 0
    async for crash in every_crash(scenario):
        crashes += 1
        assert crash.result == "h", crash
        log = await records(crash.store)
        births = [type(r.event) for r in log if isinstance(r.event, e.ChildSpawned | e.ChildEnded)]
        assert births == [e.ChildSpawned, e.ChildEnded, e.ChildSpawned], crash
    assert crashes > 8
