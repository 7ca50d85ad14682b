"""Spans: what an agent's turns look like from outside, as spans of a trace, and the ids that its log gives them.

A span is known by the place of the record that began it: so one that began before a restart ends after it under the same id, and
a child of it that was exported long ago still finds its parent. Names and attributes are those of the semantic conventions for
generative AI. No OpenTelemetry in here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal

from msgspec import Struct

from ...storage.events import Errored, Limited, StepEnd
from ...storage.messages import Usage
from ...storage.records import Record


class Origin(Struct, frozen=True):
    """What a message brought along: a trace to go on with, and the agent that sent it."""

    id: str
    carrier: Mapping[str, str]
    sender: str | None


class Open(Struct):
    """A span that has begun."""

    id: int
    start: int
    attributes: dict[str, Any]
    name: str = ""
    parent: int | None = None


class Turn(Struct):
    """The open turn."""

    number: int
    span: Open
    seq: int
    time: int
    origins: list[Origin] = []
    step: Open | None = None
    request: Open | None = None
    calls: dict[str, Open] = {}
    questions: dict[str, Open] = {}
    moments: list[tuple[str, int]] = []
    """What happened to it besides: (event, Unix ms)."""
    trace: Any = None
    """Where its spans belong, once somebody has found out."""


class Span(Struct, frozen=True):
    """A span that has ended; times in Unix ms. `error`: what to say of it if it failed."""

    id: int
    parent: int | None
    """None: the turn's own, whose parent is elsewhere."""
    kind: Literal["client", "internal"]
    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    turn: Turn
    error: str | None = None
    moments: Sequence[tuple[str, int]] = ()


class Born(Struct, frozen=True):
    """The call that spawned a child: its turn, its span, and the message that the child lives for."""

    turn: Turn
    span: int
    task: str | None


_NOTHING = StepEnd(turn=0, step=0)


def span_id(agent: str, record: Record) -> int:
    """The id of the span that a record begins: the same whenever the log is read."""
    return int.from_bytes(_hash("span", agent, record)[:8], "big") or 1


def trace_id(agent: str, turn: Turn) -> int:
    """The id of the trace that a turn begins which came with none."""
    place = Record(turn.seq, turn.time, _NOTHING)
    return int.from_bytes(_hash("trace", agent, place)[:16], "big") or 1


def _hash(what: str, agent: str, record: Record) -> bytes:
    # The time keeps two stores apart in which agents have the same names.
    return sha256(f"{what}\0{agent}\0{record.seq}\0{record.time}".encode()).digest()


def failure_of(reason: Any) -> tuple[str, str] | None:
    """Type and text of what a turn failed with; None if it did not."""
    if isinstance(reason, Errored):
        return reason.error.code, reason.error.message
    return (f"limit {reason.limit}", reason.text or "") if isinstance(reason, Limited) else None


def usage_attributes(usage: Usage | None) -> dict[str, Any]:
    """The conventions count cached input with the input, and reasoning with the output."""
    if usage is None:
        return {}
    counts = {
        "input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "output_tokens": usage.output + usage.reasoning,
        "cache_read.input_tokens": usage.cache_read or None,
        "cache_creation.input_tokens": usage.cache_write or None,
        "reasoning.output_tokens": usage.reasoning or None,
    }
    return {f"gen_ai.usage.{name}": count for name, count in counts.items() if count is not None}
