"""Section 6 of the conformance cases: what a failed request does to its step, with small policies of the tests' own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from helpers import events, history, make, notation, opened, order, records, say, scripted
from trio.testing import MockClock

from callboard.actors import Boundary, Enter, LimitReached, ModelError, Plugin, Proposal, Reject, Resend, tool
from callboard.actors.answers import Failed, Stopping, ToolCall, Verdict
from callboard.actors.limits import Limits
from callboard.actors.models.model import RetryPolicy
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.messages import Chunk, Failure, Request

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X"
"""How every turn here begins."""


@tool
async def echo(text: str = "") -> str:
    """Say it again."""
    return f"echo {text}"


class Recovery(Plugin):
    """Sends failed requests again as often as it is told to, and keeps what it is told."""

    def __init__(self, times: int = 99) -> None:
        self.times = times
        self.asked: list[Failed] = []
        self.where: list[tuple[int, int]] = []
        self.failures: list[Failure] = []
        self.statuses: list[str] = []

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
        self.asked.append(failed)
        self.where.append((ctx.turn, ctx.step))
        return Resend() if len(self.asked) <= self.times else await next(failed)

    async def on_error(self, ctx: SeamContext, failure: Failure) -> None:
        self.failures.append(failure)

    async def on_status(self, ctx: SeamContext, status: str) -> None:
        self.statuses.append(status)


def error_of(end: e.TurnEnd) -> Failure:
    """The failure that a turn ended with."""
    assert isinstance(end.reason, e.Errored)
    return end.reason.error


async def test_c080_a_seam_that_retries_keeps_the_step_open() -> None:
    seen = Recovery()
    agent = make(scripted(Reply.fail("X"), Reply.fail("X"), "done"), plugins=[seen])
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{retry}} Q2 F2{{retry}} Q3 C* A SE TE1{{completed}}"
    assert [failed.attempt for failed in seen.asked] == [1, 2]
    assert seen.where == [(1, 1), (1, 1)]
    assert seen.statuses == ["running", "idle"]
    assert seen.failures == []


async def test_c081_a_failure_that_nobody_recovers_ends_the_turn_exactly_as_it_was() -> None:
    failure = Failure("RATE_LIMIT", "slow down", 429, 2.0, "req-7")
    error = ModelError("RATE_LIMIT", "slow down", status=429, retry_after_s=2, request_id="req-7")
    seen = Recovery(times=0)
    async with opened(make(scripted(Reply.raises(error)), plugins=[seen])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{raise}} SE TE1{{error}}"
        (end,) = await events(system.store, e.TurnEnd)
        (failed,) = await events(system.store, e.RequestFailed)
        assert error_of(end) == failure
        assert (failed.failure, failed.attempt, failed.delay_s) == (failure, 1, None)
    assert seen.failures == [failure]


async def test_c082_an_aborted_finish_that_nobody_asked_for_is_an_error() -> None:
    async with opened(make(scripted(Reply.chunks([c.finish("aborted")])))) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 C* F1{{raise}} SE TE1{{error}}"
        (end,) = await events(system.store, e.TurnEnd)
        assert error_of(end).code == "ABORTED"


async def test_c083_half_a_call_of_a_failed_attempt_is_gone() -> None:
    half: list[Chunk] = [
        *Reply.tools(("c1", "echo", {"text": "x"})).opening[:2],
        c.finish("error", failure=Failure("SERVER", "broke")),
    ]
    script = scripted(Reply.chunks(half), "done")
    async with opened(make(script, tools=[echo], plugins=[Recovery()])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 C* F1{{retry}} Q2 C* A SE TE1{{completed}}"
        assert await history(ref) == ["user hi", "assistant done"]
        (answer,) = await events(system.store, e.AssistantMessage)
        log = await records(system.store)
        second = next(r.seq for r in log if isinstance(r.event, e.RequestSent) and r.event.attempt == 2)
        assert answer.sources and min(answer.sources) > second


class Throws(Plugin):
    """Throws when a failure is offered."""

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
        raise RuntimeError("my own bug")


async def test_c084_a_throw_of_the_seam_ends_the_turn_with_it() -> None:
    script = scripted(Reply.fail("SERVER", "broke"), "done")
    async with opened(make(script, plugins=[Throws()])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{raise}} SE TE1{{error}}"
        (end,) = await events(system.store, e.TurnEnd)
        (failed,) = await events(system.store, e.RequestFailed)
        assert failed.failure.code == "SERVER"
        assert error_of(end).code == "UNKNOWN"
        assert error_of(end).message == "RuntimeError: my own bug ← ModelError: broke"
        assert len(script.requests) == 1


class Coded(Recovery):
    """Refuses every request by a code."""

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
        raise ModelError("NO_CREDIT", "the customer has none left", status=402)


async def test_c085_a_coded_throw_of_the_request_seam_is_not_offered_to_recovery() -> None:
    seen = Coded()
    async with opened(make(scripted("done"), plugins=[seen])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == "put[t](hi) TS1 claim(hi) SS1.1 U(hi) SE TE1{error}"
        (end,) = await events(system.store, e.TurnEnd)
        assert error_of(end) == Failure("NO_CREDIT", "the customer has none left", 402)
    assert seen.asked == []


async def test_c086_a_final_error_keeps_what_was_visible_marked_as_cut() -> None:
    script = scripted(Reply.fail("SERVER", after="so far"), "done")
    async with opened(make(script)) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 C* F1{{raise}} A{{cut}} SE TE1{{error}}"
        assert await history(ref) == ["user hi", "assistant so far"]
        (cut,) = await events(system.store, e.AssistantMessage)
        chunks = [r.seq for r in await records(system.store) if isinstance(r.event, e.AssistantChunk)]
        assert (cut.interrupted, cut.finish, cut.sources) == (True, "aborted", tuple(chunks))


class Elsewhere(Recovery):
    """Sends the second attempt to another model."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
        self.calls += 1
        return await next(proposal if self.calls == 1 else Proposal("backup", "small", proposal.settings))


