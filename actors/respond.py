"""What goes to a turn's route: the answer, a standard sentence, or nothing.

RESPOND asks the `respond` seam and notes the text; the exit writes it. A turn that fails never reaches RESPOND, and a person who
wrote still gets a sentence: the exit makes it. A turn that its own user aborted says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..mailbox.addresses import delivery_id
from ..storage.events import Aborted, Blocked, Completed, EndReason, MaxTokens, OutboxPut
from ..storage.messages import TextBlock
from .answers import LimitReached
from .texts import well_formed

if TYPE_CHECKING:
    from .turn import Turn

EMPTY = "I have nothing to say to that."
BLOCKED = "I may not answer that."
FAILED = "Something went wrong, and I could not finish. Please try again."


async def respond_to_route(turn: Turn) -> None:
    """Decide what the route gets at the end of a turn that did not fail."""
    if turn.actor.route is None:
        return
    if turn.position.answered_route:
        turn.delivery = "answered"
        return
    text = (turn.position.text if not isinstance(turn.reason, Blocked) else BLOCKED) or EMPTY

    async def plain(text: str) -> str | None:
        return text

    try:
        turn.reply = await turn.chains.run("respond", turn.actor.context, text, plain)
    except LimitReached:
        raise
    except Exception:
        turn.actor.runtime.log_throw(turn.actor.id, "respond")
        turn.reply = text
    turn.delivery = "suppressed" if turn.reply is None else "put"


def standard_reply(turn: Turn, reason: EndReason) -> OutboxPut | None:
    """The outbox entry that the exit writes; None if the route gets nothing."""
    route = turn.actor.route
    if route is None:
        return None
    if isinstance(reason, Completed | MaxTokens | Blocked):
        return outbox_put(turn, turn.reply) if turn.reply is not None else None
    if isinstance(reason, Aborted):
        return outbox_put(turn, reason.cause.text) if reason.cause.kind == "hook" and reason.cause.text else None
    return outbox_put(turn, FAILED)


def outbox_put(turn: Turn, text: str) -> OutboxPut:
    """An entry for the turn's route."""
    route, at = turn.actor.route, turn.position
    assert route is not None, "only turns with a route answer it"
    return OutboxPut(
        delivery=delivery_id(turn.actor.id, turn.number, len(at.deliveries) + 1),
        route=route,
        content=(TextBlock(well_formed(text)),),
        turn=turn.number,
        step=at.step,
        latency_ms=max(0, turn.actor.runtime.now_ms() - at.started),
    )
