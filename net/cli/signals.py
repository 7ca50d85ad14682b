"""An interrupt is a shutdown: the work is cancelled, the system suspends its open turns and commits, and then the process ends.

The first signal is taken politely. With it the handlers are gone, so a second one ends the process as it would any other; also
then nothing acknowledged is lost, it only takes a recovery at the next start.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

import trio


async def until_signal(work: Callable[[], Awaitable[int]]) -> int:
    """The work's exit code; 130 or 143 if a signal cut it."""
    caught: list[int] = []
    code = 0
    async with trio.open_nursery() as nursery:
        await nursery.start(_watch, nursery.cancel_scope, caught)
        code = await work()
        nursery.cancel_scope.cancel()
    return 128 + caught[0] if caught else code


async def _watch(scope: trio.CancelScope, caught: list[int], *, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            caught.append(number)
            break
    scope.cancel()
