"""Suspects: replies that a process left unsent, and whose sending may be what ended it.

A reply that another process has left is counted before each try here: a note says that one more process may have ended while it
was sent, and one behind a try that failed and ended nothing takes that back. So starts and closes count for nothing, and deaths
do. A reply with too many of them (`Limits.recoveries`, as for turns) is not tried again; it is parked like any that failed.

Those that were on their way together cannot be told apart, and it is one of them. From the second death on they go one at a time,
over all channels: whoever is harmless gets through, and only the one that kills goes on being counted.

The first process does not count its own: what is answered in one life costs no record more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import trio

from ...storage.errors import CallboardError
from ...storage.folds.outbox import counted
from ...storage.messages import Failure
from ..failures import flatten
from ..turns.suspects import CRASHES

if TYPE_CHECKING:
    from ..actor import Actor
    from ..runtime import Runtime
    from .lanes import Pending

KILLS = "RECOVERIES"
"""The code of the failure of a reply that has ended the process too often."""
Send = Callable[["Pending"], Awaitable[Failure | None]]


class Suspects:
    """The rule above, for all channels of a system."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._alone = trio.Lock()

    async def send(self, item: Pending, send: Send) -> Failure | None:
        """Send a reply that another process left, once, and count it; what kept the channel from taking it, or None."""
        try:
            actor = await self._runtime.registry.actor(item.agent)
            with actor.held():
                return await self._send(actor, item, send)
        except CallboardError as error:  # of the log: without the count nothing is sent
            return flatten(error)

    async def _send(self, actor: Actor, item: Pending, send: Send) -> Failure | None:
        ends, limit = actor.state.outbox.ends(item.delivery), actor.agent.limits.recoveries
        if ends > limit:
            return Failure(KILLS, f"the process ended {_times(ends)} while it was sent (Limits.recoveries={limit})")
        async with self._alone if ends >= CRASHES else nullcontext():
            actor.log.append(counted(item.delivery, ends + 1))
            try:
                await actor.log.commit()
                failure = await send(item)
            except trio.Cancelled:  # a close; what is no `Exception` takes the process with it, and stays counted
                _take_back(actor, item, ends)
                raise
            if failure is not None:
                _take_back(actor, item, ends)
            return failure


def _take_back(actor: Actor, item: Pending, ends: int) -> None:
    """The try has ended nothing. Nobody waits for this record: without it, one death too many is counted."""
    if actor.log.failed is None and item.delivery in actor.state.outbox:
        actor.log.append(counted(item.delivery, ends))


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"
