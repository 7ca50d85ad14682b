"""The base of all events, and small structs that several of them share.

Rules of evolution, so that a log stays readable for ever: only optional fields are added; a field never changes its type or
meaning; a type is never renamed. Unknown fields are ignored and kept on export. An unknown type makes a log refuse to be
written, unless its record says `skippable`.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

from ..messages import Failure

Lane = Literal["next-turn", "next-step"]
CauseKind = Literal["user", "parent", "disposed", "hook"]


class Event(Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="type", gc=False):
    """What all events are: frozen, tagged by `type`, flat in JSON."""


class Cause(Struct, frozen=True, omit_defaults=True, gc=False):
    """Why a turn was cancelled; `text` is the hook's own."""

    kind: CauseKind
    text: str | None = None


class Route(Struct, frozen=True, omit_defaults=True, gc=False):
    """Where a message came from and its answer goes to."""

    channel: str = ""
    chat: str = ""
    thread: str | None = None
    message: str | None = None


class AskedBy(Struct, frozen=True, gc=False):
    """Who waits for the outcome of the turn that takes this message."""

    id: str
    agent: str


class Reason(Struct, frozen=True, gc=False):
    """What all end reasons have: their `kind`, the tag in JSON."""

    @property
    def kind(self) -> str:
        """The reason's kind, for programs: `outcome.reason.kind == "limit"`."""
        return str(self.__struct_config__.tag)


class Completed(Reason, frozen=True, tag_field="kind", tag="completed", gc=False):
    """The turn settled through a normal boundary."""


class MaxTokens(Reason, frozen=True, tag_field="kind", tag="max-tokens", gc=False):
    """Some step of the turn reached the output cap."""


class Blocked(Reason, frozen=True, tag_field="kind", tag="blocked", gc=False):
    """A plugin refused what the boundary had claimed."""

    why: str


class Aborted(Reason, frozen=True, omit_defaults=True, tag_field="kind", tag="aborted"):
    """The turn was cancelled; `error` is what failed beside it."""

    cause: Cause
    error: Failure | None = None


class Errored(Reason, frozen=True, tag_field="kind", tag="error"):
    """A model, plugin or tool failed and nothing recovered it."""

    error: Failure


class Interrupted(Reason, frozen=True, tag_field="kind", tag="interrupted", gc=False):
    """A crash ended the turn; only recovery writes this."""


class Limited(Reason, frozen=True, omit_defaults=True, tag_field="kind", tag="limit", gc=False):
    """A limit was reached; `limit` names it."""

    limit: str
    text: str | None = None


EndReason = Completed | MaxTokens | Blocked | Aborted | Errored | Interrupted | Limited


def kind_of(reason: EndReason) -> str:
    """The reason's `kind`, as it stands in JSON."""
    return str(reason.__struct_config__.tag)


class TraceEntry(Struct, frozen=True, omit_defaults=True, gc=False):
    """One state of a turn's walk: wall-clock start (Unix ms), duration (µs), and the event or the error it ended with."""

    state: str
    start: int
    us: int
    event: str | None = None
    error: str | None = None
    text: str | None = None


FreeJson = dict[str, Any]
