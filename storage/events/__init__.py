"""The vocabulary of the log: every event, in one tagged union (`type` is the tag), grouped by family.

`lifecycle` opens, feeds and closes (log, inbox, turn, step); `dialogue` is what passes between the model, its tools and the
request; `around` is the rest (commands, delivery, mail, children, approvals, timers, notes); `base` holds the shared shapes.
"""

from __future__ import annotations

from .around import (
    ApprovalAnswered,
    ApprovalAsked,
    ChildEnded,
    ChildSpawned,
    CommandResult,
    CommandRun,
    MailSent,
    Note,
    OutboxFailed,
    OutboxPut,
    OutboxSent,
    TimerCancelled,
    TimerFired,
    TimerSet,
)
from .base import (
    Aborted,
    AskedBy,
    Blocked,
    Cause,
    Completed,
    EndReason,
    Errored,
    Event,
    Interrupted,
    Lane,
    Limited,
    MaxTokens,
    Route,
    TraceEntry,
    kind_of,
)
from .dialogue import (
    AssistantChunk,
    AssistantMessage,
    Replay,
    RequestContext,
    RequestFailed,
    RequestHeader,
    RequestSent,
    SurfaceReplace,
    ToolCalled,
    ToolResult,
    UserMessage,
)
from .lifecycle import (
    InboxClaim,
    InboxDrop,
    InboxPut,
    LogCreated,
    LogForked,
    StepEnd,
    StepStart,
    TurnCancel,
    TurnEnd,
    TurnResume,
    TurnStart,
    TurnSuspend,
)

AnyEvent = (
    LogCreated
    | LogForked
    | InboxPut
    | InboxClaim
    | InboxDrop
    | TurnStart
    | TurnCancel
    | TurnSuspend
    | TurnResume
    | TurnEnd
    | StepStart
    | StepEnd
    | UserMessage
    | RequestHeader
    | RequestContext
    | RequestSent
    | RequestFailed
    | AssistantChunk
    | AssistantMessage
    | ToolCalled
    | ToolResult
    | SurfaceReplace
    | CommandRun
    | CommandResult
    | OutboxPut
    | OutboxSent
    | OutboxFailed
    | MailSent
    | ChildSpawned
    | ChildEnded
    | ApprovalAsked
    | ApprovalAnswered
    | TimerSet
    | TimerFired
    | TimerCancelled
    | Note
)
"""Every event there is. The order is that of the vocabulary in `docs/events.md`."""

EVENTS: dict[str, type[Event]] = {str(e.__struct_config__.tag): e for e in AnyEvent.__args__}
"""Type → class."""


def type_of(event: Event) -> str:
    """The event's `type`, as it stands in JSON."""
    return str(event.__struct_config__.tag)


__all__ = [
    "EVENTS",
    "Aborted",
    "AnyEvent",
    "ApprovalAnswered",
    "ApprovalAsked",
    "AskedBy",
    "AssistantChunk",
    "AssistantMessage",
    "Blocked",
    "Cause",
    "ChildEnded",
    "ChildSpawned",
    "CommandResult",
    "CommandRun",
    "Completed",
    "EndReason",
    "Errored",
    "Event",
    "InboxClaim",
    "InboxDrop",
    "InboxPut",
    "Interrupted",
    "Lane",
    "Limited",
    "LogCreated",
    "LogForked",
    "MailSent",
    "MaxTokens",
    "Note",
    "OutboxFailed",
    "OutboxPut",
    "OutboxSent",
    "Replay",
    "RequestContext",
    "RequestFailed",
    "RequestHeader",
    "RequestSent",
    "Route",
    "StepEnd",
    "StepStart",
    "SurfaceReplace",
    "TimerCancelled",
    "TimerFired",
    "TimerSet",
    "ToolCalled",
    "ToolResult",
    "TraceEntry",
    "TurnCancel",
    "TurnEnd",
    "TurnResume",
    "TurnStart",
    "TurnSuspend",
    "UserMessage",
    "kind_of",
    "type_of",
]
