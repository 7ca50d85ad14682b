"""Bodies of tools: whatever a body does and whatever happens to its caller, there is one outcome."""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.tools.bodies import BodyOutcome, Strays, run_body

Body = Callable[[], Awaitable[Any]]


class Runner:
    """A nursery for bodies, and what their caller needs."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.nursery = nursery
        self.strays = Strays()
        self.late: list[BodyOutcome] = []
        self.outcomes: list[BodyOutcome] = []
        self.scope = trio.CancelScope()
        self.caller = trio.CancelScope()

    async def run(self, body: Body, *, timeout: float | None = None, abandon_s: float = 5, **options: Any) -> BodyOutcome:
        """In this task; the outcome is kept, too, since a cancelled caller cannot return one."""
        with self.caller:
            outcome = await run_body(
                self.nursery,
                body,
                name="lookup c1",
                scope=self.scope,
                timeout=timeout,
                abandon_s=abandon_s,
                on_stray=self.late.append,
                strays=self.strays,
                **options,
            )
            self.outcomes.append(outcome)
            return outcome
        raise AssertionError("run_body raised Cancelled")

    async def run_cancelled(self, body: Body, **options: Any) -> BodyOutcome:
        """The caller is cancelled when the body waits for something."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: self.run(body, **options))
            await wait_all_tasks_blocked()
            self.caller.cancel()
        return self.outcomes[0]


async def sleep() -> None:
    await trio.sleep(1000)


async def stubborn() -> str:
    with trio.CancelScope(shield=True):
        await trio.sleep(60)
    return "late"


async def test_a_value_is_the_outcome() -> None:
    async def body() -> int:
        await trio.lowlevel.checkpoint()
        return 7

    async with trio.open_nursery() as nursery:
        assert await Runner(nursery).run(body) == BodyOutcome("value", value=7)


async def test_a_throw_is_an_outcome_and_does_not_reach_the_nursery() -> None:
    error = ValueError("no such city")

    async def body() -> None:
        raise error

    async with trio.open_nursery() as nursery:
        outcome = await Runner(nursery).run(body)
    assert outcome == BodyOutcome("error", error=error)


async def test_a_call_that_fails_before_it_is_a_coroutine_is_an_error() -> None:
    def body() -> Any:
        raise TypeError("takes no arguments")

    async with trio.open_nursery() as nursery:
        assert type((await Runner(nursery).run(body)).error) is TypeError


async def test_c129_a_body_over_its_time_is_cancelled(autojump_clock: MockClock) -> None:
    delivered: list[float] = []

    async def body() -> None:
        try:
            await sleep()
        finally:
            delivered.append(trio.current_time() - start)

    async with trio.open_nursery() as nursery:
        runner, start = Runner(nursery), trio.current_time()
        outcome = await runner.run(body, timeout=3)
    assert outcome == BodyOutcome("timeout")
    assert delivered == [3]
    assert runner.strays.names == ()


