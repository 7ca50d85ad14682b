"""Outcomes: what became of a turn, live at its end or read from the log long after.

The log alone knows which turn took a message, and what that turn said. So an `ask` that is sent again after a crash finds its
answer here instead of running anything twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..storage.events import (
    AssistantMessage,
    CommandResult,
    EndReason,
    InboxClaim,
    InboxDrop,
    StepStart,
    TurnCancel,
    TurnEnd,
    TurnStart,
)
from ..storage.store import Store
from .promises import dropped
from .values import Outcome

if TYPE_CHECKING:
    from .turn import Turn

_TYPES = frozenset(
    {"turn/start", "turn/end", "inbox/claim", "step/start", "assistant/message", "command/result", "inbox/drop", "turn/cancel"}
)


def outcome_now(turn: Turn, reason: EndReason) -> Outcome[Any]:
    """The outcome of a turn that has just ended."""
    at = turn.position
    text = at.text or (turn.reply or "" if at.step == 0 else "")
    return Outcome(
        agent=turn.actor.id,
        turn=turn.number,
        reason=reason,
        text=text,
        usage=turn.end_usage,
        steps=at.step,
        seq=turn.end_seq,
    )


class _Reading:
    """One turn as its records go by."""

    def __init__(self) -> None:
        self.turn = self.steps = 0
        self.text = ""
        self.ids: tuple[str, ...] = ()

    def feed(self, event: Any) -> None:
        match event:
            case TurnStart(turn=turn):
                self.turn, self.steps, self.text, self.ids = turn, 0, "", ()
            case InboxClaim(ids=ids):
                self.ids += ids
            case StepStart():
                self.steps += 1
            case AssistantMessage(message=message):
                self.text = message.text or self.text
            case CommandResult(text=text) if not self.steps:
                self.text = text
            case _:
                pass


async def find_outcome(
    store: Store, agent: str, *, message_id: str | None = None, turn: int | None = None, after: int = -1
) -> Outcome[Any] | None:
    """The outcome of turn `turn`, or of the one that took `message_id`; None if it has not ended, or is not on disk.

    Raises:
        InputDropped: no turn took the message, and none will.
    """
    reading = _Reading()
    async for record in store.read(agent, after, types=_TYPES):
        event = record.event
        if isinstance(event, InboxDrop | TurnCancel):
            if message_id in event.ids:
                raise dropped(agent, str(message_id), event.why if isinstance(event, InboxDrop) else "cancelled")
        elif isinstance(event, TurnEnd):
            if event.turn == turn or (message_id is not None and message_id in reading.ids):
                return Outcome(
                    agent=agent,
                    turn=event.turn,
                    reason=event.reason,
                    text=reading.text,
                    usage=event.usage,
                    steps=reading.steps,
                    message_id=message_id,
                    seq=record.seq,
                )
        else:
            reading.feed(event)
    return None
