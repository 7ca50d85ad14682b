"""One body of a tool, run to an outcome: as a task that outlives the step if it must, never as one that the step has to join.

trio joins what it starts: a body that ignores cancellation, run in the step's own nursery, would keep the turn open for as
long as it likes. So a body is a task of a nursery further out, with a scope of its own. The step waits for its *outcome*,
forwards its own cancellation to that scope, and after a grace time gives up: the body is a *stray*, listed by name, and what
it comes to in the end is handed to whoever started it.

The invariant: `run_body` always returns an outcome, and never raises what the body did or what happened to the caller.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, cast

import trio
from msgspec import Struct, structs

BodyEnd = Literal["value", "error", "aborted", "timeout", "abandoned"]
CutEnd = Literal["aborted", "timeout"]
Call = Callable[[], Awaitable[Any]]


class BodyOutcome(Struct, frozen=True):
    """How a body ended.

    `value` and `error` are the body's own doing and stand even if it was told to stop meanwhile. `aborted` and `timeout` mean
    that cancellation cut it; `abandoned`, that it ignored that for too long and still runs.
    """

    end: BodyEnd
    value: Any = None
    error: Exception | None = None
    beside: Exception | None = None
    """What else failed while cancellation cut the body."""
    fatal: BaseException | None = None
    """SystemExit, KeyboardInterrupt and the like: the caller has to close the turn and the system."""
    caller_cancelled: bool = False
    """Whether the caller's own scope was cancelled meanwhile; it will notice at its next checkpoint."""
    started: bool = True
    """False if the caller was cancelled already, so that nothing was begun."""


_current: contextvars.ContextVar[_Body] = contextvars.ContextVar("callboard_body")


def current_body() -> _Body | None:
    """The body that this task (or a child of it) belongs to."""
    return _current.get(None)


OnStray = Callable[[BodyOutcome], None]


class Strays:
    """Names of the bodies that were given up and still run; closing a system has to wait for them, and says so."""

    def __init__(self) -> None:
        self._bodies: dict[object, str] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """In the order in which they were given up."""
        return tuple(self._bodies.values())

    def __len__(self) -> int:
        return len(self._bodies)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __repr__(self) -> str:
        return f"<Strays {', '.join(self.names) or 'none'}>"

    def add(self, key: object, name: str) -> None:
        """One more; `key` is what `discard` will be called with."""
        self._bodies[key] = name

    def discard(self, key: object) -> None:
        """It has ended, or was never here."""
        self._bodies.pop(key, None)


async def run_body(
    nursery: trio.Nursery,
    call: Call,
    *,
    name: str,
    scope: trio.CancelScope,
    timeout: float | None,
    abandon_s: float,
    on_stray: OnStray,
    strays: Strays | None = None,
    abandon_at: Callable[[], float] | None = None,
    context: contextvars.Context | None = None,
) -> BodyOutcome:
    """Run one body and wait for what becomes of it.

    Args:
        nursery: where the body's task lives; it must outlive the caller.
        call: the body.
        name: of the task, and of the stray.
        scope: the body's own, not entered yet; the tool sees it as `ctx.scope`.
        timeout: seconds until it is cancelled; None for no limit, 0 for none at all.
        abandon_s: seconds that it has between being cancelled and being given up.
        on_stray: gets the late outcome of a body that was given up; called in the body's task.
        strays: where it is listed meanwhile.
        abandon_at: asked when the caller is cancelled: the absolute trio time at which to give up, in place of `abandon_s`
            (one deadline bounds all bodies of a tree).
        context: the body's context variables; a fresh context by default, so that nothing of the caller leaks in.
    """
    try:
        await trio.lowlevel.checkpoint_if_cancelled()
    except trio.Cancelled:  # not lost either; see `_wait`
        return BodyOutcome("aborted", caller_cancelled=True, started=False)
    body = _Body(call, name, scope, on_stray, Strays() if strays is None else strays)
    if timeout is not None:
        scope.deadline = min(scope.deadline, trio.current_time() + timeout)  # so that the tool can see how long it has
    # start_soon copies the context it is called in.
    (context or contextvars.Context()).run(lambda: nursery.start_soon(body.run, name=name))
    caller_cancelled = await _wait(body, timeout, abandon_s, abandon_at)
    return body.give_up(caller_cancelled)


