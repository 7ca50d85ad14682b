"""Loops: how a `@tool(loop="asyncio")` runs on the asyncio loop that opened the system, seen from below.

The runtime knows no asyncio. Whoever opens a system from such a loop (`callboard.net.aio`) gives it a `LoopHost` through
`opening_on`, and the system keeps it for its life; without one, a definition with such a tool is refused when it is given.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from .context import ToolContext


class LoopHost(Protocol):
    """The asyncio loop behind a system."""

    async def run(self, call: Callable[[], Awaitable[Any]]) -> Any:
        """Call it on the loop and give its result; a cancelled caller cancels it there and waits for its end."""
        ...

    def context(self, context: ToolContext[Any]) -> ToolContext[Any]:
        """The same context for a body that runs on the loop: what it awaits there is awaited here."""
        ...


opening_on: contextvars.ContextVar[LoopHost | None] = contextvars.ContextVar("callboard.opening_on", default=None)
"""The loop that the system being opened in this context belongs to."""
