"""Ending: a close ends the turns of agents that leave none open, also those that nobody runs.

An agent with `recovery="end"` rests like any other while it waits for a person (`resting.py`): no task, and in the end no memory.
Such a turn is over when the system closes; it has nothing to be cut, so it goes straight to the exit, as a driver's would from
where it stood. Where that cannot be, the next start ends it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...storage.errors import CallboardError, StoreError
from .closing import close_turn
from .turn import Turn

if TYPE_CHECKING:
    from ..actor import Actor
    from ..runtime import Runtime

_log = logging.getLogger("callboard")


async def end_asleep(runtime: Runtime) -> None:
    """End those turns; the system is closing, so nothing wakes meanwhile."""
    for id in runtime.registry.asleep_to_end():
        try:
            actor = await runtime.registry.actor(id)
            with actor.held():
                await _end(actor)
        except CallboardError as error:
            _log.warning("the turn of %r that waits for a person is ended by the next start: %s", id, error)


async def _end(actor: Actor) -> None:
    actor.asleep = False
    turn = actor.turn = Turn(actor)
    try:
        turn.open()
        turn.suspend_now()
        await close_turn(turn)
    except StoreError:
        if actor.log.failed is None:
            raise
    finally:
        actor.turn = None
        actor.rest()
