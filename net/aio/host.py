"""Host: a trio run in a thread of its own, and calls into it from asyncio loops.

A call crosses twice: into trio as a task with a scope of its own, back as a callback on the loop that asked. The caller is always
the one who waits: when its asyncio task is cancelled the scope is, and it goes on only when the trio side has ended, so nothing
runs on that nobody waits for.

Nothing here blocks a loop for longer than trio needs to get to a callback, and trio never waits for a loop that has gone: a
result that nobody can be told is dropped, and when the loop that opened it is closed the run ends.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio

from ...storage.errors import UsageError

_log = logging.getLogger("callboard.aio")
LOOK_S = 1.0
"""How often trio looks whether the loop that opened it is still there."""


class _Left(Exception):
    """The block on the asyncio side ended with an error, so that nothing is waited for."""


class Crossing:
    """One call: asked for on a loop, run in trio, its end brought back."""

    def __init__(self, function: Callable[..., Awaitable[Any]], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.function, self.arguments, self.options = function, arguments, options
        self.loop = asyncio.get_running_loop()
        self.context = contextvars.copy_context()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.over = False
        self.value: Any = None
        self.error: BaseException | None = None
        self._scope: trio.CancelScope | None = None
        self._cancelled = False

    # -- in trio

    async def run(self) -> None:
        """The call itself; its end is kept, and only a cancellation from around it goes on."""
        with trio.CancelScope() as self._scope:
            if self._cancelled:
                self._scope.cancel()
            try:
                self.value = await self.function(*self.arguments, **self.options)
            except trio.Cancelled:
                raise
            except BaseException as error:  # it is the caller's, on the other side
                self.error = error
        if self._scope.cancelled_caught:
            self.error = asyncio.CancelledError()

    def cancel(self) -> None:
        """The caller was cancelled."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def bring_back(self) -> None:
        """Tell the loop that asked, if it is still there."""
        try:
            self.loop.call_soon_threadsafe(self._arrive)
        except RuntimeError:
            _log.debug("the loop that waited for %r is closed", self.function)

    # -- on the loop

    def _arrive(self) -> None:
        self.over = True
        if not self.future.done():
            self.future.set_result(None)

    async def wait(self) -> None:
        """Until the end is here, whatever else happens to the task that waits."""
        while not self.over:
            self.future = self.loop.create_future()
            try:
                await self.future
            except asyncio.CancelledError:
                _log.debug("still waiting for %r to end", self.function)

    def result(self) -> Any:
        """What the call gave, or raised."""
        if self.error is None:
            return self.value
        try:
            raise self.error
        finally:
            self.error = None  # or the error would hold itself, by its traceback and this frame


