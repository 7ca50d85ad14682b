"""Records: an event with its place in one log, and the flat JSON form in which logs leave the house.

A record read from a store keeps the bytes it was decoded from, so that fields and types of a newer version survive an export
and an import here. Two records are equal if seq, time and event are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec import Struct

from .errors import UnknownRecord, UsageError
from .events import (
    AnyEvent,
    AssistantMessage,
    Event,
    InboxClaim,
    InboxDrop,
    InboxPut,
    OutboxSent,
    RequestSent,
    StepEnd,
    StepStart,
    TimerFired,
    ToolCalled,
    ToolResult,
    TurnEnd,
    TurnResume,
    TurnStart,
    TurnSuspend,
    UserMessage,
    type_of,
)
from .messages import AgentSource, Message, TextBlock, UserSource

FORMAT = 1
"""The format of logs written by this version; a store with a higher one is refused."""

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Event] = cast("Any", msgspec.msgpack.Decoder(AnyEvent))
_json = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="deterministic")
"""The form of a request's digest; stricter than plain JSON, which takes keys that are numbers."""


class UnknownEvent(Struct, frozen=True):
    """An event of a type that this version does not know; its fields are kept as they are."""

    fields: dict[str, Any]

    @property
    def type(self) -> str:
        """The type it calls itself."""
        return str(self.fields.get("type", ""))

    @property
    def skippable(self) -> bool:
        """Whether a version that does not know it may go on without it."""
        return self.fields.get("skippable") is True


class Record(Struct, frozen=True, eq=False, gc=False):
    """One line of a log: dense `seq` from 0, `time` in Unix ms (it orders, it does not measure), and the event."""

    seq: int
    time: int
    event: Event | UnknownEvent
    raw: bytes = b""
    """The event as msgpack, if it was read; empty for one made here."""

    @property
    def type(self) -> str:
        """The event's type, as it stands in JSON."""
        return self.event.type if isinstance(self.event, UnknownEvent) else type_of(self.event)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (self.seq, self.time, self.event) == (other.seq, other.time, other.event)

    def __hash__(self) -> int:
        return hash((self.seq, self.time, self.type))


def encode_event(record: Record) -> bytes:
    """The record's event as msgpack: the bytes it was read from, or fresh ones."""
    if record.raw:
        return record.raw
    return _encoder.encode(record.event.fields if isinstance(record.event, UnknownEvent) else record.event)


