"""What goes to a chat: an answer, a standard sentence, or nothing; and to which message it is the answer.

A turn has one route when it opens, that of its prompt. A message that was steered in has its own: an answer goes to the last
message that it answers, and the answer before it, behind which another step followed, was put when that step opened. So none of
two quick questions goes without an answer, and a reply to an older message goes to that one's place.

RESPOND asks the `respond` seam and notes the text; the exit writes it. A turn that fails never reaches RESPOND, and a person who
wrote still gets a sentence: the exit makes it. A turn that its own user aborted says nothing. What a tool has answered itself
(`ctx.reply`) is not answered again; what was shown while it streamed is marked, and is not sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...mailbox.addresses import delivery_id
from ...storage.events import Aborted, Blocked, Completed, EndReason, MaxTokens, OutboxPut, Route
from ...storage.messages import TextBlock
from ..answers import LimitReached
from ..output import value_text
from ..texts import well_formed

if TYPE_CHECKING:
    from ...storage.folds import Position
    from ..actor import Actor
    from .turn import Turn

EMPTY = "I have nothing to say to that."
BLOCKED = "I may not answer that."
FAILED = "Something went wrong, and I could not finish. Please try again."


async def respond_to_route(turn: Turn) -> None:
    """Decide what the route gets at the end of a turn that did not fail."""
    if _goal(turn) is None:
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
    at, text, route = turn.position, _unsaid(turn), turn.actor.route
    return [_answer(turn, route, text)] if text and route is not None and not at.answered_route else []


def _unsaid(turn: Turn) -> str:
    """Of an agent with an output the value alone: what was refused on the way to it is between the model and the runtime."""
    output, at = turn.agent.typed, turn.position
    return at.unsaid if output is None else value_text(output, at)


def standard_replies(turn: Turn, reason: EndReason) -> list[OutboxPut]:
    """The outbox entries that the exit writes: the reply, if the route gets one, behind an answer that another step was
    to follow: the question that the step did not come to must not take the answer to the one before with it."""
    goal = _goal(turn)
    if goal is None:
        return []
    if isinstance(reason, Completed | MaxTokens):
        return [] if turn.reply is None else [_answer(turn, goal, turn.reply)]
    if isinstance(reason, Aborted):
        return [_sentence(turn, goal, reason.cause.text)] if reason.cause.kind == "hook" and reason.cause.text else []
    before = unsaid_answer(turn) if turn.position.terminal or turn.position.joining else []
    text = turn.reply if isinstance(reason, Blocked) else FAILED
    return before if text is None else [*before, _sentence(turn, goal, text, behind=len(before))]


def _goal(turn: Turn) -> Route | None:
    """Where the turn's end is said: to the last of the messages that it takes with it, or where its answers go anyway."""
    if not turn.claiming:
        return turn.actor.route
    items = (turn.actor.inbox.get(id) for id in reversed(turn.claiming))
    return next((item.route for item in items if item is not None and item.route is not None), turn.actor.route)


# -- entries


def next_delivery(actor: Actor) -> str:
    """The id that the turn's next answer will have. Replies of tools are numbered apart, under the effect key of their call, so
    that one which comes while an answer streams does not make it another."""
    at = actor.position
    return delivery_id(actor.id, at.turn, at.started, _said(at) + 1)


def _said(at: Position) -> int:
    return sum("#" not in delivery for delivery in at.deliveries)


def _answer(turn: Turn, route: Route, text: str) -> OutboxPut:
    """The entry for what the model said; marked if the chat has seen it stream."""
    return _outbox_put(turn, route, text, 1, streamed=_was_shown(turn))


def _sentence(turn: Turn, route: Route, text: str, *, behind: int = 0) -> OutboxPut:
    """The entry for a sentence that no model said, behind so many others of the same append. It is a message of its own: what
    was shown of an answer that did not come to its end keeps its place."""
    cut = behind == 0 and _was_shown(turn)
    return _outbox_put(turn, route, text, 1 + behind + cut)


def _was_shown(turn: Turn) -> bool:
    return turn.actor.runtime.switchboard.was_shown(turn.actor, next_delivery(turn.actor))


def _outbox_put(turn: Turn, route: Route, text: str, number: int, *, streamed: bool = False) -> OutboxPut:
    at = turn.position
    return OutboxPut(
        delivery=delivery_id(turn.actor.id, turn.number, at.started, _said(at) + number),
        route=route,
        content=(TextBlock(well_formed(text)),),
        turn=turn.number,
        step=at.step,
        streamed=streamed,
        latency_ms=max(0, turn.actor.runtime.now_ms() - at.started),
    )
