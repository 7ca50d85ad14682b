"""The driver: one activity, which drains consecutive queued turns, each in a fresh cancel scope.

It only loops, contains and converges. A failure belongs to its turn, whose end says so; the agent lives on. What ends a driver
otherwise: the log failed (memory is thrown away), the system closes (an open turn is suspended), or the scope around the
system was cancelled from outside, which is a shutdown without grace and must be passed on after it is written down.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import trio

from ...storage.errors import CommitFailed, StoreError
from ..failures import described, split_cancelled
from ..handoff import take_over
from ..waiting import in_turn
from .closing import close_turn
from .suspects import last_and_alone
from .turn import Turn

if TYPE_CHECKING:
    from ..actor import Actor

_log = logging.getLogger("callboard")


@trio.lowlevel.enable_ki_protection
async def drive(actor: Actor) -> None:
    """The task of one activity."""
    in_turn.set(actor.id)
    actor.context.local.clear()
    try:
        while not (actor.runtime.closing or actor.asleep) and (actor.take_up or actor.inbox.due(actor.runtime.now_ms())):
            if actor.take_up:
                await last_and_alone(actor)
                if actor.runtime.closing or actor.log.failed is not None:
                    break
            await _run_turn(actor)
    except Exception as error:
        if actor.log.failed is None:
            # The exit itself could not be written. That is this agent's misfortune and nobody else's: what memory holds of it is
            # given up, and the next access recovers it from disk.
            _log.exception("agent %r: the end of a turn could not be written", actor.id)
            failed = CommitFailed(f"the end of a turn of {actor.id!r} could not be written: {described(error)}", agent=actor.id)
            failed.__cause__ = error if isinstance(error, StoreError) else None  # that may heal
            actor.log.poison(failed)
    finally:
        actor.rest()  # however it ends: somebody who is shielded may wait for that


async def _run_turn(actor: Actor) -> None:
    take_over(actor)
    turn = Turn(actor)
    actor.turn = turn
    outside: BaseException | None = None
    try:
        turn.open()
        try:
            with turn.scope:
                await turn.walk()
        except BaseException as error:  # the one place that writes the end of a turn
            outside, turn.error = split_cancelled(error)
            if outside is not None:  # not ours: the scope around the whole system
                turn.suspend_now()
        if actor.log.failed is not None:
            raise actor.log.failed  # with its own cause, which says whether it may heal
        await close_turn(turn)
    finally:
        actor.turn = None
        actor.runtime.turn_over.unpark_all()
        _turn_is_over(actor)
    if outside is not None:
        raise outside


def _turn_is_over(actor: Actor) -> None:
    for call in actor.context.take_turn_end():
        try:
            call()
        except Exception:  # a plugin's own affair: the turn is over
            actor.runtime.log_throw(actor.id, "at_turn_end")