async def test_c092_another_provider_for_the_second_attempt() -> None:
    seen = Elsewhere()
    own, theirs = RetryPolicy(tries=2, first_s=1), RetryPolicy(tries=9)
    first = ScriptedModel([Reply.fail("SERVER")], retry=own)
    backup = ScriptedModel([Reply.text("done")], provider="backup", name="small", retry=theirs)
    async with opened(make(first, plugins=[seen]), models={"backup": backup}) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{retry}} H{{change}} X Q2 C* A SE TE1{{completed}}"
    (asked,) = seen.asked
    assert (asked.provider, asked.policy) == ("scripted", own)
    assert [r.provider for r in (*first.requests, *backup.requests)] == ["scripted", "backup"]


async def test_c093_a_script_that_runs_out_fails_the_turn_and_the_agent_lives_on() -> None:
    script = scripted("one")
    async with opened(make(script)) as (system, ref):
        await say(ref, "hi")
        await say(ref, "on")
        await say(ref, "more")
        ends = await events(system.store, e.TurnEnd)
        assert [end.reason.kind for end in ends] == ["completed", "error", "error"]
        assert {error_of(end).code for end in ends[1:]} == {"SCRIPT_EXHAUSTED"}
        assert notation(await records(system.store)).endswith(
            "put[t](more) TS3 claim(more) SS3.1 U(more) Q1 F1{raise} SE TE3{error}"
        )
        assert ref.status == "idle"


@pytest.mark.parametrize(
    ("reply", "says"),
    [(Reply.hang(), "first chunk"), (Reply.hang("half"), "nothing for 7 s")],
    ids=["connect and first chunk", "gap"],
)
async def test_c094_the_loop_owns_the_deadlines(autojump_clock: MockClock, reply: Reply, says: str) -> None:
    limits = Limits(connect_s=2, first_chunk_s=3, chunk_gap_s=7)
    seen = Recovery()
    async with opened(make(scripted(reply, "done"), limits=limits, plugins=[seen])) as (system, ref):
        began = autojump_clock.current_time()
        await say(ref, "hi")
        chunks = "C* " if "half" in repr(reply) else ""
        assert await order(system.store) == f"{OPEN} Q1 {chunks}F1{{retry}} Q2 C* A SE TE1{{completed}}"
        assert autojump_clock.current_time() - began == pytest.approx(7 if chunks else 5)
    (asked,) = seen.asked
    assert asked.failure.code == "TIMEOUT"
    assert says in asked.failure.message


class Middleware(Recovery):
    """Throws in the middle of a stream."""

    async def stream(
        self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]]
    ) -> AsyncIterator[Chunk]:
        async for chunk in next(request):
            yield chunk
            raise ValueError("bad filter")


async def test_c095_a_throw_of_stream_middleware_ends_the_turn() -> None:
    seen = Middleware()
    async with opened(make(scripted("one", "two"), plugins=[seen])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 C* F1{{raise}} SE TE1{{error}}"
        (failed,) = await events(system.store, e.RequestFailed)
        assert failed.failure.message == "ValueError: bad filter"
    assert seen.asked == []


async def test_c096_a_throw_of_unknown_class_is_its_chain_of_causes() -> None:
    def broken(request: Request) -> Reply:
        try:
            raise KeyError("token")
        except KeyError as error:
            raise ValueError("cannot sign") from error

    async with opened(make(scripted(broken))) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{raise}} SE TE1{{error}}"
        (end,) = await events(system.store, e.TurnEnd)
        assert error_of(end) == Failure("UNKNOWN", "ValueError: cannot sign ← KeyError: 'token'")
        assert b"Traceback" not in b"".join(record.raw or b"" for record in await records(system.store))


