"""Plain `def` tools: each call in a worker thread, given up when its time is over.

A thread cannot be cancelled. On cancellation it is left behind: it counts as a stray of its body until it ends, and what it
comes to is reported late. One that had not begun by then never begins. Such threads have a limiter apart from trio's default
one: tools that hang must not take the threads that everything else (DNS, files, the writer) waits for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import trio
from trio.lowlevel import RunVar

from .bodies import BodyOutcome, OnStray, current_body

T = TypeVar("T")

THREADS = 500
"""How many tool threads one process may have; threads left behind count until they end."""

_limiter: RunVar[trio.CapacityLimiter] = RunVar("callboard_tool_threads")


async def run_in_thread(function: Callable[[], T]) -> T:
    """Call it in a worker thread, in a copy of the caller's context; cancellation leaves the thread behind.

    In the thread, `trio.from_thread.check_cancelled()` tells whether anybody still waits.
    """
    call = _ThreadCall(function)
    try:
        (value,) = await trio.to_thread.run_sync(call.run, abandon_on_cancel=True, limiter=_tool_threads())
    except trio.Cancelled:
        call.leave_behind()
        raise
    return value


def _tool_threads() -> trio.CapacityLimiter:
    # One for each trio run: a token held by a thread of a run that is over would never come back.
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(THREADS)
        _limiter.set(limiter)
        return limiter


class NobodyWaitsError(Exception):
    """In a thread that came too late to begin; trio drops it, as the task behind it has gone on."""


class _ThreadCall(Generic[T]):
    """One call, seen from two threads: `run` in the worker, `leave_behind` in trio's. The lock decides who comes first."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._begun = self._left = False
        self._outcome: BodyOutcome | None = None
        self._report: OnStray | None = None

    def run(self) -> tuple[T]:
        """In the worker. The value is wrapped because trio refuses awaitable ones, which a decorated tool may return."""
        with self._lock:
            if self._left:
                raise NobodyWaitsError  # and so nobody sees it
            self._begun = True
        try:
            value = self._function()
        except BaseException as error:
            self._end(_outcome_of(error))
            raise
        self._end(BodyOutcome("value", value=value))
        return (value,)

    def leave_behind(self) -> None:
        """In trio: nobody waits any more."""
        with self._lock:
            self._left = True
            body = current_body()
            if body is None or not self._begun or self._outcome is not None:
                return
            self._report = body.leave_behind()

    def _end(self, outcome: BodyOutcome) -> None:
        with self._lock:
            self._outcome, report = outcome, self._report
        if report is not None:
            self._tell(report, outcome)

    def _tell(self, report: OnStray, outcome: BodyOutcome) -> None:
        try:
            self._token.run_sync_soon(report, outcome)
        except trio.RunFinishedError:
            return  # the whole run is over: there is no log left to note it in


def _outcome_of(error: BaseException) -> BodyOutcome:
    if isinstance(error, trio.Cancelled):  # by check_cancelled
        return BodyOutcome("aborted")
    return BodyOutcome("error", error=error) if isinstance(error, Exception) else BodyOutcome("error", fatal=error)
