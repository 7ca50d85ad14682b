"""Tools that are plain functions: in a thread each, left behind when nobody waits any more."""

from __future__ import annotations

import contextvars
import threading

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.actors.testing.contexts import tool_context
from callboard.actors.tools import BodyOutcome, Strays, run_body, tool
from callboard.actors.tools.threads import NobodyWaitsError, _ThreadCall, run_in_thread  # pyright: ignore[reportPrivateUsage]


class Hanging:
    """A function that hangs until it is told to go on; `begun` is set in trio when it hangs."""

    def __init__(self) -> None:
        self.begun, self.go = trio.Event(), threading.Event()

    def __call__(self) -> str:
        trio.from_thread.run_sync(self.begun.set)
        assert self.go.wait(10)
        return "late"


async def test_c064_a_thread_is_given_up_at_once_and_listed_until_it_ends() -> None:
    hang, strays, late, outcomes = Hanging(), Strays(), list[BodyOutcome](), list[BodyOutcome]()
    reported = trio.Event()

    def on_stray(outcome: BodyOutcome) -> None:
        late.append(outcome)
        reported.set()

    async def caller() -> None:
        outcomes.append(
            await run_body(
                bodies,
                lambda: run_in_thread(hang),
                name="hang c1",
                scope=trio.CancelScope(),
                timeout=None,
                abandon_s=5,
                on_stray=on_stray,
                strays=strays,
            )
        )

    async with trio.open_nursery() as bodies:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(caller)
            await hang.begun.wait()
            nursery.cancel_scope.cancel()
        assert outcomes == [BodyOutcome("abandoned", caller_cancelled=True)]
        assert strays.names == ("hang c1",)
        hang.go.set()
        await reported.wait()
    assert late == [BodyOutcome("value", value="late")]
    assert len(strays) == 0


async def test_a_thread_that_asks_whether_it_is_cancelled_ends_as_aborted() -> None:
    cancelled, late = threading.Event(), list[BodyOutcome]()
    begun, reported = trio.Event(), trio.Event()

    def polite() -> None:
        trio.from_thread.run_sync(begun.set)
        assert cancelled.wait(10)
        trio.from_thread.check_cancelled()

    def on_stray(outcome: BodyOutcome) -> None:
        late.append(outcome)
        reported.set()

    scope = trio.CancelScope()
    async with trio.open_nursery() as nursery:

        async def stop() -> None:
            await begun.wait()
            scope.cancel()

        nursery.start_soon(stop)
        call = lambda: run_in_thread(polite)  # noqa: E731
        outcome = await run_body(nursery, call, name="p", scope=scope, timeout=None, abandon_s=5, on_stray=on_stray)
        assert outcome.end == "abandoned"
        cancelled.set()
        await reported.wait()
    assert late == [BodyOutcome("aborted")]


async def test_a_thread_that_had_not_begun_never_begins() -> None:
    ran: list[bool] = []
    call = _ThreadCall(lambda: ran.append(True))
    call.leave_behind()
    with pytest.raises(NobodyWaitsError):
        call.run()
    assert not ran


async def test_hanging_tools_do_not_take_the_threads_of_others() -> None:
    go = threading.Event()

    @tool
    def hang() -> None:
        assert go.wait(10)

    default = trio.to_thread.current_default_thread_limiter()
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(lambda: hang.run(tool_context(), {}))
        await wait_all_tasks_blocked()
        assert default.borrowed_tokens == 0
        go.set()


async def test_a_thread_sees_the_context_variables_of_its_caller() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("initiator", default="nobody")
    variable.set("the caller")
    assert await run_in_thread(variable.get) == "the caller"


async def test_progress_and_notes_may_come_from_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    @tool
    def work() -> None:
        assert threading.current_thread() is not here
        context.progress("half")
        context.note("seen", {"n": 1})

    here, reached = threading.current_thread(), list[threading.Thread]()
    context = tool_context()
    monkeypatch.setattr(context.recorded, "progress", lambda text: reached.append(threading.current_thread()))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    await work.run(context, {})
    assert reached == [here]
    assert [(note.kind, note.data) for note in context.recorded.notes] == [("seen", {"n": 1})]


async def test_an_error_in_a_thread_is_the_bodys_own() -> None:
    def fail() -> None:
        raise ValueError("no")

    async with trio.open_nursery() as nursery:
        outcome = await run_body(
            nursery,
            lambda: run_in_thread(fail),
            name="fail",
            scope=trio.CancelScope(),
            timeout=None,
            abandon_s=5,
            on_stray=lambda outcome: None,
        )
    assert isinstance(outcome.error, ValueError)
