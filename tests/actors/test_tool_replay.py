"""Section 8 of the conformance cases: what of a call outlives its process: blobs, context, a body that runs again."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from crashing import image, live
from helpers import events, make, notation, opened, order, records, say, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import AgentRef, Plugin, System, ToolContext, ToolOutput, tool
from callboard.actors.answers import CallResult, Done, ToolCall
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentNotFound, StoreError
from callboard.storage.messages import File, TextBlock

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A"
CLOSE = "SE SS1.2 Q1 C* A SE TE1{completed}"
BIG = "0123456789" * 30 * 1024


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


@tool(mode="parallel")
async def big() -> str:
    """Has a lot to say."""
    return BIG


def blob_of(result: e.ToolResult) -> str:
    """The blob that a result refers to."""
    whole = result.content[-1]
    assert isinstance(whole, File) and whole.blob is not None
    return whole.blob


class Blocks(Plugin):
    """Keeps every result from the model."""

    async def tool_after(self, ctx: SeamContext, done: Done, next: Next[Done, Done]) -> Done:
        self.blob = next_blob(done)
        return done.with_text("not this", error="BLOCKED")


def next_blob(done: Done) -> str:
    """The blob in a result that is not written yet."""
    return next(block.blob for block in done.result.content if isinstance(block, File) and block.blob is not None)


async def test_c133_a_blocked_result_leaves_no_blob() -> None:
    blocks = Blocks()
    async with opened(make(scripted(Reply.tools(("c1", "big", {})), "done"), tools=[big], plugins=[blocks])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} call(c1) res(c1!BLOCKED) {CLOSE}"
        with pytest.raises(StoreError):
            await system.store.blob(blocks.blob)


async def test_c133_a_result_that_the_exit_writes_has_its_blob() -> None:
    @tool(mode="parallel")
    async def hangs() -> str:
        """Keeps the results after it waiting."""
        await trio.sleep_forever()
        return ""

    script = scripted(Reply.tools(("c1", "hangs", {}), ("c2", "big", {})))
    async with opened(make(script, tools=[big, hangs])) as (system, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} call(c1) call(c2) TC1 res(c1!ABORTED) res(c2) SE TE1{{aborted user}}"
        _, result = await events(system.store, e.ToolResult)
        assert await system.store.blob(blob_of(result)) == BIG.encode()


async def test_c133_a_big_result_is_a_preview_and_a_blob_that_outlives_the_process_and_not_the_agent() -> None:
    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c1", "big", {})), "done"), tools=[big])
    async with opened(agent, store) as (_, ref):
        await say(ref, "hi")
        assert await order(store) == f"{OPEN} call(c1) res(c1) {CLOSE}"
    kept = store.copy()
    (result,) = await events(kept, e.ToolResult)
    preview, whole = result.content
    assert isinstance(preview, TextBlock) and isinstance(whole, File)
    assert len(preview.text) < 10_000 and preview.text.startswith("0123456789")
    assert whole.blob is not None
    assert await kept.blob(whole.blob) == BIG.encode()
    async with System.open(kept, agents=[agent]) as system:
        await system.delete("a")
        with pytest.raises(AgentNotFound):
            await order(kept)
        with pytest.raises(StoreError):
            await kept.blob(whole.blob)


def telling(runs: list[str]) -> Any:
    """A tool whose result brings context."""

    @tool(mode="parallel", replay="safe")
    async def tells(ctx: ToolContext[Any], name: str) -> ToolOutput:
        """Tells more."""
        runs.append(ctx.effect_key)
        return ToolOutput(name, context=[f"from {name}"])

    return tells


async def test_c263_context_is_put_with_the_last_result_of_the_batch_and_once() -> None:
    def agent() -> Any:
        script = scripted(Reply.tools(*((f"c{n}", "tells", {"name": str(n)}) for n in (1, 2))), "done")
        return make(script, tools=[telling([])])

    async def hi(ref: AgentRef[Any]) -> None:
        await say(ref, "hi")

    first = await live(agent(), hi)
    batch = f"{OPEN} call(c1) call(c2) res(c1) res(c2) put[s](from 1) put[s](from 2)"
    rest = "claim(from 1,from 2) SS1.2 U(from 1) U(from 2) Q1 C* A SE TE1{completed}"
    assert notation(first.records) == f"{batch} SE {rest}"
    last = first.upto("res(c2)")
    assert last not in first.ends, "the result and the context are one append"
    assert last + 2 in first.ends
    for cut in (first.upto("res(c1)"), last + 2, last + 3):
        store = await image(first.records, cut)
        script = scripted("done")
        async with opened(make(script, tools=[telling([])]), store) as (_, ref):
            await ref.wait_idle()
            log = await records(store)
            puts = [r.event.message.text for r in log if isinstance(r.event, e.InboxPut)]
            assert puts == ["hi", "from 1", "from 2"]
            resumed = notation(log, cut)
            assert resumed.endswith(rest.replace("Q1", "H{resume} Q1"))


async def test_c264_a_safe_body_runs_again_under_its_key_and_writes_no_second_call() -> None:
    runs: list[str] = []

    def agent(*replies: Any) -> Any:
        return make(scripted(*replies), tools=[telling(runs)])

    async def hi(ref: AgentRef[Any]) -> None:
        await say(ref, "hi")

    first = await live(agent(Reply.tools(("c1", "tells", {"name": "1"})), "done"), hi)
    cut = first.upto("call(c1)")
    store = await image(first.records, cut)
    async with opened(agent("done"), store) as (_, ref):
        await ref.wait_idle()
        assert await order(store, after=cut) == (
            "TR1 res(c1) put[s](from 1) SE claim(from 1) SS1.2 U(from 1) H{resume} Q1 C* A SE TE1{completed}"
        )
    assert len(runs) == 2
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("before", "after", "cut", "adds"),
    [
        ("never", "safe", "call(c1)", "TR1 res(c1!OUTCOME_UNKNOWN)"),
        ("safe", "never", "call(c1)", "TR1 res(c1)"),
        ("never", "safe", "A", "TR1 call(c1) res(c1)"),
        ("safe", "never", "A", "TR1 call(c1) res(c1)"),
        ("safe", None, "call(c1)", "TR1 res(c1!UNKNOWN_TOOL)"),
        ("never", None, "A", "TR1 call(c1) res(c1!UNKNOWN_TOOL)"),
    ],
)
async def test_c264_a_started_call_follows_the_log_and_one_not_started_the_code(
    before: Any, after: Any, cut: str, adds: str
) -> None:
    def agent(replay: Any, *replies: Any) -> Any:
        tools = [] if replay is None else [tool(name="echo", replay=replay)(echo.function)]
        return make(scripted(*replies), tools=tools)

    async def hi(ref: AgentRef[Any]) -> None:
        await say(ref, "hi")

    first = await live(agent(before, Reply.tools(("c1", "echo", {})), "done"), hi)
    at = first.upto(cut)
    store = await image(first.records, at)
    async with opened(agent(after, "done"), store) as (_, ref):
        await ref.wait_idle()
        assert await order(store, after=at) == f"{adds} SE SS1.2 H{{resume}} Q1 C* A SE TE1{{completed}}"
        calls = await events(store, e.ToolCalled)
        assert [c.replay for c in calls] == [before if cut == "call(c1)" else (after or "never")]


async def test_c264_the_call_is_on_disk_before_a_body_that_may_not_run_twice() -> None:
    seen: list[str] = []

    @tool
    async def once() -> str:
        """Must not run twice."""
        seen.append(await order(store))
        return "done"

    store = MemoryStore()
    async with opened(make(scripted(Reply.tools(("c1", "once", {})), "done"), tools=[once]), store) as (_, ref):
        await say(ref, "hi")
    assert seen == [f"{OPEN} call(c1)"]


async def test_a_body_that_a_plugin_runs_again_writes_nothing_twice() -> None:
    @tool
    async def write(ctx: ToolContext[Any]) -> str:
        """Asks another."""
        answer: str = (await ctx.ask("b", "one?")).text
        return answer

    class Again(Plugin):
        """Tries each call twice."""

        async def tool_around(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, CallResult]) -> CallResult:
            await next(call)
            return await next(call)

    store, other = MemoryStore(), make(scripted("yes", "no"), name="other")
    agent = make(scripted(Reply.tools(("c1", "write", {})), "done"), tools=[write], plugins=[Again()])
    async with opened(agent, store) as (system, ref):
        receiver = await system.spawn(other, id="b")
        await say(ref, "hi")
        await receiver.wait_idle()
        assert [put.message.text for put in await events(store, e.InboxPut, "b")] == ["one?"]
        (result,) = await events(store, e.ToolResult)
        assert CallResult(result.content).text == "yes"
