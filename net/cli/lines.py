"""A record as one line for people: seq, time, type, and what matters of the event. Pure.

Every type has a line, also those that this version does not know: what no rule shortens is shown as its JSON.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ...storage import events as e
from ...storage.events.base import Route
from ...storage.messages import Block, Chunk, Failure, Message, TextBlock, ToolCallBlock
from ...storage.records import Record, UnknownEvent

WIDTH = 100


def line_of(record: Record) -> str:
    """The record as a line."""
    moment = clock.strftime("%H:%M:%S", clock.localtime(record.time / 1000))
    return f"{record.seq:>6}  {moment}.{record.time % 1000:03d}  {record.type:<17} {shorten(_say(record))}".rstrip()


def shorten(text: str, width: int = WIDTH) -> str:
    """The text on one line, cut at `width`."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def ago(milliseconds: int) -> str:
    """A length of time in its largest sensible unit."""
    seconds = max(milliseconds, 0) / 1000
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def reason_text(reason: e.EndReason) -> str:
    """How a turn ended, with why."""
    match reason:
        case e.Errored():
            return f"error {_failure(reason.error)}"
        case e.Aborted():
            return f"aborted by {reason.cause.text or reason.cause.kind}"
        case e.Blocked():
            return f"blocked: {reason.why}"
        case e.Limited():
            return f"limit: {reason.text or reason.limit}"
        case _:
            return e.kind_of(reason)


def _say(record: Record) -> str:
    event = record.event
    if isinstance(event, UnknownEvent):
        return _json({k: v for k, v in event.fields.items() if k != "type"})
    teller = _TELLERS.get(type(event))
    return teller(event) if teller else _json(_fields(event))


def _fields(event: e.Event) -> dict[str, Any]:
    return {k: v for k, v in msgspec.to_builtins(event).items() if k != "type"}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode() if value else ""


def _blocks(blocks: Sequence[Block]) -> str:
    """Texts and calls as they stand; other blocks by their type."""
    parts: list[str] = []
    for block in blocks:
        match block:
            case TextBlock():
                parts.append(block.text)
            case ToolCallBlock():
                parts.append(f"→ {block.name}({block.arguments})")
            case _:
                parts.append(f"[{block.__struct_config__.tag}]")
    return " ".join(parts)


def _message(message: Message) -> str:
    return f"{message.source.__struct_config__.tag}: {_blocks(message.content)}"


def _failure(failure: Failure) -> str:
    return f"{failure.code}: {failure.message}" if failure.message else failure.code


def _chunk(chunk: Chunk) -> str:
    return _json({k: v for k, v in msgspec.to_builtins(chunk).items() if k != "index"})


def _created(event: e.LogCreated) -> str:
    parent = f", child of {event.parent} (depth {event.depth})" if event.parent else ""
    return f"{event.agent}, a {event.name}{parent}"


def _turn_end(event: e.TurnEnd) -> str:
    return f"turn {event.turn} {reason_text(event.reason)}; {event.usage.total:,} tokens, {event.latency_ms} ms"


def _assistant(event: e.AssistantMessage) -> str:
    return f"{'(cut) ' if event.interrupted else ''}{_blocks(event.message.content)}"


def _failed(event: e.RequestFailed) -> str:
    return f"{event.turn}.{event.step} attempt {event.attempt}: {_failure(event.failure)} → {event.action}"


def _header(event: e.RequestHeader) -> str:
    header = event.header
    shown = f"{header.provider}:{header.model}, {len(header.tools)} tools" if header else "as before"
    return f"{event.reason}: {shown}"


def _result(event: e.ToolResult) -> str:
    return f"{event.call_id}: {event.error + ' ' if event.error else ''}{_blocks(event.content)}"


def _when(milliseconds: int) -> str:
    return clock.strftime("%Y-%m-%d %H:%M:%S", clock.localtime(milliseconds / 1000))


def _route(route: Route) -> str:
    return ":".join(part for part in (route.channel, route.chat, route.thread) if part)


def _timer(event: e.TimerSet) -> str:
    every = f", every {event.every:g} s" if event.every else ""
    return f"{event.id} at {_when(event.due)}{every}: {_blocks(event.message.content)}"


def _fired(event: e.TimerFired) -> str:
    return f"{event.id}{', late' if event.late else ''}{f', again at {_when(event.again)}' if event.again else ''}"


def _verdict(event: e.ApprovalAnswered) -> str:
    return f"{event.id} {event.verdict}{f' by {event.by}' if event.by else ''}{f': {event.text}' if event.text else ''}"


_TELLERS: dict[type[e.Event], Callable[[Any], str]] = {
    e.LogCreated: _created,
    e.LogForked: lambda v: f"{v.agent}, from {v.source} at {v.at}",
    e.InboxPut: lambda v: f"{v.lane} {_message(v.message)}",
    e.InboxClaim: lambda v: f"turn {v.turn} takes {', '.join(v.ids)}",
    e.InboxDrop: lambda v: f"{v.why}: {', '.join(v.ids)}",
    e.TurnStart: lambda v: f"turn {v.turn}",
    e.TurnCancel: lambda v: f"cancelled by {v.cause.text or v.cause.kind}{f', drops {len(v.ids)}' if v.ids else ''}",
    e.TurnSuspend: lambda v: f"turn {v.turn} waits for the next start",
    e.TurnResume: lambda v: f"turn {v.turn} goes on",
    e.TurnEnd: _turn_end,
    e.StepStart: lambda v: f"{v.turn}.{v.step}",
    e.StepEnd: lambda v: f"{v.turn}.{v.step}",
    e.UserMessage: lambda v: _message(v.message),
    e.RequestHeader: _header,
    e.RequestContext: lambda v: f"{v.provider}:{v.model}{f', window {v.context_window:,}' if v.context_window else ''}",
    e.RequestSent: lambda v: f"{v.turn}.{v.step} attempt {v.attempt}, digest {v.digest[:12]}, from records up to {v.upto}",
    e.RequestFailed: _failed,
    e.AssistantChunk: lambda v: _chunk(v.chunk),
    e.AssistantMessage: _assistant,
    e.ToolCalled: lambda v: f"{v.call_id}: {v.name}({v.effective or v.arguments})",
    e.ToolResult: _result,
    e.ChildSpawned: lambda v: f"{v.child}, a {v.name}",
    e.ChildEnded: lambda v: f"{v.child} {reason_text(v.reason)}; {v.usage.total:,} tokens",
    e.ApprovalAsked: lambda v: f"{v.id} about {v.call_id}: {v.question}",
    e.ApprovalAnswered: _verdict,
    e.CommandRun: lambda v: f"{v.name} {v.args}",
    e.CommandResult: lambda v: _failure(v.error) if v.error else v.text,
    e.OutboxPut: lambda v: f"to {_route(v.route)}: {_blocks(v.content)}",
    e.OutboxSent: lambda v: f"delivery {v.delivery}",
    e.OutboxFailed: lambda v: f"delivery {v.delivery}: {_failure(v.failure)}",
    e.TimerSet: _timer,
    e.TimerFired: _fired,
    e.TimerCancelled: lambda v: v.id,
    e.MailSent: lambda v: f"{v.kind} {v.message_id} to {v.to}{' (deleted)' if v.dead else ''}",
}
