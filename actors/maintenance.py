"""Maintenance: work on an idle agent that no turn may overlap, such as a compaction while nobody asks.

It is an activity without a turn: the status stays idle, and nothing of it is a record but what it rewrites. What is sent
meanwhile is accepted and waits, and runs right after. A cancel or a close ends it; a crash forgets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ..storage.errors import UsageError
from ..storage.events import Note
from .failures import described
from .turns.surfacing import offer_view, replace_event

if TYPE_CHECKING:
    from .actor import Actor


async def compact(actor: Actor) -> bool:
    """Offer the view of an idle agent to its `compact` seam; whether it was rewritten (on disk then).

    Raises:
        UsageError: a turn runs, or other maintenance does.
    """
    if actor.status != "idle" or actor.take_up or actor.maintenance is not None:
        raise UsageError(f"agent {actor.id!r} is at work; wait_idle() first", agent=actor.id)
    if not actor.chains.has("compact"):
        await trio.lowlevel.checkpoint()
        return False
    rewritten = False
    with actor.held():
        try:
            with trio.CancelScope() as actor.maintenance:
                rewritten = await _offer(actor)
        finally:
            actor.maintenance = None
            actor.wake()
        if actor.log.dirty:
            await actor.log.commit()
    return rewritten


def waits_for_maintenance(actor: Actor) -> bool:
    """Whether the agent rests, and has a plugin that wants to be asked about its view while it does, once after each turn."""
    return actor.chains.idle_s is not None and actor.status == "idle" and actor.rested != actor.position.turn


async def compact_resting(actor: Actor) -> None:
    """Maintenance of an agent that has rested for long enough; of one that has work again, the next rest has it."""
    if waits_for_maintenance(actor) and not actor.take_up and actor.maintenance is None:
        actor.rested = actor.position.turn
        await compact(actor)


async def _offer(actor: Actor) -> bool:
    incoming = tuple(item.message for item in actor.inbox.pending())
    try:
        replacement = await offer_view(actor, actor.context, incoming=incoming, why="idle")
        await trio.lowlevel.checkpoint_if_cancelled()
        if replacement is not None:
            actor.log.append(replace_event(actor, replacement))
    except Exception as error:
        # As before a turn: who cannot summarise leaves the view as it was.
        actor.log.append(Note(kind="compact-failed", data={"error": described(error)}))
        return False
    return replacement is not None
