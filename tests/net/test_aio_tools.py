"""Tools on the loop that opened the system: where they run, what they may do there, and how they are cancelled."""

from __future__ import annotations

import asyncio
import contextvars
import re
import threading
from typing import Any

import pytest
from looped import make, on_loop

from callboard import System as TrioSystem
from callboard import ToolContext, ToolError, tool
from callboard.actors.testing import Reply
from callboard.mailbox.addresses import effect_key
from callboard.net.aio import System
from callboard.storage import UsageError
from callboard.storage.engines.memory import MemoryStore

KEY = effect_key("a", 1, 1, "c1")


def call(name: str, **arguments: Any) -> Reply:
    return Reply.tools(("c1", name, arguments))


async def result_of(agent: Any, *, store: Any = None) -> Any:
    """The result of the first call that the agent makes."""
    async with System.open(store or ":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("go", timeout=10)
        return (await events_of(ref, "tool/result"))[0]


async def events_of(ref: Any, *types: str) -> list[Any]:
    return [record.event async for record in ref.read(types=types)]


@tool(loop="asyncio", replay="safe")
async def where(ctx: ToolContext) -> list[str]:
    """Where it runs."""
    await asyncio.sleep(0)
    return [threading.current_thread().name, type(asyncio.get_running_loop()).__name__]


def test_a_body_runs_on_the_loop_that_opened_the_system() -> None:
    async def main() -> None:
        result = await result_of(make(call("where"), "ok", tools=[where]))
        assert result.content[0].text == f'["MainThread","{type(asyncio.get_running_loop()).__name__}"]'

    on_loop(main)


async def test_without_a_loop_it_is_refused_when_the_system_opens() -> None:
    with pytest.raises(UsageError, match=r"'demo' run on an asyncio loop \(where\).*callboard\.net\.aio"):
        async with TrioSystem.open(":memory:", agents=[make(tools=[where])]):
            raise AssertionError("opened")
    async with TrioSystem.open(":memory:") as system:
        with pytest.raises(UsageError, match=r"callboard\.net\.aio"):
            await system.spawn(make(tools=[where]))


def test_what_it_does_through_its_context_is_done_in_trio() -> None:
    @tool(loop="asyncio", replay="safe")
    async def work(ctx: ToolContext) -> str:
        """Work."""
        ctx.note("began", {"at": ctx.step})
        ctx.progress("half")
        receipt = await ctx.send("other", "hello")
        outcome = await ctx.ask("other", "and?", timeout=5)
        await ctx.agent.inject("remember this")
        helper = await ctx.spawn(make("help").replace(name="helper"), id="h")
        helped = await helper.ask("help me")
        printed = await ctx.process("echo", "hi")
        return f"{receipt.message_id} {outcome.text} {helped.text} {printed.stdout.strip()}"

    async def main() -> None:
        agent, other = make(call("work"), "ok", tools=[work]), make("first", "second").replace(name="other")
        async with System.open(":memory:", agents=[agent, other]) as system:
            await system.spawn(other, id="other")
            ref = await system.spawn(agent, id="a")
            assert (await ref.ask("go", timeout=10)).ok
            assert [note.kind for note in await events_of(ref, "note")] == ["began", "progress"]
            assert len(await events_of(ref, "mail/sent")) == 2 and len(await events_of(ref, "child/spawned")) == 1
            (result,) = await events_of(ref, "tool/result")
            assert re.fullmatch(rf"{KEY}#1@\d+ second help hi", result.content[0].text)

    on_loop(main)


def test_a_tool_that_would_wait_for_its_own_turn_is_told_so() -> None:
    @tool(loop="asyncio", replay="safe")
    async def circle(ctx: ToolContext) -> str:
        """Ask myself."""
        return str((await ctx.agent.ask("me?")).text)

    async def main() -> None:
        result = await result_of(make(call("circle"), "ok", tools=[circle]))
        assert result.error == "TOOL_ERROR" and "AskCycle" in result.content[0].text

    on_loop(main)


def test_context_variables_of_the_opener_do_not_leak_into_bodies() -> None:
    variable = contextvars.ContextVar("variable", default="nothing")

    @tool(loop="asyncio", replay="safe")
    async def look(ctx: ToolContext) -> str:
        """Look."""
        before = variable.get()
        variable.set("changed by the tool")
        return before

    async def main() -> None:
        variable.set("of the program")
        result = await result_of(make(call("look"), "ok", tools=[look]))
        assert (result.content[0].text, variable.get()) == ("nothing", "of the program")

    on_loop(main)


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ValueError("no such order"), "TOOL_ERROR", "ValueError: no such order"),
        (ToolError("try again"), "TOOL_ERROR", "try again"),
    ],
)
def test_what_it_raises_is_for_the_model(error: Exception, code: str, text: str) -> None:
    @tool(loop="asyncio", replay="safe")
    async def fail() -> str:
        """Fail."""
        await asyncio.sleep(0)
        raise error

    async def main() -> None:
        result = await result_of(make(call("fail"), "ok", tools=[fail]))
        assert (result.error, result.content[0].text) == (code, text)

    on_loop(main)


