"""Events around the dialogue: commands, delivery, mail, children, approvals, timers, notes."""

from __future__ import annotations

from typing import Any, Literal

from ..messages import NO_USAGE, Block, Failure, Message, Usage
from .base import EndReason, Event, Route


class CommandRun(Event, frozen=True, kw_only=True, tag="command/run"):
    """A slash command runs; `id` is its message's."""

    id: str
    name: str
    args: str = ""


class CommandResult(Event, frozen=True, kw_only=True, tag="command/result"):
    """What the command answered; never shown to the model."""

    id: str
    text: str
    error: Failure | None = None


class OutboxPut(Event, frozen=True, kw_only=True, tag="outbox/put"):
    """A reply to a channel, to be delivered at least once under the id `delivery`."""

    delivery: str
    route: Route
    content: tuple[Block, ...]
    turn: int
    step: int = 0
    streamed: bool = False
    latency_ms: int = 0


class OutboxSent(Event, frozen=True, kw_only=True, tag="outbox/sent"):
    """The channel took the reply."""

    delivery: str


class OutboxFailed(Event, frozen=True, kw_only=True, tag="outbox/failed"):
    """The reply could not be delivered, for good."""

    delivery: str
    failure: Failure


class MailSent(Event, frozen=True, kw_only=True, tag="mail/sent"):
    """This agent wrote to another's inbox, in the same commit; `dead`: the other was deleted."""

    to: str
    message_id: str
    kind: Literal["followup", "steer", "inject", "ask"]
    dead: bool = False


class ChildSpawned(Event, frozen=True, kw_only=True, tag="child/spawned"):
    """A child was created, in the same commit as its log. `task`: the message it lives for, if it was delegated to; `restarts`:
    how often in how many seconds that is put again when it fails."""

    child: str
    name: str
    call_id: str | None = None
    task: str | None = None
    background: bool = False
    restarts: tuple[int, float] | None = None


class ChildEnded(Event, frozen=True, kw_only=True, tag="child/ended"):
    """A child's life is over; `usage` is that of its subtree."""

    child: str
    reason: EndReason
    usage: Usage = NO_USAGE


class ApprovalAsked(Event, frozen=True, kw_only=True, tag="approval/asked"):
    """A person decides about a call; `expires` in Unix ms, `effective`: the arguments that a plugin put in the place of the
    model's, and that will run."""

    id: str
    call_id: str
    question: str
    expires: int | None = None
    effective: str | None = None


class ApprovalAnswered(Event, frozen=True, kw_only=True, tag="approval/answered"):
    """The verdict; `text` is the result if it is `reply`. `offline`: it was given while no process ran the agent."""

    id: str
    verdict: Literal["allow", "deny", "reply", "expired", "withdrawn"]
    by: str = ""
    text: str | None = None
    offline: bool = False


class TimerSet(Event, frozen=True, kw_only=True, tag="timer/set"):
    """A durable reminder; `due` in Unix ms, `every` in seconds."""

    id: str
    due: int
    message: Message
    every: float | None = None
    route: Route | None = None


class TimerFired(Event, frozen=True, kw_only=True, tag="timer/fired"):
    """The reminder's message was put, in the same append; `late`: it was due while nobody ran. `again`: when a repeating one is
    due next, Unix ms (the record's own time is no clock: it never goes back)."""

    id: str
    late: bool = False
    again: int | None = None


class TimerCancelled(Event, frozen=True, kw_only=True, tag="timer/cancelled"):
    """The reminder will not fire."""

    id: str


class Note(Event, frozen=True, kw_only=True, tag="note"):
    """A plugin's own fact; never shown to the model."""

    kind: str
    data: Any = None
