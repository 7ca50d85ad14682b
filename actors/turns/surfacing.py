"""Rewrites of the model's view: what the `compact` seam, a command or a recovery from overflow may replace.

The log keeps the old records; a `surface/replace` names the range that a message stands for from now on, or that vanishes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import trio

from ...storage.errors import UsageError
from ...storage.events import Note, SurfaceReplace
from ...storage.messages import Message
from ..answers import LimitReached, Position, Replace
from ..failures import described

if TYPE_CHECKING:
    from ..actor import Actor
    from ..seams import SeamContext
    from .turn import Turn


async def compact_view(turn: Turn) -> None:
    """COMPACT: offer the view, and what this turn is about to claim, to the `compact` seam."""
    if not turn.chains.has("compact"):
        return
    incoming = tuple(item.message for item in turn.actor.inbox.pending("next-step"))
    prompt = (turn.prompt.message,) if turn.prompt is not None else ()
    try:
        replacement = await offer_view(turn.actor, turn.actor.context, incoming=incoming + prompt)
        await trio.lowlevel.checkpoint_if_cancelled()
        if replacement is not None:
            turn.log.append(replace_event(turn.actor, replacement))
    except LimitReached:
        raise
    except Exception as error:
        # A failure to summarise never fails the turn: the view is as it was.
        turn.log.append(Note(kind="compact-failed", data={"error": described(error)}))


async def offer_view(
    actor: Actor,
    context: SeamContext,
    *,
    incoming: Sequence[Message] = (),
    why: Literal["budget", "overflow", "idle", "command"] = "budget",
) -> Replace | None:
    """What the `compact` seam would make of the view; a throw is the caller's."""
    state = actor.state
    window = state.headers.context.window if state.headers.context is not None else None
    position = Position(state.surface.entries(), incoming, None, window, why)
    return await actor.chains.run("compact", context, position, _leave)


async def _leave(position: Position) -> Replace | None:
    return None


def replace_event(actor: Actor, replacement: Replace) -> SurfaceReplace:
    """The record of a rewrite; its ends are moved to the nearest messages on the surface.

    Raises:
        UsageError: the range holds no message, or half of a call and its result.
    """
    surface = actor.state.surface
    seqs = [seq for seq, _ in surface.entries()]
    end = replacement.end if replacement.end is not None else actor.log.last
    inside = [seq for seq in seqs if replacement.start <= seq <= end]
    why = surface.check_replace(inside[0], inside[-1]) if inside else "the range holds no message of the surface"
    if why is not None:
        raise UsageError(f"the view cannot be rewritten: {why}", agent=actor.id, turn=actor.position.turn)
    return SurfaceReplace(start=inside[0], end=inside[-1], message=replacement.message, cause=replacement.cause)