def test_cancelling_the_turn_cancels_its_task_and_waits_for_it() -> None:
    events: list[str] = []
    begun = asyncio.Event()

    @tool(loop="asyncio", replay="safe")
    async def wait() -> str:
        """Wait."""
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.01)
            events.append("cleaned up")
        return ""

    async def main() -> None:
        agent = make(call("wait"), "ok", tools=[wait])
        async with System.open(":memory:", agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            await ref.followup("go")
            await begun.wait()
            await ref.cancel()
            await ref.wait_idle()
            assert events == ["cleaned up"]
            assert (await ref.outcome(turn=1)).reason.kind == "aborted"

    on_loop(main)


def test_its_time_is_limited() -> None:
    @tool(loop="asyncio", replay="safe", timeout=0.05)
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(1000)
        return ""

    async def main() -> None:
        assert (await result_of(make(call("wait"), "ok", tools=[wait]))).error == "TIMEOUT"

    on_loop(main)


def test_a_task_that_somebody_else_cancels_is_an_error_result_and_ends_nothing() -> None:
    @tool(loop="asyncio", replay="safe")
    async def cut() -> str:
        """Cut."""
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)
        return ""

    async def main() -> None:
        result = await result_of(make(call("cut"), "ok", tools=[cut]))
        assert result.error == "TOOL_ERROR" and "cancelled on its asyncio loop" in result.content[0].text

    on_loop(main)


def test_a_body_that_a_shutdown_cut_runs_again_on_the_next_loop() -> None:
    store, runs, begun = MemoryStore(), list[str](), asyncio.Event()

    @tool(loop="asyncio", replay="safe")
    async def slow(ctx: ToolContext) -> str:
        """Be slow the first time."""
        runs.append((await ctx.send("a2", "hello")).message_id)
        if len(runs) == 1:
            begun.set()
            await asyncio.sleep(1000)
        return "done"

    agent, other = make(call("slow"), "ok", tools=[slow]), make("hello back").replace(name="other")

    async def first() -> None:
        async with System.open(store, agents=[agent, other], grace=0) as system:
            await system.spawn(other, id="a2")
            ref = await system.spawn(agent, id="a")
            await ref.followup("go", message_id="m")
            await begun.wait()

    async def second() -> None:
        async with System.open(store, agents=[agent, other]) as system:
            ref = await system.get("a")
            assert (await ref.outcome("m", timeout=10)).text == "ok"
            assert [sent.kind for sent in await events_of(ref, "mail/sent")] == ["followup"]

    on_loop(first)
    on_loop(second)
    assert runs[0].startswith(f"{KEY}#1@") and runs == [runs[0]] * 2


def test_definitions_and_deliveries_of_the_program_run_on_its_loop() -> None:
    async def main() -> None:
        loops: list[Any] = []

        async def resolve(name: str, head: Any) -> Any:
            loops.append(asyncio.get_running_loop())
            return make("found")

        store, agent = MemoryStore(), make()
        async with System.open(store, agents=[agent]) as system:
            await system.spawn(agent, id="a")
        async with System.open(store, resolve=resolve) as system:
            assert (await (await system.get("a")).ask("go")).text == "found"
        assert set(loops) == {asyncio.get_running_loop()}

    on_loop(main)


def test_a_reply_is_delivered_on_the_loop_of_the_program() -> None:
    async def main() -> None:
        delivered: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()

        async def deliver(entry: Any) -> None:
            await delivered.put((entry.text, asyncio.get_running_loop()))

        agent = make("Hello.")
        async with System.open(":memory:", agents=[agent], channels={"mail": deliver}) as system:
            ref = await system.spawn(agent, id="a")
            await ref.followup("Hi", route={"channel": "mail", "chat": "ann"})
            assert await delivered.get() == ("Hello.", asyncio.get_running_loop())

    on_loop(main)
