"""A cancel while tools run: whose result is whose, what a body says in its last moment, and bodies that will not end."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
from helpers import events, make, opened, order, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.limits import Limits
from callboard.actors.seams import Plugin
from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import ToolContext, ToolOutput, tool
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import ToolError
from callboard.storage.messages import File, TextBlock

ANSWER = "put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 C* A "
END = "SE TE1{aborted user}"


def calls(*names: str) -> Reply:
    return Reply.tools(*((f"c{place}", name, "") for place, name in enumerate(names, 1)))


@tool
async def cancels(ctx: ToolContext[Any]) -> str:
    """Cancels its own turn and returns."""
    await ctx.agent.cancel()
    return "mine"


@tool
async def cancels_and_waits(ctx: ToolContext[Any]) -> str:
    """Cancels its own turn and goes on working."""
    await ctx.agent.cancel()
    await trio.sleep_forever()
    return ""


@tool
async def hang(ctx: ToolContext[Any]) -> str:
    """Never ends by itself."""
    await trio.sleep_forever()
    return ""


@tool(mode="parallel")
async def parallel_hang(ctx: ToolContext[Any]) -> str:
    """Never ends by itself, beside others."""
    await trio.sleep_forever()
    return ""


@pytest.mark.parametrize(("name", "result"), [("cancels", "res(c1)"), ("cancels_and_waits", "res(c1!ABORTED)")])
async def test_c062_a_body_that_cancels_its_own_turn(name: str, result: str) -> None:
    store = MemoryStore()
    agent = make(scripted(calls(name, "hang")), tools=[cancels, cancels_and_waits, hang])
    async with opened(agent, store) as (_, ref):
        await ref.followup("one")
        await ref.wait_idle()
    assert await order(store) == f"{ANSWER}call(c1) TC1 {result} res(c2!ABORTED_BEFORE_DISPATCH) {END}"


async def test_c062_a_parallel_body_that_cancels_its_own_turn() -> None:
    store = MemoryStore()

    @tool(mode="parallel")
    async def stops(ctx: ToolContext[Any]) -> str:
        """Cancels its own turn and returns."""
        await ctx.agent.cancel()
        return "mine"

    agent = make(scripted(calls("parallel_hang", "stops", "hang")), tools=[stops, parallel_hang, hang])
    async with opened(agent, store) as (_, ref):
        await ref.followup("one")
        await ref.wait_idle()
    assert await order(store) == (f"{ANSWER}call(c1) call(c2) TC1 res(c1!ABORTED) res(c2) res(c3!ABORTED_BEFORE_DISPATCH) {END}")


async def test_c125_a_cancel_before_the_batch_runs_no_body() -> None:
    store = MemoryStore()
    started: list[str] = []

    @tool(mode="parallel")
    async def marks(ctx: ToolContext[Any]) -> str:
        """Notes that it ran."""
        started.append(ctx.call_id)
        return ""

    class Stops(Plugin):
        async def tool_before(self, ctx: Any, call: Any, next: Any, /) -> Any:
            await trio.sleep_forever()

    agent = make(scripted(calls("marks", "marks"), "two"), tools=[marks], plugins=[Stops()])
    async with opened(agent, store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
        await ref.followup("two")
        await ref.wait_idle()
    assert started == []
    assert await order(store) == (
        f"{ANSWER}TC1 res(c1!ABORTED_BEFORE_DISPATCH) res(c2!ABORTED_BEFORE_DISPATCH) {END} "
        "put[t](two) TS2 claim(two) SS2.1 U(two) Q1 C* A SE TE2{completed}"
    )


@pytest.mark.parametrize("ends", ["value", "error"])
async def test_c126_what_a_body_says_after_a_cancel_is_its_result(ends: str) -> None:
    store = MemoryStore()

    @tool
    async def last_words(ctx: ToolContext[Any]) -> ToolOutput:
        """Ends by itself when it is cancelled."""
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            if ends == "error":
                raise ToolError("half of it is done") from None
        return ToolOutput("x" * 5000, meta={"cost": 3})

    agent = make(scripted(calls("last_words")), tools=[last_words], limits=Limits(output_bytes=1000))
    async with opened(agent, store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
    result = (await events(store, e.ToolResult))[0]
    call = (await _seq_of(store, e.ToolCalled))[0]
    assert result.sources == (call,)
    if ends == "error":
        assert await order(store) == f"{ANSWER}call(c1) TC1 res(c1!TOOL_ERROR) {END}"
        assert result.content == (TextBlock("half of it is done"),)
    else:
        assert await order(store) == f"{ANSWER}call(c1) TC1 res(c1) {END}"
        assert result.meta is not None and result.meta["cost"] == 3
        blobs = [block.blob for block in result.content if isinstance(block, File)]
        assert [await store.blob(digest or "") for digest in blobs] == [b"x" * 5000]


async def _seq_of(store: MemoryStore, type: type[e.Event]) -> list[int]:
    return [record.seq async for record in store.read("a") if isinstance(record.event, type)]


async def test_c259_a_group_of_cancelled_and_errors_is_aborted_with_the_errors_beside_it() -> None:
    store = MemoryStore()

    async def fails() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while it was cut")

    @tool
    async def group(ctx: ToolContext[Any]) -> str:
        """Works in a nursery."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            nursery.start_soon(trio.sleep_forever)
        return ""

    async with opened(make(scripted(calls("group")), tools=[group]), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
    assert await order(store) == f"{ANSWER}call(c1) TC1 res(c1!ABORTED) {END}"
    reason: Any = (await events(store, e.TurnEnd))[0].reason
    assert "while it was cut" in reason.error.message


async def test_c259_a_group_of_plain_errors_is_an_error_result() -> None:
    store = MemoryStore()

    async def fails() -> None:
        raise ValueError("by itself")

    @tool
    async def group(ctx: ToolContext[Any]) -> str:
        """Works in a nursery."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails)
            nursery.start_soon(trio.sleep_forever)
        return ""

    async with opened(make(scripted(calls("group"), "done"), tools=[group]), store) as (_, ref):
        await ref.followup("one")
        await ref.wait_idle()
    assert await order(store) == f"{ANSWER}call(c1) res(c1!TOOL_ERROR) SE SS1.2 Q1 C* A SE TE1{{completed}}"
    result = (await events(store, e.ToolResult))[0]
    assert result.meta is not None and "ValueError: by itself" in result.meta["causes"]


async def test_c064_a_body_that_ignores_its_cancellation_is_given_up(autojump_clock: MockClock) -> None:
    store, end = MemoryStore(), trio.Event()

    @tool
    async def deaf(ctx: ToolContext[Any]) -> str:
        """Does not hear that it is cancelled."""
        with trio.CancelScope(shield=True):
            await end.wait()
        return "late"

    agent = make(scripted(calls("deaf", "deaf")), tools=[deaf], limits=Limits(abandon_s=3))
    async with opened(agent, store) as (system, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        start = trio.current_time()
        await ref.cancel()
        await ref.wait_idle()
        assert trio.current_time() - start == pytest.approx(3)
        assert system.statistics()["strays"] == ("deaf of a (c1)",)
        end.set()
        await wait_all_tasks_blocked()
        assert system.statistics()["strays"] == ()
    assert await order(store) == (
        f"{ANSWER}call(c1) TC1 res(c1!ABANDONED) res(c2!ABORTED_BEFORE_DISPATCH) {END} note(stray-ended)"
    )


async def test_c064_a_thread_that_goes_on_is_given_up_alike() -> None:
    store, begun, end = MemoryStore(), trio.Event(), threading.Event()

    @tool
    def stuck() -> str:
        """Blocks a thread."""
        trio.from_thread.run_sync(begun.set)
        end.wait()
        return "late"

    agent = make(scripted(calls("stuck")), tools=[stuck], limits=Limits(abandon_s=0.01))
    async with opened(agent, store) as (system, ref):
        await ref.followup("one")
        await begun.wait()
        await ref.cancel()
        await ref.wait_idle()
        assert system.statistics()["strays"] == ("stuck of a (c1)",)
        assert await order(store) == f"{ANSWER}call(c1) TC1 res(c1!ABANDONED) {END}"
        end.set()
        async for record in ref.follow(types={"note"}):
            assert isinstance(record.event, e.Note) and record.event.data["call_id"] == "c1"
            break
        assert system.statistics()["strays"] == ()
