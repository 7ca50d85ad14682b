"""C272: a delegation that a restart takes up reads the parent's log first, and attaches to the child whatever became of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import trio
from crashing import batch
from helpers import check, events, make, order, records, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, Boundary, Enter, Plugin, Reject, System, delegate
from callboard.actors.answers import CallResult
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.store import Results, Unit

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A call(c1) born"
REST = "SE SS1.2 H{resume} Q1 C* A SE TE1{completed}"
CHILD = "a/1.1.c1"


class Images(MemoryStore):
    """Keeps what a crash behind each commit would leave."""

    def __init__(self) -> None:
        super().__init__()
        self.images: list[MemoryStore] = []

    async def commit(self, units: Sequence[Unit]) -> Results:
        results = await super().commit(units)
        self.images.append(self.copy())
        return results

    async def before_the_result(self) -> MemoryStore:
        """The last image in which the call has no result."""
        for image in reversed(self.images):
            if not await events(image, e.ToolResult):
                return image
        raise AssertionError("the call had its result from the start")

    async def while_it_runs(self) -> MemoryStore:
        """The first image in which the child has asked its model."""
        for image in self.images:
            if await image.head(CHILD) is not None and await events(image, e.RequestSent, CHILD):
                return image
        raise AssertionError("the child never asked its model")


class Hangs(Plugin):
    """Never lets a child's task enter."""

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        await trio.sleep_forever()
        return await next(boundary)


def worker(*replies: Any, **options: Any) -> Agent[Any, Any]:
    """The child's definition."""
    return Agent("worker", model=scripted(*replies), plugins=()).replace(**options)


def parent(child: Agent[Any, Any], *replies: Any) -> Agent[Any, Any]:
    """A parent that delegates one task."""
    return make(scripted(*replies), tools=[delegate(child, name="worker")])


FIRST = Reply.tools(("c1", "worker", {"task": "go"}))


async def begin(store: Images, child: Agent[Any, Any], act: Any = None) -> None:
    """One turn of the parent; `act(system)` is done when nothing moves any more."""
    agent = parent(child, FIRST, "thanks")
    async with System.open(store, agents=[agent], grace=0) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        if act is not None:
            await act(system)
            await wait_all_tasks_blocked()
    await check(store)


async def again(image: MemoryStore, child: Agent[Any, Any]) -> str:
    """Take it up; what was added to the parent's log."""
    before = (await image.head("a")).last  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    async with System.open(image, agents=[parent(child, "thanks")]) as system:
        with trio.fail_after(60):
            await (await system.get("a")).wait_idle()
    await check(image)
    return await order(image, after=before)


async def result(store: MemoryStore) -> str:
    """What the model reads."""
    (found,) = await events(store, e.ToolResult)
    return CallResult(found.content).text


async def test_c272_a_child_that_has_ended_is_not_asked_again() -> None:
    store = Images()
    await begin(store, worker("found"))
    image = await store.before_the_result()
    assert await order(image) == f"{OPEN} died{{completed}}"
    assert await again(image, worker()) == f"TR1 res(c1) {REST}"
    assert await result(image) == "found"
    assert len(await events(image, e.TurnEnd, CHILD)) == 1


async def test_c272_a_child_that_has_not_ended_is_waited_for() -> None:
    store = Images()
    await begin(store, worker(Reply.hang("so far")))
    image = await store.while_it_runs()
    assert await again(image, worker("found")) == f"TR1 died{{completed}} res(c1) {REST}"
    assert await result(image) == "found"
    assert len(await events(image, e.InboxPut, CHILD)) == 1


async def test_c272_a_child_that_ended_while_its_parent_could_not_be_opened_leaves_its_end_there() -> None:
    store = Images()
    await begin(store, worker(Reply.hang("so far")))
    image = await store.while_it_runs()
    async with System.open(image, agents=[worker("found")]) as system:
        assert list(system.report.failed) == ["a"]
        await (await system.get(CHILD)).wait_idle()
    assert await order(image) == OPEN
    assert await again(image, worker()) == f"died{{completed}} TR1 res(c1) {REST}"
    assert await result(image) == "found"


