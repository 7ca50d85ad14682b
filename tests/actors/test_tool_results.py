"""Section 8 of the conformance cases: what becomes of one call, its arguments, its result, its deadline, and the seams around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from helpers import check, events, make, opened, order, records, say, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Allow, Plugin, System, ToolContext, ToolOutput, tool
from callboard.actors.answers import CallResult, Done, ToolCall, Verdict
from callboard.actors.limits import Limits
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Message, PluginSource, TextBlock

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A"
CLOSE = "SE SS1.2 Q1 C* A SE TE1{completed}"


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


@tool
async def divide(by: int) -> int:
    """Divides 12."""
    return 12 // by


@tool
async def liar() -> int:
    """Promises a number."""
    return "seven"  # type: ignore[return-value]  # pyright: ignore[reportReturnType]


async def results(store: Any) -> dict[str, tuple[str | None, str]]:
    """Call id → error code and text, as the log has them."""
    return {r.call_id: (r.error, CallResult(r.content).text) for r in await events(store, e.ToolResult)}


async def test_c120_what_goes_wrong_with_a_call_is_a_result_that_says_what_to_do() -> None:
    script = scripted(
        Reply.tools(
            ("c1", "lookup", {}),
            ("c2", "divide", {"by": "x"}),
            ("c3", "divide", {"by": 0}),
            ("c4", "liar", {}),
            ("c5", "divide", {}),
        ),
        "done",
    )
    async with opened(make(script, tools=[echo, divide, liar])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            f"{OPEN} call(c1) res(c1!UNKNOWN_TOOL) call(c2) res(c2!INVALID_ARGUMENTS) call(c3) res(c3!TOOL_ERROR) "
            f"call(c4) res(c4!INVALID_OUTPUT) call(c5) res(c5!INVALID_ARGUMENTS) {CLOSE}"
        )
        found = await results(system.store)
        assert "divide, echo, liar" in found["c1"][1]
        assert "again" in found["c2"][1]
        assert found["c3"][1].startswith("ZeroDivisionError")
        assert "may have worked" in found["c4"][1]
        asked = script.requests[1].messages
        assert {id: text for m in asked for id, text in m.results.items()} == {id: text for id, (_, text) in found.items()}
        assert all(getattr(block, "is_error", True) for m in asked[2:] for block in m.content)
        thrown = (await events(system.store, e.ToolResult))[2]
        assert thrown.meta is not None
        assert thrown.meta["causes"].startswith("ZeroDivisionError")


async def test_c121_arguments_that_are_no_json_are_kept_as_they_are() -> None:
    script = scripted(Reply.tools(("c1", "echo", '{"text": '), ("c2", "echo", ""), ("c3", "echo", "[1]")), "done")
    async with opened(make(script, tools=[echo])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            f"{OPEN} call(c1) res(c1!INVALID_ARGUMENTS) call(c2) res(c2) call(c3) res(c3!INVALID_ARGUMENTS) {CLOSE}"
        )
        called = await events(system.store, e.ToolCalled)
        assert [(c.arguments, c.effective) for c in called] == [('{"text": ', None), ("", None), ("[1]", None)]
        assert (await results(system.store))["c2"] == (None, "echo ")


def told(text: str) -> Message:
    """A plugin's own context."""
    return Message(f"told-{text}", "user", (TextBlock(text),), PluginSource("blocker"))


class After(Plugin):
    """Changes results: blocks c1, replaces the text of c2."""

    async def tool_after(self, ctx: SeamContext, done: Done, next: Next[Done, Done]) -> Done:
        done = await next(done)
        if done.call.id == "c1":
            own, content = done.result.context, (TextBlock("not allowed to know"),)
            context = (*own, told("mind the gap"))
            return Done(done.call, msgspec.structs.replace(done.result, content=content, error="BLOCKED", context=context))
        if done.call.id == "c3":
            return done.with_text("nor this", error="BLOCKED")
        return done.with_text("[redacted]")


