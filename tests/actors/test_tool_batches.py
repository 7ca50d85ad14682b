"""Section 8 of the conformance cases: the calls of one answer as a batch, side by side or alone, written in the model's order."""

from __future__ import annotations

from typing import Any

import trio
from helpers import events, history, make, opened, order, say, scripted
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Deny, Plugin, ToolContext, ToolError, ToolOutput, tool
from callboard.actors.answers import CallResult, Done, ToolCall, Verdict
from callboard.actors.limits import Limits
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.messages import ToolCallBlock

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A"
CLOSE = "SE SS1.2 Q1 C* A SE TE1{completed}"


class Stage:
    """Bodies that begin, wait until they are let go, and end; and what happened, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.running: set[str] = set()
        self.most = 0
        self._gates: dict[str, trio.Event] = {}

    def gate(self, name: str) -> trio.Event:
        """What the body waits for."""
        return self._gates.setdefault(name, trio.Event())

    async def play(self, name: str) -> str:
        """One body."""
        self.seen.append(f"begin {name}")
        self.running.add(name)
        self.most = max(self.most, len(self.running))
        try:
            await self.gate(name).wait()
        finally:
            self.running.discard(name)
        self.seen.append(f"end {name}")
        return name

    @property
    def tools(self) -> list[Any]:
        """One that runs beside others, one that runs alone."""

        @tool(mode="parallel")
        async def side(name: str) -> str:
            """Runs beside others of its kind."""
            return await self.play(name)

        @tool
        async def alone(name: str) -> str:
            """Runs alone."""
            return await self.play(name)

        return [side, alone]


def calls(*kinds: str) -> Reply:
    """An answer of these calls: `s` beside others, `a` alone; their ids and names are c1, c2 and so on."""
    names = {"s": "side", "a": "alone"}
    return Reply.tools(*((f"c{n}", names[kind], {"name": f"c{n}"}) for n, kind in enumerate(kinds, 1)))


async def test_c113_three_parallel_calls_all_begin_before_any_ends() -> None:
    stage = Stage()
    async with opened(make(scripted(calls("s", "s", "s"), "done"), tools=stage.tools)) as (system, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        assert sorted(stage.seen) == ["begin c1", "begin c2", "begin c3"]
        for name in ("c1", "c2", "c3"):
            stage.gate(name).set()
        await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} call(c1) call(c2) call(c3) res(c1) res(c2) res(c3) {CLOSE}"


async def test_c114_no_result_is_written_before_those_before_it() -> None:
    stage = Stage()
    async with opened(make(scripted(calls("s", "s"), "done"), tools=stage.tools)) as (system, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        stage.gate("c2").set()
        await wait_all_tasks_blocked()
        assert stage.seen[-1] == "end c2"
        assert await order(system.store) == f"{OPEN} call(c1) call(c2)"
        stage.gate("c1").set()
        await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} call(c1) call(c2) res(c1) res(c2) {CLOSE}"


async def test_c115_a_pool_of_two_never_runs_more_than_two_bodies() -> None:
    stage = Stage()
    agent = make(scripted(calls("s", "s", "s", "s"), "done"), tools=stage.tools, limits=Limits(parallel=2))
    async with opened(agent) as (system, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        assert stage.running == {"c1", "c2"}
        stage.gate("c2").set()
        await wait_all_tasks_blocked()
        assert stage.running == {"c1", "c3"}
        stage.gate("c1").set()
        await wait_all_tasks_blocked()
        assert stage.running == {"c3", "c4"}
        for name in ("c3", "c4"):
            stage.gate(name).set()
        await ref.wait_idle()
        assert stage.most == 2
        assert await order(system.store) == (
            f"{OPEN} call(c1) call(c2) call(c3) res(c1) res(c2) call(c4) res(c3) res(c4) {CLOSE}"
        )


async def test_c115_a_pool_of_one_is_serial() -> None:
    stage = Stage()
    agent = make(scripted(calls("s", "s"), "done"), tools=stage.tools, limits=Limits(parallel=1))
    async with opened(agent) as (system, ref):
        for name in ("c1", "c2"):
            stage.gate(name).set()
        await say(ref, "hi")
        assert stage.most == 1
        assert await order(system.store) == f"{OPEN} call(c1) res(c1) call(c2) res(c2) {CLOSE}"


async def test_c116_an_exclusive_call_is_a_barrier() -> None:
    stage = Stage()
    async with opened(make(scripted(calls("s", "a", "s"), "done"), tools=stage.tools)) as (system, ref):
        await ref.followup("hi")
        groups: list[set[str]] = []
        for name in ("c1", "c2", "c3"):
            await wait_all_tasks_blocked()
            groups.append(set(stage.running))
            stage.gate(name).set()
        await ref.wait_idle()
        assert groups == [{"c1"}, {"c2"}, {"c3"}]
        assert await order(system.store) == f"{OPEN} call(c1) res(c1) call(c2) res(c2) call(c3) res(c3) {CLOSE}"


class Watches(Plugin):
    """Keeps the order in which it is asked."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.after: list[str] = []

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        self.before.append(call.id)
        return await next(call)

    async def tool_after(self, ctx: SeamContext, done: Done, next: Next[Done, Done]) -> Done:
        self.after.append(done.call.id)
        return await next(done)


