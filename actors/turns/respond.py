"""What goes to a turn's route: the answer, a standard sentence, or nothing.

RESPOND asks the `respond` seam and notes the text; the exit writes it. A turn that fails never reaches RESPOND, and a person who
wrote still gets a sentence: the exit makes it. A turn that its own user aborted says nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...mailbox.addresses import delivery_id
from ...storage.events import Aborted, Blocked, Completed, EndReason, MaxTokens, OutboxPut
from ...storage.messages import TextBlock
from ..answers import LimitReached
from ..output import value_text
from ..texts import well_formed

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
    at = turn.position
    text = BLOCKED if isinstance(turn.reason, Blocked) else _unsaid(turn) or ("" if at.deliveries else at.text) or EMPTY

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


def unsaid_answer(turn: Turn) -> list[OutboxPut]:
    """The entry for an answer behind which the turn went on, and which no entry holds yet."""
    at, text = turn.position, _unsaid(turn)
    return [_outbox_put(turn, text)] if text and turn.actor.route is not None and not at.answered_route else []


def _unsaid(turn: Turn) -> str:
    """Of an agent with an output the value alone: what was refused on the way to it is between the model and the runtime."""
    output, at = turn.agent.typed, turn.position
    return at.unsaid if output is None else value_text(output, at)


def standard_replies(turn: Turn, reason: EndReason) -> list[OutboxPut]:
    """The outbox entries that the exit writes: the reply, if the route gets one, behind an answer that another step was
    to follow: the question that the step did not come to must not take the answer to the one before with it."""
    if turn.actor.route is None:
        return []
    if isinstance(reason, Completed | MaxTokens):
        return [] if turn.reply is None else [_outbox_put(turn, turn.reply)]
    if isinstance(reason, Aborted):
        return [_outbox_put(turn, reason.cause.text)] if reason.cause.kind == "hook" and reason.cause.text else []
    before = unsaid_answer(turn) if turn.position.terminal else []
    text = turn.reply if isinstance(reason, Blocked) else FAILED
    return before if text is None else [*before, _outbox_put(turn, text, behind=len(before))]


def _outbox_put(turn: Turn, text: str, *, behind: int = 0) -> OutboxPut:
    """An entry for the turn's route, behind so many others of the same append."""
    route, at = turn.actor.route, turn.position
    assert route is not None, "only turns with a route answer it"
    return OutboxPut(
        delivery=delivery_id(turn.actor.id, turn.number, len(at.deliveries) + behind + 1),
        route=route,
        content=(TextBlock(well_formed(text)),),
        turn=turn.number,
        step=at.step,
        latency_ms=max(0, turn.actor.runtime.now_ms() - at.started),
    )