class Host:
    """A trio run in a thread, with one object of it open."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.loop = asyncio.get_running_loop()
        self.error: BaseException | None = None
        """What the run failed with."""
        self.leaving = False
        self.interrupted = False
        """Whether the block was cancelled because the run failed."""
        self._opened: asyncio.Future[Any] = self.loop.create_future()
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self._owner = asyncio.current_task()
        self._lock = threading.Lock()
        self._crossings: set[Crossing] = set()
        self._closed = False
        self._abandoned = False
        self._thread: threading.Thread
        self._token: trio.lowlevel.TrioToken
        self._calls: trio.Nursery
        self._stop: trio.Event
        self._scope: trio.CancelScope

    # -- calls, from any loop

    async def call(self, function: Callable[..., Awaitable[Any]], *arguments: Any, **options: Any) -> Any:
        """Call it in trio and wait for its end. What it gives to a caller who was cancelled meanwhile is dropped.

        Raises:
            UsageError: what the host has open is closed.
        """
        crossing = Crossing(function, arguments, options)
        self._submit(crossing)
        try:
            await crossing.future
        except asyncio.CancelledError:
            self.soon(crossing.cancel)
            await crossing.wait()
            raise
        return crossing.result()

    def sync(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a plain function in trio's thread, between two of its tasks, or here if the run is over.

        Raises:
            UsageError: this is trio's thread.
        """
        if threading.current_thread() is self._thread:
            raise UsageError(f"this handle of {self._what} is for the asyncio side; here use what trio gave")
        done: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def call() -> None:
            try:
                done.set_result(function(*arguments, **options))
            except BaseException as error:  # it is the caller's, who waits
                done.set_exception(error)

        try:
            self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            call()
        return done.result()

    def soon(self, function: Callable[[], object]) -> None:
        """Have it called in trio's thread, if the run is not over."""
        try:
            self._token.run_sync_soon(function)
        except trio.RunFinishedError:
            _log.debug("%s is closed already", self._what)

    def _submit(self, crossing: Crossing) -> None:
        with self._lock:
            if self._closed:
                raise self._closed_error()
            self._crossings.add(crossing)
        self.soon(lambda: self._start(crossing))

    def _closed_error(self) -> UsageError:
        return UsageError(f"{self._what} is closed; open it again")

    # -- in trio

    def _start(self, crossing: Crossing) -> None:
        if self._calls.cancel_scope.cancel_called or self._closed:
            self._end(crossing, self._closed_error())
        else:
            crossing.context.run(self._calls.start_soon, self._run, crossing)

    async def _run(self, crossing: Crossing) -> None:
        error: BaseException | None = self._closed_error()
        try:
            await crossing.run()
            error = crossing.error
        finally:
            self._end(crossing, error)

    def _end(self, crossing: Crossing, error: BaseException | None) -> None:
        with self._lock:
            self._crossings.discard(crossing)
        crossing.error = error
        crossing.bring_back()

    async def _main(self, manager: AbstractAsyncContextManager[Any]) -> None:
        failure: BaseException | None = None
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as self._calls:
                self._stop, self._token = trio.Event(), trio.lowlevel.current_trio_token()
                self._calls.start_soon(self._watch_loop)
                if self.leaving:  # before there was a token to be told by
                    self._cut()
                try:
                    async with manager as inner:
                        self._tell(self._opened, inner)
                        await self._stop.wait()
                        if self._abandoned:
                            raise _Left
                except trio.Cancelled:
                    raise
                except _Left:
                    _log.debug("%s was left with an error", self._what)
                except BaseException as error:  # raised again outside the nursery, which would wrap it
                    failure = error
                self._calls.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def _watch_loop(self) -> None:
        while not self.loop.is_closed():  # noqa: ASYNC110  (nothing tells of a loop that was closed)
            await trio.sleep(LOOK_S)
        _log.warning("the loop that opened %s is closed, so that is closed, too", self._what)
        self._abandoned = True
        self._stop.set()

    # -- the thread

    def start(self, manager: AbstractAsyncContextManager[Any]) -> None:
        """Begin; `opened` waits for the manager's object."""
        # A daemon: a program that forgets to close must be able to end. Then it ends as if it were killed, which loses nothing.
        self._thread = threading.Thread(target=self._live, args=(manager,), name=f"callboard: {self._what}", daemon=True)
        self._thread.start()

    def _live(self, manager: AbstractAsyncContextManager[Any]) -> None:
        try:
            trio.run(self._main, manager)
        except BaseException as error:  # raised again on the loop that opened it
            self.error = error
        with self._lock:
            self._closed = True
            left, self._crossings = self._crossings, set()
        for crossing in left:
            crossing.error = self._closed_error()
            crossing.bring_back()
        self._tell(self._ended, None)

    def _tell(self, future: asyncio.Future[Any], value: Any) -> None:
        def set_result() -> None:
            if not future.done():
                future.set_result(value)
            if future is self._ended:
                self._over()

        try:
            self.loop.call_soon_threadsafe(set_result)
        except RuntimeError:
            _log.debug("the loop that opened %s is closed", self._what)

    # -- on the loop that opened it

    def _over(self) -> None:
        """The run has ended. If nobody asked for that, the block is cancelled, as trio would."""
        if not self._opened.done():
            self._opened.set_result(None)
        elif not self.leaving and self._owner is not None:
            self.interrupted = True
            self._owner.cancel(f"{self._what} failed")

    async def opened(self) -> Any:
        """The manager's object, once it is open.

        Raises:
            what opening it raised.
        """
        try:
            inner = await asyncio.shield(self._opened)
        except asyncio.CancelledError:
            await self.leave(gently=False)
            raise
        if self._ended.done():
            self._thread.join()
        if self.error is not None:
            raise self.error
        return inner

    async def leave(self, *, gently: bool) -> None:
        """Close it and wait for its end, with its grace or without; a cancellation meanwhile takes the grace away."""
        self.leaving = True
        self._abandoned = not gently
        cancelled: asyncio.CancelledError | None = None
        self._when_running(self._stop_now if self._opened.done() else self._cut)
        while not self._ended.done():
            try:
                await asyncio.shield(self._ended)
            except asyncio.CancelledError as error:
                cancelled = error
                self._when_running(self._cut)
        self._thread.join()  # to tell of its end was the last that it did
        if cancelled is not None:
            raise cancelled

    def _when_running(self, function: Callable[[], object]) -> None:
        # While the thread is only starting there is no token yet; it looks for `leaving` once there is.
        if hasattr(self, "_token"):
            self.soon(function)

    def _stop_now(self) -> None:
        self._stop.set()

    def _cut(self) -> None:
        self._scope.cancel()


@asynccontextmanager
async def hosted(manager: AbstractAsyncContextManager[Any], host: Host) -> AsyncGenerator[Any]:
    """The manager's object in a trio run of its own, for the length of a block on an asyncio loop.

    Raises:
        what the manager raises, also while the block runs: then the block is cancelled first.
    """
    host.start(manager)
    inner = await host.opened()
    try:
        yield inner
    except BaseException as error:
        failed_first = host.error is not None and not host.leaving
        await host.leave(gently=False)
        if failed_first and host.error is not None:
            await _take_back_cancel(host, error)
            raise host.error from None
        raise
    await host.leave(gently=True)
    if host.error is not None:
        raise host.error


async def _take_back_cancel(host: Host, error: BaseException) -> None:
    """The task was cancelled by the host alone, and what is raised in its place says why."""
    task = asyncio.current_task()
    if not host.interrupted or task is None:
        return
    if not isinstance(error, asyncio.CancelledError):
        try:
            await asyncio.sleep(0)  # here it arrives, and nowhere later
        except asyncio.CancelledError:
            _log.debug("the block had failed before it was cancelled")
    task.uncancel()
