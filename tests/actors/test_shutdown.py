"""Closing: with its grace, from outside at every record, and by what is no `Exception`; what ran goes on at the next start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from helpers import check, events, make, opened, order, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.agent import Agent
from callboard.actors.delegation import delegate
from callboard.actors.seams import Plugin, SeamContext
from callboard.actors.state import AgentState
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.actors.tools import ToolContext, ToolOutput, tool
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.events import Event
from callboard.storage.log import Log
from callboard.storage.messages import Request

SENT = "put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 "
AGAIN = "TR1 F1{retry} H{resume} Q2 C* A SE TE1{completed}"


@tool(mode="parallel", replay="safe")
async def echo(ctx: ToolContext[Any]) -> ToolOutput:
    """Ends at once, with context for the next step."""
    return ToolOutput("echo", context=[f"context of {ctx.call_id}"])


@tool(mode="parallel")
async def hang(ctx: ToolContext[Any]) -> str:
    """Never ends by itself."""
    await trio.sleep_forever()
    return ""


class Errors(Plugin):
    """Notes failures."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def on_error(self, ctx: SeamContext, failure: Any, /) -> None:
        self.seen.append(failure.code)


async def test_c065_a_close_leaves_an_idle_inject_pending() -> None:
    store = MemoryStore()
    async with opened(make(scripted()), store) as (_, ref):
        await ref.inject("note")
    async with opened(make(scripted()), store) as (_, ref):
        await ref.wait_idle()
        assert [item.message.text for item in await ref.pending()] == ["note"]
    assert await order(store) == "put[s](note)"


async def test_c065_a_turn_that_ends_within_the_grace_is_whole(autojump_clock: MockClock) -> None:
    store, go = MemoryStore(), trio.Event()
    agent = make(scripted(Reply.wait(go, Reply.text("done"))))
    async with trio.open_nursery() as nursery, opened(agent, store, grace=10) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        nursery.start_soon(_set_after, go, 9)
    assert await order(store) == f"{SENT}C* A SE TE1{{completed}}"


async def _set_after(event: trio.Event, seconds: float) -> None:
    await trio.sleep(seconds)
    event.set()


async def test_c065_a_turn_over_the_grace_is_suspended_and_goes_on(autojump_clock: MockClock) -> None:
    store, errors = MemoryStore(), Errors()
    async with opened(make(scripted(Reply.hang("half")), plugins=[errors]), store, grace=3) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        start = trio.current_time()
    assert trio.current_time() - start == pytest.approx(3)
    assert errors.seen == []
    assert await order(store) == f"{SENT}C* TZ1"
    async with opened(make(scripted("whole")), store) as (_, ref):
        await ref.wait_idle()
    assert await order(store) == f"{SENT}C* TZ1 {AGAIN}"


async def test_c065_results_of_bodies_that_finished_are_logged_and_a_cut_one_is_in_doubt() -> None:
    store = MemoryStore()
    model = scripted(Reply.tools(("c1", "hang", {}), ("c2", "echo", {})))
    async with opened(make(model, tools=[echo, hang]), store, grace=0) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
    closed = f"{SENT}C* A call(c1) call(c2) res(c2) TZ1"
    assert await order(store) == closed
    async with opened(make(scripted("done"), tools=[echo, hang]), store) as (_, ref):
        await ref.wait_idle()
    assert await order(store) == (
        f"{closed} TR1 res(c1!OUTCOME_UNKNOWN) put[s](context of c2) SE claim(context of c2) SS1.2 U(context of c2) "
        "H{resume} Q1 C* A SE TE1{completed}"
    )


async def test_c065_the_context_of_a_batch_that_the_close_finds_finished_enters_once() -> None:
    store = MemoryStore()

    class HoldsOnce(Plugin):
        held = False

        async def tool_after(self, ctx: SeamContext, done: Any, next: Any, /) -> Any:
            if not self.held:
                self.held = True
                await trio.sleep_forever()
            return await next(done)

    model = scripted(Reply.tools(("c1", "echo", {}), ("c2", "echo", {})))
    async with opened(make(model, tools=[echo], plugins=[HoldsOnce()]), store, grace=0) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
    closed = f"{SENT}C* A call(c1) call(c2) res(c1) res(c2) put[s](context of c1) put[s](context of c2) TZ1"
    assert await order(store) == closed
    async with opened(make(scripted("done"), tools=[echo]), store) as (_, ref):
        await ref.wait_idle()
    assert await order(store) == (
        f"{closed} TR1 SE claim(context of c1,context of c2) SS1.2 U(context of c1) U(context of c2) "
        "H{resume} Q1 C* A SE TE1{completed}"
    )