async def test_c272_a_task_that_was_dropped_is_an_error_by_that_name() -> None:
    async def cancel(system: System) -> None:
        await (await system.get(CHILD)).cancel()

    store = Images()
    await begin(store, worker(plugins=[Hangs()]), cancel)
    image = await store.before_the_result()
    assert await order(image) == f"{OPEN} died{{aborted}}"
    assert await again(image, worker()) == f"TR1 res(c1!CHILD_DROPPED) {REST}"
    assert "cancelled" in await result(image)


async def test_c272_a_child_that_was_deleted_meanwhile_is_gone() -> None:
    store, child = Images(), worker(Reply.hang())
    await begin(store, child)
    image = store.images[-1]
    async with System.open(image, agents=[worker(Reply.hang())], grace=0) as system:
        assert list(system.report.failed) == ["a"]
        await system.delete(CHILD)
    assert await again(image, worker()) == f"died{{aborted}} TR1 res(c1!CHILD_GONE) {REST}"


async def test_c272_a_child_of_a_missing_definition_is_waited_for_and_reported(autojump_clock: MockClock) -> None:
    store = Images()
    await begin(store, worker(Reply.hang()))
    image = await store.while_it_runs()
    before = (await image.head("a")).last  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    other = Agent("another", model=scripted(), plugins=())
    async with System.open(image, agents=[parent(other, "thanks")]) as system:
        ref = await system.get("a")
        await trio.sleep(1)
        assert await order(image, after=before) == "TR1"
        assert list(system.report.failed) == [CHILD]
        assert system.report.waiting == {"a": CHILD}
        system.define(worker("found"))
        with trio.fail_after(60):
            await ref.wait_idle()
        assert system.report.waiting == {}
        assert await order(image, after=before) == f"TR1 died{{completed}} res(c1) {REST}"
    await check(image)


async def test_c065_a_family_that_is_closed_in_its_turns_goes_on_at_the_next_start() -> None:
    store = Images()
    await begin(store, worker(Reply.hang("so far")))
    image = store.images[-1]
    assert await order(image) == f"{OPEN} TZ1"
    child = "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 C*"
    assert await order(image, CHILD) == f"{child} TZ1"
    assert await again(image, worker("found")) == f"TR1 died{{completed}} res(c1) {REST}"
    assert await order(image, CHILD) == f"{child} TZ1 TR1 F1{{retry}} H{{resume}} Q2 C* A SE TE1{{completed}}"


async def test_c207_a_child_that_a_crash_interrupts_for_good_is_no_success() -> None:
    store = Images()
    await begin(store, worker(Reply.hang("so far")))
    image = await store.while_it_runs()
    assert await again(image, worker(recovery="end")) == f"TR1 died{{interrupted}} res(c1!CHILD_INTERRUPTED) {REST}"
    assert "interrupted by a crash" in await result(image)


async def test_c256_a_task_that_a_cancel_dropped_has_ended_though_the_process_did_first() -> None:
    """Both logs end behind `turn/cancel`: nothing goes on, the task is not done, and the parent has the end of its child."""

    async def cancel(system: System) -> None:
        await (await system.get("a")).cancel()

    store = Images()
    await begin(store, worker(plugins=[Hangs()]), cancel)
    image = MemoryStore()
    for id in ("a", CHILD):
        log = await records(store, id)
        kept = log[: 1 + next(record.seq for record in log if isinstance(record.event, e.TurnCancel))]
        assert await image.commit([[batch(kept, await image.own(id), id)]]) == [None]
    assert await order(image, CHILD) == "put[t](go) TS1 TC1(go)"
    added = (await again(image, worker("never"))).split()
    assert [short for short in added if not short.startswith("died")] == ["res(c1!OUTCOME_UNKNOWN)", "SE", "TE1{aborted", "user}"]
    async with System.open(image, agents=[parent(worker())]) as system:
        await (await system.get(CHILD)).wait_idle()
    assert await order(image, CHILD) == "put[t](go) TS1 TC1(go) TE1{aborted parent}"
    assert (await order(image)).split().count("died{aborted}") == 1
