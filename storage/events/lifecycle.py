"""Events that open, feed and close things: the log, the inbox, turns and steps."""

from __future__ import annotations

from typing import Literal

from ..messages import NO_USAGE, Message, Usage
from .base import AskedBy, Cause, EndReason, Event, FreeJson, Lane, Route, TraceEntry


class LogCreated(Event, frozen=True, kw_only=True, tag="log/created"):
    """Seq 0 of every log that is not a fork."""

    format: int
    agent: str
    name: str
    labels: dict[str, str] | None = None
    parent: str | None = None
    depth: int = 0


class LogForked(Event, frozen=True, kw_only=True, tag="log/forked"):
    """A fork's own first record, at seq `at` + 1; all before it is shared with `source`."""

    agent: str
    name: str
    source: str
    at: int
    labels: dict[str, str] | None = None


class InboxPut(Event, frozen=True, kw_only=True, tag="inbox/put"):
    """A message was accepted. `sender` names who sent it, `context` is free JSON, `ask` says that somebody waits, `restarts` is
    the id of the task that a supervisor puts again with it. If it wakes it `releases` what is parked; a command does not."""

    message: Message
    lane: Lane
    wake: bool = True
    sender: str | None = None
    route: Route | None = None
    context: FreeJson | None = None
    ask: AskedBy | None = None
    replaces: str | None = None
    not_before: int | None = None
    restarts: str | None = None
    releases: bool = True


class InboxClaim(Event, frozen=True, kw_only=True, tag="inbox/claim"):
    """Everything a boundary takes, in one append with what became of it."""

    turn: int
    ids: tuple[str, ...]


class InboxDrop(Event, frozen=True, kw_only=True, tag="inbox/drop"):
    """Pending messages left the inbox without being run."""

    ids: tuple[str, ...]
    why: Literal["withdrawn", "cancelled", "replaced"]


class TurnStart(Event, frozen=True, kw_only=True, tag="turn/start"):
    """A turn opens, before anything is claimed."""

    turn: int
    route: Route | None = None


class TurnCancel(Event, frozen=True, kw_only=True, tag="turn/cancel"):
    """A cancel was accepted while an activity ran: a fact before its effect. `ids` are what it drops."""

    cause: Cause
    turn: int | None = None
    ids: tuple[str, ...] = ()
    keep_inbox: bool = False


class TurnSuspend(Event, frozen=True, kw_only=True, tag="turn/suspend"):
    """The system closes while the turn is open; the next start goes on with it. `trace`: how it walked up to here."""

    turn: int
    trace: tuple[TraceEntry, ...] = ()


class TurnResume(Event, frozen=True, kw_only=True, tag="turn/resume"):
    """Recovery goes on with an open turn."""

    turn: int


class TurnEnd(Event, frozen=True, kw_only=True, tag="turn/end"):
    """Exactly once for each `turn/start`, with what the turn used and how it walked."""

    turn: int
    reason: EndReason
    usage: Usage = NO_USAGE
    latency_ms: int = 0
    park: bool = False
    delivery: Literal["put", "answered", "suppressed", "none"] = "none"
    trace: tuple[TraceEntry, ...] = ()


class StepStart(Event, frozen=True, kw_only=True, tag="step/start", gc=False):
    """One model call and its tools begin."""

    turn: int
    step: int


class StepEnd(Event, frozen=True, kw_only=True, tag="step/end", gc=False):
    """The step is over, whatever happened in it."""

    turn: int
    step: int
