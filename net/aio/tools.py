"""Tools on the loop: how a `@tool(loop="asyncio")` runs where its libraries live, and what it finds there.

The body is a task on the loop that opened the system, in the context of the call: so what it asks of other agents is known to be
part of this turn, and the ids of what it sends are the same when it runs again. Cancelling the call cancels the task, and its end
is waited for; a body that swallows that is given up by the runtime as any other is.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from ...actors.tools.context import LoopRunner, ToolContext, ToolPort
from ...actors.tools.process import Completed, run_process
from ...storage.errors import ToolError
from .handles import wrapped
from .host import Host


class Loop:
    """The asyncio loop behind a system, as the runtime uses it."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call it on the loop and give its result; a cancelled caller cancels it there and waits for its end.

        Raises:
            ToolError: the loop is closed, or somebody there cancelled the task.
        """
        visit = _Visit(self._host, call)
        if not self._can_tell(visit.begin):
            raise ToolError("the asyncio loop that opened the system is closed; go on without this tool")
        try:
            await visit.ended.wait()
        except trio.Cancelled:
            if self._can_tell(visit.cancel):
                with trio.CancelScope(shield=True):
                    await visit.ended.wait()
            raise
        return visit.result()

    def _can_tell(self, callback: Callable[[], None]) -> bool:
        try:
            self._host.loop.call_soon_threadsafe(callback)
        except RuntimeError:  # it is closed, and its tasks are no more
            return False
        return True

    def context(self, context: ToolContext[Any]) -> ToolContext[Any]:
        """The same context for a body that runs on the loop."""
        return LoopContext(self._host, context)


class _Visit:
    """One call on the loop; `begin`, `cancel` and `_over` run there."""

    def __init__(self, host: Host, call: Callable[[], Awaitable[Any]]) -> None:
        self._host, self._call = host, call
        self._context = contextvars.copy_context()
        self._task: asyncio.Task[Any] | None = None
        self._told = False
        self.ended = trio.Event()

    def begin(self) -> None:
        if not self._told:
            self._task = self._host.loop.create_task(self._body(), context=self._context)
            self._task.add_done_callback(self._over)
        else:
            self._host.soon(self.ended.set)

    async def _body(self) -> Any:
        return await self._call()

    def cancel(self) -> None:
        self._told = True
        if self._task is not None:
            self._task.cancel()

    def _over(self, task: asyncio.Task[Any]) -> None:
        self._host.soon(self.ended.set)

    def result(self) -> Any:
        """In trio: what the task came to."""
        assert self._task is not None, "it has ended, so it was begun"
        if self._task.cancelled():
            raise ToolError("the task of this tool was cancelled on its asyncio loop; it may have taken effect in part")
        error = self._task.exception()
        if error is not None:
            raise error
        return self._task.result()


class LoopContext(ToolContext[Any]):
    """A tool's context on the loop: what is awaited here is done in trio."""

    def __init__(self, host: Host, context: ToolContext[Any]) -> None:
        self._host, self._own = host, context
        super().__init__(
            _LoopPort(host, context.port),
            agent=wrapped(host, context.agent),
            turn=context.turn,
            step=context.step,
            call_id=context.call_id,
            effect_key=context.effect_key,
            deps=context.deps,
            labels=context.labels,
            route=context.route,
            sender=context.sender,
            scope=context.scope,
        )

    def progress(self, text: str) -> None:
        self._host.sync(self._own.progress, text)

    def note(self, kind: str, data: Any = None) -> None:
        self._host.sync(self._own.note, kind, data)

    async def process(self, *argv: str, timeout: float | None = None, **options: Any) -> Completed:
        done: Completed = await self._host.call(partial(run_process, *argv, timeout=timeout, **options))
        return done


class _LoopPort:
    """The runtime's side of the context, from the loop."""

    def __init__(self, host: Host, port: ToolPort) -> None:
        self._host, self._port = host, port
        self.loop: LoopRunner | None = port.loop
        self.now, self.note, self.progress = port.now, port.note, port.progress

    async def send(self, to: str, content: Any, message_id: str, *, minted: bool) -> Any:
        return await self._host.call(partial(self._port.send, to, content, message_id, minted=minted))

    async def ask(self, to: str, content: Any, message_id: str, timeout: float | None, *, minted: bool) -> Any:
        return await self._host.call(partial(self._port.ask, to, content, message_id, timeout, minted=minted))

    async def reply(self, content: Any, route: Any, delivery: str) -> Any:
        return await self._host.call(self._port.reply, content, route, delivery)

    async def spawn(self, agent: Any, id: str) -> Any:
        return wrapped(self._host, await self._host.call(self._port.spawn, agent, id))