async def test_c065_recovery_end_aborts_as_disposed_and_what_was_queued_is_due() -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.hang("half")), recovery="end"), store, grace=0) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.followup("two")
    closed = f"{SENT}C* put[t](two) A{{cut}} SE TE1{{aborted disposed}}"
    assert await order(store) == closed
    async with opened(make(scripted("two"), recovery="end"), store) as (_, ref):
        await ref.wait_idle()
    assert await order(store) == f"{closed} TS2 claim(two) SS2.1 U(two) H{{resume}} Q1 C* A SE TE2{{completed}}"


async def test_c066_a_hundred_running_agents_are_all_closed_and_nothing_is_left() -> None:
    store, before = MemoryStore(), trio.lowlevel.current_statistics().tasks_living

    def answer(request: Request) -> Reply:
        return Reply.hang("half") if int(request.agent) % 2 else Reply.tools(("c1", "hang", {}), ("c2", "echo", {}))

    def whole(request: Request) -> Reply:
        return Reply.text("done")

    agent = make(ScriptedModel(answer), tools=[echo, hang])
    async with System.open(store, agents=[agent], grace=0) as system:
        for number in range(100):
            await (await system.spawn(agent, id=str(number))).followup("one")
        await wait_all_tasks_blocked()
    assert trio.lowlevel.current_statistics().tasks_living == before
    await check(store)
    for number in range(100):
        assert (await order(store, str(number))).endswith(" TZ1")
    async with System.open(store, agents=[make(ScriptedModel(whole), tools=[echo, hang])]) as system:
        for number in range(100):
            await (await system.get(str(number))).wait_idle()
    await check(store)
    for number in range(100):
        assert (await order(store, str(number))).endswith(" SE TE1{completed}")


# -- from outside


class Watched(Log[AgentState]):
    """A log that calls `at` after each append of any log, with how many there were, and knows all logs."""

    at: Callable[[int], object]
    count = 0
    logs: list[Log[AgentState]]

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.logs.append(self)

    def append(self, *events: Event, blobs: Any = None) -> int:
        first = super().append(*events, blobs=blobs)
        type(self).count += 1
        self.at(self.count)
        return first

    def append_chunk(self, turn: int, step: int, chunk: Any) -> int:
        first = super().append_chunk(turn, step, chunk)
        type(self).count += 1
        self.at(self.count)
        return first


def watch(patch: pytest.MonkeyPatch, at: Callable[[int], object]) -> None:
    Watched.at, Watched.count, Watched.logs = staticmethod(at), 0, []
    patch.setattr("callboard.actors.registry.Log", Watched)


def family() -> Agent[Any, Any]:
    """A parent that uses a tool and then a child, and says what the child said; one that goes on may do so at any place."""

    def say(request: Request) -> Reply:
        done = {call for message in request.messages for call in message.results}
        if "c2" in done:
            return Reply.text("the end")
        return Reply.tools(("c2", "child", {"task": "do"})) if "c1" in done else Reply.tools(("c1", "echo", {}))

    child = Agent("child", model=ScriptedModel(lambda request: Reply.text("child's"), paced=True), plugins=())
    return make(ScriptedModel(say, paced=True), tools=[echo, delegate(child)])