async def _wait(body: _Body, timeout: float | None, abandon_s: float, abandon_at: Callable[[], float] | None) -> bool:
    """Until the body ends or has to be given up; whether the caller was cancelled. Never raises Cancelled."""
    until = math.inf
    try:
        with trio.CancelScope(deadline=math.inf if timeout is None else trio.current_time() + timeout):
            await body.ended.wait()
        if not body.ended.is_set():
            body.cut("timeout")
            until = trio.current_time() + abandon_s
            with trio.CancelScope(deadline=until):
                await body.ended.wait()
    except trio.Cancelled:
        # Not lost: cancellation is a state of the caller's scope, delivered again at its next checkpoint. Here the body must
        # be told, and waited for.
        body.cut("aborted")
        own = trio.current_time() + abandon_s if abandon_at is None else abandon_at()
        with trio.CancelScope(deadline=min(until, own), shield=True):
            await body.ended.wait()
        return True
    return False


class _Body:
    """The task of one body, and the place where it leaves its outcome."""

    def __init__(self, call: Call, name: str, scope: trio.CancelScope, on_stray: OnStray, strays: Strays) -> None:
        self._call, self._name, self._scope = call, name, scope
        self._on_stray, self._strays = on_stray, strays
        self._told: CutEnd | None = None
        self._outcome: BodyOutcome | None = None
        self._given_up = self._left_behind = False
        self.ended = trio.Event()

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """The task. Only a cancellation from outside the scope (of the whole nursery) leaves it as an exception."""
        _current.set(self)
        try:
            with self._scope:
                await self._attempt()
        finally:
            self._finish()

    async def _attempt(self) -> None:
        """Call it and keep what becomes of it; what is Cancelled goes on to the scope it belongs to."""
        try:
            self._outcome = BodyOutcome("value", value=await self._call())
        except trio.Cancelled:
            self._outcome = BodyOutcome(self._why_cut())
            raise
        except Exception as error:
            self._outcome = BodyOutcome("error", error=error)
        except BaseExceptionGroup as group:
            cancelled, rest = group.split(trio.Cancelled)
            self._outcome = self._of_group(cancelled is not None, rest)
            if cancelled is not None:
                raise cancelled from None  # the rest is kept in the outcome
        except BaseException as error:  # kept for the caller to act on, who alone can close the turn first
            self._outcome = BodyOutcome("error", fatal=error)

    def _of_group(self, cancelled: bool, rest: BaseExceptionGroup[BaseException] | None) -> BodyOutcome:
        """What a nursery inside the body threw, and more than plain exceptions."""
        plain, fatal = (None, None) if rest is None else rest.split(Exception)
        return BodyOutcome(
            self._why_cut() if cancelled else "error",
            beside=plain,
            fatal=None if fatal is None else innermost(fatal),
        )

    def _why_cut(self) -> CutEnd | Literal["abandoned"]:
        if self._left_behind:
            return "abandoned"
        if self._told is not None:
            return self._told
        return "timeout" if trio.current_time() >= self._scope.deadline else "aborted"

    def _finish(self) -> None:
        self.ended.set()
        if self._given_up:
            self._strays.discard(self)
            self._on_stray(self._outcome or BodyOutcome("aborted"))

    def cut(self, reason: CutEnd) -> None:
        """Cancel the body; the first reason counts."""
        self._told = self._told or reason
        self._scope.cancel()

    def leave_behind(self) -> OnStray:
        """A thread of this body cannot be stopped and is no longer waited for: a stray, too. Gives what to call when it ends."""
        self._left_behind = True
        key = object()
        self._strays.add(key, self._name)

        def ended(outcome: BodyOutcome) -> None:
            self._strays.discard(key)
            self._on_stray(outcome)

        return ended

    def give_up(self, caller_cancelled: bool) -> BodyOutcome:
        """The outcome as the caller gets it; without one the body becomes a stray."""
        if self._outcome is not None:
            return structs.replace(self._outcome, caller_cancelled=caller_cancelled)
        self._given_up = True
        self._strays.add(self, self._name)
        return BodyOutcome("abandoned", caller_cancelled=caller_cancelled)


def innermost(error: BaseException) -> BaseException:
    """The one exception in a group, without its wrapping; a group of several stays one."""
    inner: Any = error
    while isinstance(inner, BaseExceptionGroup) and len(members := cast("Any", inner).exceptions) == 1:
        inner = members[0]
    return cast("BaseException", inner)