@tool
async def talks() -> ToolOutput:
    """Has more to say than its content."""
    return ToolOutput("secret", context=["by the way"], meta={"cost": 3})


async def test_c122_c123_tool_after_blocks_and_replaces() -> None:
    script = scripted(Reply.tools(("c1", "talks", {}), ("c2", "talks", {}), ("c3", "talks", {})), "done")
    async with opened(make(script, tools=[talks], plugins=[After()])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            f"{OPEN} call(c1) res(c1!BLOCKED) call(c2) res(c2) call(c3) res(c3!BLOCKED) "
            "put[s](mind the gap) put[s](by the way) SE "
            "claim(mind the gap,by the way) SS1.2 U(mind the gap) U(by the way) Q1 C* A SE TE1{completed}"
        )
        blocked, replaced, other = await events(system.store, e.ToolResult)
        calls = [r.seq for r in await records(system.store) if isinstance(r.event, e.ToolCalled)]
        assert (replaced.sources, replaced.meta) == ((calls[1],), {"cost": 3})
        assert [CallResult(r.content).text for r in (blocked, replaced)] == ["not allowed to know", "[redacted]"]
        assert (other.meta, CallResult(other.content).text) == (None, "nor this")
        assert b"secret" not in b"".join(record.raw or b"" for record in await records(system.store))