async def _run(store: MemoryStore, scope: trio.CancelScope | None = None) -> None:
    agent = family()
    with scope or trio.CancelScope():
        async with System.open(store, agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            await ref.followup("one", message_id="m")
            await ref.wait_idle()


async def test_c258_a_cancel_from_outside_at_each_record() -> None:
    before = trio.lowlevel.current_statistics().tasks_living
    at = 1
    while True:
        store, scope = MemoryStore(), trio.CancelScope()

        def cut(count: int, scope: trio.CancelScope = scope, at: int = at) -> None:
            if count == at:
                scope.cancel()

        with pytest.MonkeyPatch.context() as patch:
            watch(patch, cut)
            await _run(store, scope)
            ended = Watched.count < at
            logs = Watched.logs
        assert scope.cancelled_caught != ended
        assert trio.lowlevel.current_statistics().tasks_living == before
        await check(store)
        for log in logs:
            if log.last > 0:
                head = await store.head(log.agent)
                assert head is not None and head.last == log.last == log.committed
            position = log.state.position
            assert not position.open or position.suspended
        for agent in await _agents(store):
            assert [end.reason.kind for end in await events(store, e.TurnEnd, agent)] in ([], ["completed"])
        await _run(store)
        await check(store)
        assert (await order(store)).endswith(" SE TE1{completed}")
        outcome = [record.event async for record in store.read("a", types={"assistant/message"})][-1]
        assert isinstance(outcome, e.AssistantMessage) and outcome.message.text == "the end"
        assert len(await events(store, e.ChildSpawned)) == len(await events(store, e.ChildEnded)) == 1
        if ended:
            break
        at += 1
    assert at > 30


async def _agents(store: MemoryStore) -> list[str]:
    return [head.agent for head in await store.agents()]


async def test_c258_an_outside_cancel_cuts_parallel_bodies_and_leaves_them_in_doubt() -> None:
    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c1", "hang", {}), ("c2", "hang", {}), ("c3", "echo", {}))), tools=[hang, echo])
    with trio.CancelScope() as scope:
        async with System.open(store, agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            await ref.followup("one")
            await wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    await check(store)
    assert await order(store) == f"{SENT}C* A call(c1) call(c2) call(c3) res(c3) TZ1"


async def test_c258_a_plugin_that_throws_in_the_cancel_from_outside_does_not_hide_it() -> None:
    store = MemoryStore()

    class Throws(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Any, next: Any, /) -> Any:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.sleep_forever)
                try:
                    await trio.sleep_forever()
                finally:
                    raise ValueError("while it was cut")

    agent = make(scripted(), plugins=[Throws()])
    with trio.CancelScope() as scope:
        async with System.open(store, agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            await ref.followup("one")
            await wait_all_tasks_blocked()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    await check(store)
    assert await order(store) == "put[t](one) TS1 TZ1"


# -- what is no Exception


@pytest.mark.parametrize("beside", [False, True])
async def test_c259_system_exit_in_a_tool_closes_the_turn_and_the_system_and_leaves_it(beside: bool) -> None:
    store = MemoryStore()

    @tool(mode="parallel")
    async def leave(ctx: ToolContext[Any]) -> str:
        """Ends the program."""
        raise SystemExit(3)

    calls = [("c1", "leave", ""), ("c2", "echo", "")][: 2 if beside else 1]
    agent = make(scripted(Reply.tools(*calls)), tools=[leave, echo])
    other = make(scripted(Reply.hang("half")), name="other")
    with pytest.raises(SystemExit) as exit:
        async with System.open(store, agents=[agent, other]) as system:
            await (await system.spawn(other, id="b")).followup("one")
            await (await system.spawn(agent, id="a")).followup("one")
            await trio.sleep_forever()
    assert exit.value.code == 3
    await check(store)
    results = "call(c1) call(c2) res(c1!TOOL_ERROR) res(c2)" if beside else "call(c1) res(c1!TOOL_ERROR)"
    assert await order(store) == f"{SENT}C* A {results} SE TE1{{error}}"
    assert await order(store, "b") == f"{SENT}C* TZ1"


async def test_c259_system_exit_in_a_body_that_a_cancel_cuts_leaves_too() -> None:
    store = MemoryStore()

    @tool
    async def leave(ctx: ToolContext[Any]) -> str:
        """Ends the program when it is cancelled."""
        try:
            await trio.sleep_forever()
        finally:
            raise SystemExit(3)

    agent = make(scripted(Reply.tools(("c1", "leave", {}))), tools=[leave])
    with pytest.raises(SystemExit):
        async with System.open(store, agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            await ref.followup("one")
            await wait_all_tasks_blocked()
            await ref.cancel()
            await trio.sleep_forever()
    await check(store)
    assert await order(store) == f"{SENT}C* A call(c1) TC1 res(c1!ABORTED) SE TE1{{aborted user}}"


async def test_c259_system_exit_in_a_seam_leaves_too() -> None:
    store = MemoryStore()

    class Leaves(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Any, next: Any, /) -> Any:
            raise SystemExit(3)

    agent = make(scripted(), plugins=[Leaves()])
    with pytest.raises(SystemExit):
        async with System.open(store, agents=[agent]) as system:
            await (await system.spawn(agent, id="a")).followup("one")
            await trio.sleep_forever()
    await check(store)
    assert await order(store) == "put[t](one) TS1 claim(one) TE1{error}"
