"""Outcomes: what became of a turn, live at its end or read from the log long after.

The log alone knows which turn took a message, and what that turn said. So an `ask` that is sent again after a crash finds its
answer here instead of running anything twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import structs

from ..storage.events import (
    AssistantMessage,
    CommandResult,
    CommandRun,
    Completed,
    EndReason,
    InboxDrop,
    TimerCancelled,
    TimerFired,
    TurnCancel,
    TurnEnd,
    TurnStart,
)
from ..storage.folds import Position
from ..storage.store import Store
from .output import Output, candidate
from .promises import dropped
from .values import Outcome

if TYPE_CHECKING:
    from .turns.turn import Turn

_TURNS = {"turn/start", "turn/end", "step/start", "inbox/put", "user/message", "assistant/message", "command/result"}
_TYPES = frozenset(_TURNS | {"inbox/claim", "inbox/drop", "turn/cancel", "timer/fired", "timer/cancelled"})
_TYPED = _TYPES | {"tool/call", "tool/result"}
"""What is read of an agent with an output, whose value may be the arguments of a call."""


def outcome_now(turn: Turn, reason: EndReason) -> Outcome[Any]:
    """The outcome of a turn that has just ended."""
    at = turn.position
    outcome: Outcome[Any] = Outcome(
        agent=turn.actor.id,
        turn=turn.number,
        reason=reason,
        text=at.text or (turn.reply or "" if at.step == 0 else ""),
        usage=turn.end_usage,
        steps=at.step,
        seq=turn.end_seq,
    )
    return _with_output(outcome, turn.agent.typed, at)


def _with_output(outcome: Outcome[Any], output: Output | None, at: Position) -> Outcome[Any]:
    """The outcome with its value, for an agent with an output. A turn that no step was run in (a command, nothing to do) has
    none; nor has one whose answer the present definition does not take any more, and `result` says so."""
    if output is None or at.step == 0 or not isinstance(outcome.reason, Completed):
        return outcome
    text = candidate(at)
    try:
        return structs.replace(outcome, text=text, output=output.decode(text))
    except ValueError as error:
        return structs.replace(outcome, text=text, unfit=f"is no valid {output.name} any more: {error}")


class _Reading:
    """One turn as its records go by."""

    def __init__(self) -> None:
        self.at = Position()
        """Of the fold what an outcome needs; it is fed with those records alone."""
        self.text = ""
        self.fired: set[str] = set()
        """Timers that have put their message; what becomes of the timer changes nothing for that."""

    def feed(self, seq: int, time: int, event: Any) -> None:
        self.at.apply(seq, time, event)
        match event:
            case TurnStart():
                self.text = ""
            case AssistantMessage():
                self.text = self.at.text
            case CommandResult(id=id, text=text) if id in self.at.claimed:  # not one that ran beside the turn
                self.text = text
            case TimerFired(id=id):
                self.fired.add(id)
            case _:
                pass


async def find_aside(store: Store, agent: str, message_id: str, seq: int) -> Outcome[Any] | None:
    """The outcome of a control command, whose `command/run` is record `seq`: its answer, of turn 0. None if it is none."""
    run = await _record(store, agent, seq)
    if not isinstance(run, CommandRun):
        return None
    result = await _record(store, agent, seq + 1)
    text = result.text if isinstance(result, CommandResult) else ""
    return Outcome(agent=agent, turn=0, reason=Completed(), text=text, message_id=message_id, seq=seq + 1)


async def _record(store: Store, agent: str, seq: int) -> Any:
    async for record in store.read(agent, seq - 1, seq):
        return record.event
    return None


async def find_outcome(
    store: Store,
    agent: str,
    *,
    message_id: str | None = None,
    turn: int | None = None,
    after: int = -1,
    output: Output | None = None,
) -> Outcome[Any] | None:
    """The outcome of turn `turn`, or of the one that took `message_id`; None if it has not ended, or is not on disk.

    `output` is that of the agent's definition, by which its value is read.

    Raises:
        InputDropped: no turn took the message, and none will.
    """
    reading = _Reading()
    async for record in store.read(agent, after, types=_TYPES if output is None else _TYPED):
        event = record.event
        if isinstance(event, InboxDrop | TurnCancel):
            if message_id in event.ids:
                raise dropped(agent, str(message_id), event.why if isinstance(event, InboxDrop) else "cancelled")
        elif isinstance(event, TimerCancelled):
            if event.id == message_id and event.id not in reading.fired:
                raise dropped(agent, event.id, "withdrawn")
        elif isinstance(event, TurnEnd):
            if event.turn == turn or (message_id is not None and message_id in reading.at.claimed):
                outcome: Outcome[Any] = Outcome(
                    agent=agent,
                    turn=event.turn,
                    reason=event.reason,
                    text=reading.text,
                    usage=event.usage,
                    steps=reading.at.step,
                    message_id=message_id,
                    seq=record.seq,
                )
                return _with_output(outcome, output, reading.at)
        else:
            reading.feed(record.seq, record.time, event)
    return None