async def test_c129_a_body_that_ignores_its_deadline_is_abandoned_and_its_siblings_are_not(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        runner, sibling, start = Runner(nursery), Runner(nursery), trio.current_time()

        async def body() -> str:
            await trio.sleep(20)
            return "sibling"

        nursery.start_soon(lambda: sibling.run(body, timeout=30))
        outcome = await runner.run(stubborn, timeout=3, abandon_s=5)
        assert (outcome.end, trio.current_time() - start) == ("abandoned", 8)
        assert list(runner.strays) == ["lookup c1"]
        assert not runner.late
    # The nursery has joined the stray; its late outcome went to whoever asked for it.
    assert runner.late == [BodyOutcome("value", value="late")]
    assert len(runner.strays) == 0
    assert sibling.outcomes == [BodyOutcome("value", value="sibling")]


async def test_a_zero_timeout_is_no_time(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        assert (await Runner(nursery).run(sleep, timeout=0)).end == "timeout"


async def test_a_body_cannot_extend_its_own_deadline(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        runner, start = Runner(nursery), trio.current_time()

        async def body() -> None:
            assert runner.scope.deadline == start + 3
            runner.scope.deadline = float("inf")
            await sleep()

        assert (await runner.run(body, timeout=3)).end == "timeout"
        assert trio.current_time() == start + 3


async def test_a_body_that_shortens_its_deadline_times_out(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        runner = Runner(nursery)

        async def body() -> None:
            runner.scope.deadline = trio.current_time() + 1
            await sleep()

        assert (await runner.run(body, timeout=30)).end == "timeout"


async def test_what_a_body_returns_after_its_time_is_over_still_counts(autojump_clock: MockClock) -> None:
    async def body() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(4)
        return "done"

    async with trio.open_nursery() as nursery:
        assert (await Runner(nursery).run(body, timeout=3)) == BodyOutcome("value", value="done")


async def test_cancelling_the_caller_cancels_the_body_and_run_body_returns() -> None:
    async with trio.open_nursery() as nursery:
        runner = Runner(nursery)
        assert await runner.run_cancelled(sleep) == BodyOutcome("aborted", caller_cancelled=True)
        assert runner.scope.cancel_called


async def test_the_caller_notices_its_cancellation_at_its_next_checkpoint() -> None:
    noticed: list[bool] = []

    async def caller() -> None:
        await runner.run(sleep)
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled:
            noticed.append(True)
            raise

    async with trio.open_nursery() as nursery:
        runner = Runner(nursery)
        runner.caller = trio.CancelScope()
        async with trio.open_nursery() as inner:
            inner.start_soon(caller)
            await wait_all_tasks_blocked()
            inner.cancel_scope.cancel()
    assert noticed == [True]
    assert runner.outcomes[0].caller_cancelled


async def test_c126_a_bodys_own_error_after_a_cancel_is_the_outcome() -> None:
    async def body() -> None:
        try:
            await sleep()
        except trio.Cancelled:
            raise ConnectionError("half written") from None

    async with trio.open_nursery() as nursery:
        outcome = await Runner(nursery).run_cancelled(body)
    assert isinstance(outcome.error, ConnectionError)
    assert (outcome.end, outcome.caller_cancelled) == ("error", True)


async def test_a_value_that_comes_in_the_grace_time_is_the_outcome(autojump_clock: MockClock) -> None:
    async def body() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(4)
        return "saved"

    async with trio.open_nursery() as nursery:
        outcome = await Runner(nursery).run_cancelled(body, abandon_s=5)
    assert outcome == BodyOutcome("value", value="saved", caller_cancelled=True)


async def test_c064_a_cancelled_caller_gives_up_after_the_grace_time(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        runner, start = Runner(nursery), trio.current_time()
        outcome = await runner.run_cancelled(stubborn, abandon_s=5)
        assert outcome == BodyOutcome("abandoned", caller_cancelled=True)
        assert trio.current_time() == start + 5
        assert runner.strays.names == ("lookup c1",)
    assert runner.late == [BodyOutcome("value", value="late")]


async def test_one_deadline_of_the_tree_replaces_the_bodys_grace_time(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        runner, start = Runner(nursery), trio.current_time()
        outcome = await runner.run_cancelled(stubborn, abandon_s=5, abandon_at=lambda: start + 2)
        assert (outcome.end, trio.current_time() - start) == ("abandoned", 2)


async def test_a_cancel_during_the_grace_time_of_a_timeout_does_not_prolong_it(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        runner, start = Runner(nursery), trio.current_time()
        async with trio.open_nursery() as inner:
            inner.start_soon(lambda: runner.run(stubborn, timeout=3, abandon_s=5))
            await trio.sleep(6)
            runner.caller.cancel()
        assert runner.outcomes == [BodyOutcome("abandoned", caller_cancelled=True)]
        assert trio.current_time() == start + 8


async def test_a_body_over_its_time_is_a_timeout_also_if_the_caller_is_cancelled_then(autojump_clock: MockClock) -> None:
    async def body() -> None:
        try:
            await sleep()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(4)

    async with trio.open_nursery() as nursery:
        runner = Runner(nursery)
        async with trio.open_nursery() as inner:
            inner.start_soon(lambda: runner.run(body, timeout=3, abandon_s=5))
            await trio.sleep(5)
            runner.caller.cancel()
    assert runner.outcomes == [BodyOutcome("timeout", caller_cancelled=True)]


async def test_a_cancelled_caller_starts_nothing() -> None:
    began: list[bool] = []

    async def body() -> None:
        began.append(True)

    async with trio.open_nursery() as nursery:
        runner = Runner(nursery)
        runner.caller.cancel()
        outcome = await runner.run(body)
    assert outcome == BodyOutcome("aborted", caller_cancelled=True, started=False)
    assert not began


async def test_a_body_that_cancels_its_own_scope_is_aborted() -> None:
    async with trio.open_nursery() as nursery:
        runner = Runner(nursery)

        async def body() -> None:
            runner.scope.cancel()
            await sleep()

        assert await runner.run(body) == BodyOutcome("aborted")


async def test_cancelling_the_nursery_of_the_bodies_ends_the_call_as_aborted() -> None:
    async with trio.open_nursery() as callers:
        async with trio.open_nursery() as nursery:
            runner = Runner(nursery)
            callers.start_soon(lambda: runner.run(sleep))
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert nursery.cancel_scope.cancelled_caught
    assert runner.outcomes == [BodyOutcome("aborted")]


@pytest.mark.parametrize("fatal", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_what_means_stop_is_kept_for_the_caller(fatal: BaseException) -> None:
    async def body() -> None:
        raise fatal

    async with trio.open_nursery() as nursery:
        outcome = await Runner(nursery).run(body)
    assert outcome.fatal is fatal
    assert outcome.end == "error"


async def test_a_group_of_plain_exceptions_is_an_error() -> None:
    async def fail() -> None:
        raise ValueError("inner")

    async def body() -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(fail)

    async with trio.open_nursery() as nursery:
        outcome = await Runner(nursery).run(body)
    assert isinstance(outcome.error, ExceptionGroup)


async def test_of_a_mixed_group_the_rest_is_kept_beside_the_abort() -> None:
    async def clean_up_badly() -> None:
        try:
            await sleep()
        finally:
            raise ValueError("clean-up failed")

    async def body() -> None:
        async with trio.open_nursery() as inner:
            inner.start_soon(sleep)
            inner.start_soon(clean_up_badly)

    async with trio.open_nursery() as nursery:
        runner = Runner(nursery)
        outcome = await runner.run_cancelled(body)
    assert (outcome.end, outcome.error, outcome.fatal) == ("aborted", None, None)
    assert runner.scope.cancelled_caught
    beside: Any = outcome.beside
    assert isinstance(beside, ExceptionGroup)
    assert [str(error) for error in cast("Any", beside).exceptions] == ["clean-up failed"]


async def test_a_fatal_exception_in_a_group_is_unwrapped_and_the_plain_rest_is_kept() -> None:
    async def body() -> None:
        raise BaseExceptionGroup("both", [ValueError("plain"), BaseExceptionGroup("deep", [SystemExit(3)])])

    async with trio.open_nursery() as nursery:
        outcome = await Runner(nursery).run(body)
    assert isinstance(outcome.fatal, SystemExit)
    assert isinstance(outcome.beside, ExceptionGroup)


async def test_a_late_error_of_a_stray_is_handed_over_and_harms_nobody(autojump_clock: MockClock) -> None:
    async def body() -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        raise ValueError("too late")

    async with trio.open_nursery() as nursery:
        runner = Runner(nursery)
        assert (await runner.run(body, timeout=1)).end == "abandoned"
    assert isinstance(runner.late[0].error, ValueError)


async def test_r38_a_body_sees_none_of_its_callers_context_unless_it_is_given() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("initiator", default="nobody")
    variable.set("the caller")
    given = contextvars.Context()
    given.run(variable.set, "the initiator")

    async def body() -> str:
        return variable.get()

    async with trio.open_nursery() as nursery:
        assert (await Runner(nursery).run(body)).value == "nobody"
        assert (await Runner(nursery).run(body, context=given)).value == "the initiator"


async def test_the_task_carries_the_bodys_name() -> None:
    async def body() -> str:
        return trio.lowlevel.current_task().name

    async with trio.open_nursery() as nursery:
        assert (await Runner(nursery).run(body)).value == "lookup c1"