async def test_c117_seams_are_called_in_the_models_order_though_bodies_end_reversed() -> None:
    stage, watches = Stage(), Watches()
    agent = make(scripted(calls("s", "s", "s"), "done"), tools=stage.tools, plugins=[watches])
    async with opened(agent) as (system, ref):
        await ref.followup("hi")
        for name in ("c3", "c2", "c1"):
            await wait_all_tasks_blocked()
            stage.gate(name).set()
        await ref.wait_idle()
        assert [text for text in stage.seen if text.startswith("end")] == ["end c3", "end c2", "end c1"]
        assert watches.before == watches.after == ["c1", "c2", "c3"]
        assert await order(system.store) == f"{OPEN} call(c1) call(c2) call(c3) res(c1) res(c2) res(c3) {CLOSE}"


class Denies(Plugin):
    """Denies c2 and fails at c3."""

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        if call.id == "c2":
            return Deny("not on Sundays")
        if call.id == "c3":
            raise RuntimeError("my own bug")
        return await next(call)


async def test_c118_a_denied_call_and_a_throw_are_results_that_the_model_reads() -> None:
    stage = Stage()
    script = scripted(calls("s", "s", "s"), "done")
    async with opened(make(script, tools=stage.tools, plugins=[Denies()])) as (system, ref):
        await ref.followup("hi")
        stage.gate("c1").set()
        await ref.wait_idle()
        assert stage.seen == ["begin c1", "end c1"]
        assert await order(system.store) == (
            f"{OPEN} call(c1) res(c1) call(c2) res(c2!DENIED) call(c3) res(c3!TOOL_ERROR) {CLOSE}"
        )
        read = {id: text for message in script.requests[1].messages for id, text in message.results.items()}
        assert read == {"c1": "c1", "c2": "not on Sundays", "c3": "RuntimeError: my own bug"}


async def test_c118_a_refused_call_is_written_with_its_result() -> None:
    stage = Stage()
    script = scripted(
        calls("s", "s"), Reply.tools(("c4", "side", {"name": "c4"}), ("c2", "side", {}), ("c5", "side", {"name": "c5"})), "done"
    )
    async with opened(make(script, tools=stage.tools, plugins=[Denies()])) as (system, ref):
        for name in ("c1", "c4", "c5"):
            stage.gate(name).set()
        await say(ref, "hi")
        assert await order(system.store) == (
            f"{OPEN} call(c1) res(c1) call(c2) res(c2!DENIED) SE SS1.2 Q1 C* A "
            "call(c4) call(c5) res(c4) call(c2) res(c2!DENIED) res(c5) SE SS1.3 Q1 C* A SE TE1{completed}"
        )


class CancelsFirst(Plugin):
    """Cancels the turn before any call of it begins."""

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        await ctx.agent.cancel()
        return await next(call)


async def test_c125_a_cancel_before_the_batch_starts_no_body() -> None:
    for kinds in ("s", "a", "ss", "as"):
        stage = Stage()
        script = scripted(calls(*kinds), "next")
        async with opened(make(script, tools=stage.tools, plugins=[CancelsFirst()])) as (system, ref):
            await say(ref, "hi")
            results = " ".join(f"res(c{n}!ABORTED_BEFORE_DISPATCH)" for n in range(1, len(kinds) + 1))
            first = f"{OPEN} TC1 {results} SE TE1{{aborted user}}"
            assert await order(system.store) == first
            assert stage.seen == []
            await say(ref, "on")
            assert [m.role for m in script.requests[1].messages] == ["user", "assistant", *["tool"] * len(kinds), "user"]
            assert await order(system.store) == f"{first} put[t](on) TS2 claim(on) SS2.1 U(on) Q1 C* A SE TE2{{completed}}"