async def test_c097_a_providers_error_never_enters_history() -> None:
    script = scripted(Reply.fail("SERVER", "secret stack of the provider"), "done")
    async with opened(make(script)) as (system, ref):
        await say(ref, "hi")
        await say(ref, "on")
        assert [m.text for m in script.requests[1].messages] == ["hi", "on"]
        assert await order(system.store) == (
            f"{OPEN} Q1 F1{{raise}} SE TE1{{error}} put[t](on) TS2 claim(on) SS2.1 U(on) Q1 C* A SE TE2{{completed}}"
        )


class Limit(Plugin):
    """Reaches a limit at one seam."""

    def __init__(self, at: str) -> None:
        self.at = at

    def _here(self, seam: str) -> None:
        if seam == self.at:
            raise LimitReached("money", "nothing left")

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        self._here("pre_step")
        return await next(boundary)

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal]) -> Proposal:
        self._here("request")
        return await next(proposal)

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None]) -> Resend | None:
        self._here("request_error")
        return await next(failed)

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        if call.id == "c2":
            self._here("tool_before")
        return await next(call)

    async def guard(self, ctx: SeamContext, call: ToolCall) -> str | None:
        if call.id == "c2":
            self._here("guard")
        return None

    async def tool_around(self, ctx: SeamContext, call: ToolCall, next: Any) -> Any:
        if call.id == "c2":
            self._here("tool_around")
        return await next(call)

    async def tool_after(self, ctx: SeamContext, done: Any, next: Any) -> Any:
        if done.call.id == "c2":
            self._here("tool_after")
        return await next(done)

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
        self._here("turn_stopping")


@tool
async def spent() -> str:
    """Reaches a limit by itself."""
    raise LimitReached("money", "nothing left")


LIMITS = {
    "pre_step": "put[t](hi) TS1 claim(hi) TE1{limit}",
    "request": "put[t](hi) TS1 claim(hi) SS1.1 U(hi) SE TE1{limit}",
    "tool_before": f"{OPEN} Q1 C* A call(c1) res(c1) call(c2) res(c2!LIMIT) res(c3!NOT_STARTED) SE TE1{{limit}}",
    "guard": f"{OPEN} Q1 C* A call(c1) res(c1) call(c2) res(c2!LIMIT) res(c3!NOT_STARTED) SE TE1{{limit}}",
    "tool_around": f"{OPEN} Q1 C* A call(c1) res(c1) call(c2) res(c2!LIMIT) res(c3!NOT_STARTED) SE TE1{{limit}}",
    "body": f"{OPEN} Q1 C* A call(c1) res(c1) call(c2) res(c2!LIMIT) res(c3!NOT_STARTED) SE TE1{{limit}}",
    "tool_after": f"{OPEN} Q1 C* A call(c1) res(c1) call(c2) res(c2) res(c3!NOT_STARTED) SE TE1{{limit}}",
}


@pytest.mark.parametrize("at", list(LIMITS))
async def test_c260_a_limit_ends_the_turn_and_every_call_has_a_result(at: str) -> None:
    second = "spent" if at == "body" else "echo"
    script = scripted(Reply.tools(("c1", "echo", {}), ("c2", second, {}), ("c3", "echo", {})), "done")
    async with opened(make(script, tools=[echo, spent], plugins=[Limit(at)])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == LIMITS[at]
        (end,) = await events(system.store, e.TurnEnd)
        assert end.reason == e.Limited("money", "nothing left")
        assert end.park


async def test_c260_a_limit_at_a_failure_closes_the_request() -> None:
    async with opened(make(scripted(Reply.fail("SERVER"), "done"), plugins=[Limit("request_error")])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 F1{{raise}} SE TE1{{limit}}"


async def test_c260_a_limit_when_the_turn_stops() -> None:
    async with opened(make(scripted("done"), plugins=[Limit("turn_stopping")])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == f"{OPEN} Q1 C* A SE TE1{{limit}}"


async def test_c260_a_limit_in_one_of_parallel_bodies_lets_the_others_end() -> None:
    @tool(mode="parallel")
    async def side() -> str:
        """Runs beside others."""
        return "side"

    @tool(mode="parallel")
    async def over() -> str:
        """Reaches a limit."""
        raise LimitReached("money")

    script = scripted(Reply.tools(("c1", "over", {}), ("c2", "side", {})), "done")
    async with opened(make(script, tools=[side, over])) as (system, ref):
        await say(ref, "hi")
        assert await order(system.store) == (f"{OPEN} Q1 C* A call(c1) call(c2) res(c1!LIMIT) res(c2) SE TE1{{limit}}")