async def test_c122_a_blocked_result_does_not_conclude() -> None:
    @tool
    async def ends() -> ToolOutput:
        """Would end the turn."""
        return ToolOutput("over", concludes=True)

    script = scripted(Reply.tools(("c1", "ends", {})), "done")
    async with opened(make(script, tools=[ends], plugins=[After()])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (
            f"{OPEN} call(c1) res(c1!BLOCKED) put[s](mind the gap) SE "
            "claim(mind the gap) SS1.2 U(mind the gap) Q1 C* A SE TE1{completed}"
        )


async def test_c124_a_text_that_looks_like_an_error_is_a_success() -> None:
    @tool
    async def says() -> str:
        """Says something that looks like an error."""
        return "Error: not really"

    script = scripted(Reply.tools(("c1", "says", {})), "done")
    async with opened(make(script, tools=[says])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} call(c1) res(c1) {CLOSE}"
        assert await results(system.store) == {"c1": (None, "Error: not really")}


class Rewrites(Plugin):
    """Lets calls run with other arguments."""

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        return Allow({"text": f"{call.args['text']}!"})


async def test_both_texts_of_rewritten_arguments_are_logged() -> None:
    script = scripted(Reply.tools(("c1", "echo", {"text": "x"})), "done")
    async with opened(make(script, tools=[echo], plugins=[Rewrites()])) as (system, ref):
        await say(ref, "hi")
        (called,) = await events(system.store, e.ToolCalled)
        assert (called.arguments, called.effective) == ('{"text":"x"}', '{"text":"x!"}')
        assert await results(system.store) == {"c1": (None, "echo x!")}


async def test_c129_a_tool_over_its_time_is_cut_or_given_up(autojump_clock: MockClock) -> None:
    seen: list[str] = []
    release = trio.Event()

    @tool(mode="parallel", timeout=3)
    async def slow() -> str:
        """Too slow, and ends when it is told to."""
        try:
            await trio.sleep_forever()
        finally:
            seen.append("cancelled")
        return ""

    @tool(mode="parallel", timeout=3)
    async def deaf() -> str:
        """Does not listen."""
        with trio.CancelScope(shield=True):
            await release.wait()
        return ""

    @tool(mode="parallel")
    async def fine() -> str:
        """Takes its time."""
        await trio.sleep(20)
        return "fine"

    script = scripted(Reply.tools(("c1", "slow", {}), ("c2", "deaf", {}), ("c3", "fine", {})), "done")
    async with opened(make(script, tools=[slow, deaf, fine], limits=Limits(abandon_s=5))) as (system, ref):
        began = trio.current_time()
        await say(ref, "hi")
        assert trio.current_time() - began == pytest.approx(20)
        assert await order(system.store) == (
            f"{OPEN} call(c1) call(c2) call(c3) res(c1!TIMEOUT) res(c2!ABANDONED) res(c3) {CLOSE}"
        )
        assert seen == ["cancelled"]
        assert system.statistics()["strays"] == ("deaf of a (c2)",)
        release.set()
        await wait_all_tasks_blocked(0.01)
        assert system.statistics()["strays"] == ()


def lives(pid: int) -> bool:
    """Whether the process is there, and more than a zombie that waits for init."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
async def test_c130_a_cancel_leaves_no_process_of_the_group(tmp_path: Path) -> None:
    started = trio.Event()

    @tool
    async def shell(ctx: ToolContext[Any]) -> str:
        """Starts a program that starts another."""
        script = f"sleep 100 & echo $! > {tmp_path}/inner; echo $$ > {tmp_path}/outer; wait"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ctx.process, "sh", "-c", script)
            while not (tmp_path / "outer").exists():
                await trio.lowlevel.checkpoint()
            started.set()
        return ""

    async with opened(make(scripted(Reply.tools(("c1", "shell", {}))), tools=[shell])) as (system, ref):
        await ref.followup("hi")
        with trio.fail_after(60):
            await started.wait()
            await ref.cancel()
            await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} call(c1) TC1 res(c1!ABORTED) SE TE1{{aborted user}}"
    for name in ("outer", "inner"):
        assert not lives(int((tmp_path / name).read_text()))


async def test_c131_a_context_says_where_the_call_is() -> None:
    seen: list[Any] = []

    @tool
    async def look(ctx: ToolContext[str]) -> str:
        """Looks at its context."""
        seen.append((ctx.agent.id, ctx.turn, ctx.step, ctx.call_id, ctx.deps, ctx.route, ctx.sender, dict(ctx.labels)))
        seen.append((ctx.effect_key, ctx.scope.cancel_called))
        return "looked"

    script = scripted(Reply.tools(("c1", "look", {})), "done")
    agent = make(script, tools=[look])
    store = MemoryStore()
    async with System.open(store, agents=[agent], deps="deps") as system:
        ref = await system.spawn(agent, id="a", labels={"team": "red"})
        await say(ref, "hi", sender="ann", route={"channel": "irc", "chat": "1"})
        assert await order(store) == f"{OPEN} call(c1) res(c1) {CLOSE} out"
    route = e.Route("irc", "1")
    assert seen[0] == ("a", 1, 1, "c1", "deps", route, "ann", {"team": "red"})
    key, cancelled = seen[1]
    assert key and not cancelled
    await check(store)


async def test_c132_the_schema_of_a_tool_is_in_the_header() -> None:
    class Place(msgspec.Struct):
        city: str
        country: str = "NO"

    @tool
    async def book(name: str, days: list[int], where: Place, rooms: int = 1) -> str:
        """Book a stay.

        Args:
            name: of the guest.
        """
        return f"{name} {days} {where.city} {where.country} {rooms}"

    good = {"name": "Ann", "days": [1, 2], "where": {"city": "Oslo"}}
    script = scripted(Reply.tools(("c1", "book", good), ("c2", "book", {**good, "pets": 2})), "done")
    async with opened(make(script, tools=[book])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} call(c1) res(c1) call(c2) res(c2!INVALID_ARGUMENTS) {CLOSE}"
        (header,) = await events(system.store, e.RequestHeader)
        assert header.header is not None
        (spec,) = header.header.tools
        assert (spec.name, spec.description) == ("book", "Book a stay.")
        assert spec.schema == book.schema
        assert spec.schema["required"] == ["name", "days", "where"]
        assert spec.schema["properties"]["rooms"]["default"] == 1
        assert spec.schema["properties"]["name"]["description"] == "of the guest."
        assert (await results(system.store))["c1"] == (None, "Ann [1, 2] Oslo NO 1")
