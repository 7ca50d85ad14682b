"""Plain `def` tools: each call in a worker thread, given up when its time is over.

A thread cannot be cancelled, so on cancellation it is left behind; its result is dropped. It has a limiter apart from trio's
default one: tools that hang must not take the threads that everything else (DNS, files, the writer) waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import trio
from trio.lowlevel import RunVar

T = TypeVar("T")

THREADS = 500
"""How many tool threads one process may have; threads left behind count until they end."""

_limiter: RunVar[trio.CapacityLimiter] = RunVar("callboard_tool_threads")


async def run_in_thread(function: Callable[[], T]) -> T:
    """Call it in a worker thread, in a copy of the caller's context; cancellation leaves the thread behind."""
    return await trio.to_thread.run_sync(function, abandon_on_cancel=True, limiter=_tool_threads())


def _tool_threads() -> trio.CapacityLimiter:
    # One for each trio run: a token held by a thread of a run that is over would never come back.
    try:
        return _limiter.get()
    except LookupError:
        limiter = trio.CapacityLimiter(THREADS)
        _limiter.set(limiter)
        return limiter