async def test_c126_a_tools_own_error_after_a_cancel_is_logged() -> None:
    @tool
    async def stubborn() -> str:
        """Fails in its own way when it is told to stop."""
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            raise ToolError("half of it is done", code="HALF") from None
        return ""

    script = scripted(Reply.tools(("c1", "stubborn", {}), ("c2", "stubborn", {})))
    async with opened(make(script, tools=[stubborn])) as (system, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
        assert await order(system.store) == (
            f"{OPEN} call(c1) TC1 res(c1!HALF) res(c2!ABORTED_BEFORE_DISPATCH) SE TE1{{aborted user}}"
        )
        (own, _) = await events(system.store, e.ToolResult)
        assert CallResult(own.content).text == "half of it is done"


class Random(Plugin):
    """Throws where a test says so, by seam and call."""

    def __init__(self, throws: set[tuple[str, str]]) -> None:
        self.throws = throws

    def _maybe(self, seam: str, call: str) -> None:
        if (seam, call) in self.throws:
            raise RuntimeError(seam)

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        self._maybe("before", call.id)
        verdict = await next(call)
        self._maybe("before out", call.id)
        return verdict

    async def guard(self, ctx: SeamContext, call: ToolCall) -> str | None:
        self._maybe("guard", call.id)
        return None

    async def tool_around(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, CallResult]) -> CallResult:
        self._maybe("around", call.id)
        result = await next(call)
        self._maybe("around out", call.id)
        return result

    async def tool_after(self, ctx: SeamContext, done: Done, next: Next[Done, Done]) -> Done:
        self._maybe("after", call := done.call.id)
        after = await next(done)
        self._maybe("after out", call)
        return after


SEAMS = ("before", "before out", "guard", "around", "around out", "after", "after out")
IDS = ("c1", "c2", "c3", "c4")


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from(["side", "alone", "unknown", "concluding"]), min_size=1, max_size=4),
    st.sets(st.tuples(st.sampled_from(SEAMS), st.sampled_from(IDS)), max_size=4),
)
def test_c127_every_call_has_one_result_whatever_a_plugin_throws(names: list[str], throws: set[tuple[str, str]]) -> None:
    trio.run(_one_result_each, names, throws)


async def _one_result_each(names: list[str], throws: set[tuple[str, str]]) -> None:
    @tool
    async def concluding(name: str) -> ToolOutput:
        """Ends the turn."""
        return ToolOutput(name, concludes=True, context=[f"from {name}"])

    stage = Stage()
    for id in IDS:
        stage.gate(id).set()
    script = scripted(Reply.tools(*((id, name, {"name": id}) for id, name in zip(IDS, names, strict=False))), "done", "more")
    async with opened(make(script, tools=[*stage.tools, concluding], plugins=[Random(throws)])) as (system, ref):
        await say(ref, "hi")
        called = [event.call_id for event in await events(system.store, e.ToolCalled)]
        results = await events(system.store, e.ToolResult)
        asked = list(IDS[: len(names)])
        assert [result.call_id for result in results] == asked
        assert sorted(called) == asked
        failed = {call for _, call in throws} | {id for id, name in zip(IDS, names, strict=False) if name == "unknown"}
        assert {result.call_id for result in results if result.error} == failed & set(asked)


async def test_c128_the_second_of_two_calls_with_one_id_gets_its_own() -> None:
    stage = Stage()
    script = scripted(Reply.tools(("c1", "side", {"name": "x"}), ("c1", "side", {"name": "y"})), "done")
    async with opened(make(script, tools=stage.tools)) as (system, ref):
        for name in "xy":
            stage.gate(name).set()
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} call(c1) call(c1~2) res(c1) res(c1~2) {CLOSE}"
        asking = script.requests[1].messages[1]
        assert [block.id for block in asking.content if isinstance(block, ToolCallBlock)] == ["c1", "c1~2"]
        assert [m.results for m in script.requests[1].messages[2:]] == [{"c1": "x"}, {"c1~2": "y"}]


class SteersFirst(Plugin):
    """Steers before the first call of a batch starts."""

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        if call.id == "c1":
            await ctx.agent.steer("rather not", message_id="steer")
        return await next(call)


async def test_c134_a_steer_before_the_first_call_waits_for_the_batch() -> None:
    stage = Stage()
    async with opened(make(scripted(calls("a", "a"), "done"), tools=stage.tools, plugins=[SteersFirst()])) as (system, ref):
        for name in ("c1", "c2"):
            stage.gate(name).set()
        await say(ref, "hi")
        assert await order(system.store) == (
            f"{OPEN} put[s](rather not) call(c1) res(c1) call(c2) res(c2) SE "
            "claim(rather not) SS1.2 U(rather not) Q1 C* A SE TE1{completed}"
        )
        assert await history(ref) == ["user hi", "assistant ", "tool c1", "tool c2", "user rather not", "assistant done"]


async def test_c062_a_tool_may_cancel_its_own_turn() -> None:
    """Beside the batch: what it returns is its result, what it waits for is cut."""

    @tool
    async def stop(ctx: ToolContext[Any], wait: bool) -> str:
        """Cancels the turn that it is part of."""
        await ctx.agent.cancel()
        if wait:
            await trio.sleep_forever()
        return "stopped"

    for wait, result in ((False, "res(c1)"), (True, "res(c1!ABORTED)")):
        async with opened(make(scripted(Reply.tools(("c1", "stop", {"wait": wait}))), tools=[stop])) as (system, ref):
            await say(ref, "hi")
            assert await order(system.store) == f"{OPEN} call(c1) TC1 {result} SE TE1{{aborted user}}"