_OWN = frozenset(
    {InboxClaim, InboxDrop, OutboxSent, RequestSent, StepEnd, StepStart, TimerFired, TurnResume, TurnStart, TurnSuspend}
    | {AssistantMessage, TurnEnd}
)
"""Events that hold nothing but what this runtime made itself, or what was checked before (chunks as they came, in another event).
All others have values of plugins, tools, adapters or callers, whose types nobody has checked."""
_MARGIN = 200
"""Frames of the stack that must be left when an event is decoded: what only just decodes here could not be read elsewhere."""
_CONTAINERS = bytes([*range(0x80, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF])
"""The bytes that open a list or a map in msgpack; there may be as many in a text, but never fewer than there are levels."""


def sound(event: Event) -> bytes:
    """The event as msgpack, shown to be readable again, as msgpack and as JSON.

    Structs check nothing when they are made. A wrong type would be written without complaint and make its log unreadable, half
    of a surrogate pair would fail the commit of everybody, and what JSON cannot carry could neither be exported nor be part of
    a request's digest; so all of these are refused where the event is made.

    Raises:
        UsageError: the event cannot be kept; the text says which value.
    """
    try:
        raw = _encoder.encode(event)
        if type(event) not in _OWN and not _is_plain(event):
            _canonical.encode(_decoder.decode(raw))
            refuse_deep(raw, _decoder.decode)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError(f"a {type_of(event)!r} record cannot be kept: {error}") from error
    return raw


_NAMES = (str, type(None))
_REPLAYS = ("never", "safe", "ask")
_ROLES = ("user", "assistant", "tool")


def _is_plain(event: Event) -> bool:
    """Whether it is a message of one text, a call or a result in plain text: what most are, and what needs no second look."""
    if type(event) is InboxPut:
        if event.context is not None or event.route is not None or type(event.sender) not in _NAMES:
            return False
    elif type(event) is ToolCalled:
        texts = event.call_id, event.name, event.arguments
        return all(type(text) is str for text in texts) and type(event.effective) in _NAMES and event.replay in _REPLAYS
    elif type(event) is ToolResult:
        if event.context is not None or event.meta is not None or type(event.error) not in _NAMES:
            return False
        return type(event.call_id) is str and type(event.content) is tuple and all(map(_is_text, event.content))
    elif type(event) is not UserMessage:
        return False
    message = event.message
    if type(message) is not Message or type(message.id) is not str or message.role not in _ROLES or len(message.content) != 1:
        return False
    source = message.source
    if not (type(source) is UserSource or (type(source) is AgentSource and type(source.id) is str)):
        return False
    return _is_text(message.content[0])


def _is_text(block: object) -> bool:
    return type(block) is TextBlock and type(block.text) is str and block.meta is None


def refuse_deep(raw: bytes, decode: Callable[[bytes], object], *, margin: int = _MARGIN) -> None:
    """Raise `RecursionError` for what is nested so deep that it could not be decoded from a stack `margin` frames deeper."""
    if len(raw) - len(raw.translate(None, _CONTAINERS)) > margin:
        _far_down(raw, decode, margin)


def _far_down(raw: bytes, decode: Callable[[bytes], object], frames: int) -> None:
    if frames:
        _far_down(raw, decode, frames - 1)
    else:
        decode(raw)


def decode_event(raw: bytes | memoryview | msgspec.Raw) -> Event | UnknownEvent:
    """The event in msgpack bytes; one of an unknown type becomes an `UnknownEvent`.

    Raises:
        msgspec.DecodeError: the bytes are not an event at all.
    """
    try:
        return _decoder.decode(raw)
    except msgspec.ValidationError:
        fields: dict[str, Any] = msgspec.msgpack.decode(raw, type=dict[str, Any])
        if not isinstance(fields.get("type"), str) or fields["type"] in _KNOWN:
            raise
        return UnknownEvent(fields)


_KNOWN = frozenset(str(e.__struct_config__.tag) for e in AnyEvent.__args__)


def to_json(record: Record) -> bytes:
    """The record as one flat JSON object: `{"seq":7,"time":...,"type":"turn/end",...}`, without a newline."""
    head = b'{"seq":%d,"time":%d,' % (record.seq, record.time)
    if record.raw:
        return head + _json.encode(msgspec.msgpack.decode(record.raw))[1:]
    body = record.event.fields if isinstance(record.event, UnknownEvent) else record.event
    return head + _json.encode(body)[1:]


def from_json(line: bytes | str) -> Record:
    """The record in one line of an exported log.

    Raises:
        msgspec.DecodeError: the line is not a record.
    """
    fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    try:
        seq, time = int(fields.pop("seq")), int(fields.pop("time"))
    except (KeyError, TypeError, ValueError) as e:
        raise msgspec.ValidationError("a record needs seq and time, both integers") from e
    raw = _encoder.encode(fields)
    return Record(seq, time, decode_event(raw), raw)


def refuse_unknown(record: Record, agent: str) -> None:
    """Raise `UnknownRecord` if the record's type is unknown and not skippable: such a log may be read, not written."""
    event = record.event
    if isinstance(event, UnknownEvent) and not event.skippable:
        raise UnknownRecord(
            f"record {record.seq} of {agent!r} has the unknown type {event.type!r}: it was written by a newer Callboard; "
            "upgrade to go on with this agent (it can still be read)",
            type=event.type,
            agent=agent,
            seq=record.seq,
        )
