"""Handles: what stands on an asyncio loop for an object in the trio thread.

A handle has the methods of what it stands for, whatever those are: a coroutine method is called over there and awaited here, a
plain one is called over there at once, a property is read over there; a result that is itself such an object comes back as a
handle. So nothing is written twice, and a method that is new there is here, too.

A stream is a plain iterator here as it is there: between two steps nothing is open, so break whenever you like. It takes what is
ready in one crossing, because a crossing costs more than a record does; what it has taken and not given out yet stays with it.
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from ...actors.ref import AgentRef as TrioRef
from ..remote import RemoteRef
from .host import Host

_log = logging.getLogger("callboard.aio")
AT_ONCE = 256
"""How many records or deltas one crossing brings at most."""


class Handle:
    """Stands for an object in the trio thread."""

    __slots__ = ("__weakref__", "_host", "_inner")

    def __init__(self, host: Host, inner: Any) -> None:
        self._host, self._inner = host, inner

    def __repr__(self) -> str:
        return f"<asyncio {self._inner!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other._inner == self._inner

    def __hash__(self) -> int:
        return hash(self._inner)

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._inner) if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        if isinstance(inspect.getattr_static(self._inner, name, None), property):
            return wrapped(self._host, self._host.sync(getattr, self._inner, name))
        value = getattr(self._inner, name)
        return method_of(self._host, value) if inspect.ismethod(value) else value


def method_of(host: Host, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method as the loop calls it."""
    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def awaited(*arguments: Any, **options: Any) -> Any:
            return wrapped(host, await host.call(method, *arguments, **options))

        return awaited

    @functools.wraps(method)
    def called(*arguments: Any, **options: Any) -> Any:
        return wrapped(host, host.sync(method, *arguments, **options))

    return called


class AgentRef(Handle):
    """The handle of an agent, local or remote: the methods of `callboard.actors.AgentRef`, on a loop."""

    __slots__ = ()


class Client(Handle):
    """A connected client: the methods of `callboard.net.Client`, on a loop."""

    __slots__ = ()


class Stream:
    """Records, deltas or summaries, as the iterator over there gives them."""

    def __init__(self, host: Host, inner: Any) -> None:
        self._host, self._inner = host, inner
        self._ahead: deque[Any] = deque()

    def __repr__(self) -> str:
        return f"<asyncio {self._inner!r}>"

    @property
    def seq(self) -> int:
        """The seq up to which the log has been seen: follow `after` this to go on."""
        return int(self._ahead[0].seq) - 1 if self._ahead else int(self._inner.seq)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        value = self._host.sync(getattr, self._inner, name)
        return method_of(self._host, value) if inspect.ismethod(value) else value

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Any:
        if not self._ahead:
            await self._host.call(self._pull)
        if not self._ahead:
            raise StopAsyncIteration
        return wrapped(self._host, self._ahead.popleft())

    async def _pull(self) -> None:
        """In trio: the next, and what is there beside it; nothing at the end.

        Each goes where it is given out from as soon as it is here: whatever is cancelled after that, it is not lost.
        """
        try:
            self._ahead.append(await self._inner.__anext__())
        except StopAsyncIteration:
            return
        # What follows a log waits at its end, and has not moved if it is cancelled there; all others have an end.
        with trio.move_on_after(0 if hasattr(self._inner, "seq") else math.inf):
            await self._pull_ready()

    async def _pull_ready(self) -> None:
        while len(self._ahead) < AT_ONCE:
            try:
                self._ahead.append(await self._inner.__anext__())
            except Exception as error:  # the end, or a failure: it comes again with the next call, behind what was read
                _log.debug("%r ends here: %r", self._inner, error)
                return


def wrapped(host: Host, value: Any) -> Any:
    """The value as the loop gets it."""
    if isinstance(value, TrioRef | RemoteRef):
        return AgentRef(host, value)
    return Stream(host, value) if hasattr(value, "__anext__") else value
