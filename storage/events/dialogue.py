"""Events of the dialogue with the model: what entered its view, what was asked, what it said, what its tools gave."""

from __future__ import annotations

from typing import Any, Literal

from ..messages import Block, Chunk, Failure, Finish, Header, Message, Usage
from .base import Event

Replay = Literal["never", "safe", "ask"]


class UserMessage(Event, frozen=True, kw_only=True, tag="user/message"):
    """An accepted message enters the model's view."""

    message: Message


class RequestHeader(Event, frozen=True, kw_only=True, tag="request/header"):
    """All of the coming requests but their messages. No `header`: the same as the last one with this digest."""

    reason: Literal["initial", "resume", "change"]
    digest: str
    header: Header | None = None


class RequestContext(Event, frozen=True, kw_only=True, tag="request/context"):
    """Provider, model or context window (tokens) differ from the last such record."""

    provider: str
    model: str
    context_window: int | None = None


class RequestSent(Event, frozen=True, kw_only=True, tag="request/sent"):
    """The request is about to be dispatched; `upto` is the last seq it was derived from, `digest` that of its canonical form."""

    turn: int
    step: int
    attempt: int
    digest: str
    upto: int


class RequestFailed(Event, frozen=True, kw_only=True, tag="request/failed"):
    """An attempt failed; `action` is what follows, `usage` what it cost if the provider said so."""

    turn: int
    step: int
    attempt: int
    failure: Failure
    action: Literal["retry", "raise"]
    delay_s: float | None = None
    usage: Usage | None = None


class AssistantChunk(Event, frozen=True, kw_only=True, tag="assistant/chunk"):
    """One chunk of the stream."""

    turn: int
    step: int
    chunk: Chunk


class AssistantMessage(Event, frozen=True, kw_only=True, tag="assistant/message"):
    """The stream finished; or, `interrupted`, the visible part of one that was cut. `sources`: the seqs of its chunks."""

    turn: int
    step: int
    message: Message
    finish: Finish = "stop"
    usage: Usage | None = None
    sources: tuple[int, ...] = ()
    interrupted: bool = False


class ToolCalled(Event, frozen=True, kw_only=True, tag="tool/call"):
    """Seams and guards have decided; the body is about to start. `effective`: the arguments a plugin put in their place."""

    turn: int
    step: int
    call_id: str
    name: str
    arguments: str
    effective: str | None = None
    replay: Replay = "never"


class ToolResult(Event, frozen=True, kw_only=True, tag="tool/result"):
    """What a call gave. `error` is its code if it failed; `context` enters the next step when the batch is whole."""

    turn: int
    step: int
    call_id: str
    content: tuple[Block, ...] = ()
    error: str | None = None
    concludes: bool = False
    context: tuple[Message, ...] | None = None
    meta: dict[str, Any] | None = None
    sources: tuple[int, ...] = ()


class SurfaceReplace(Event, frozen=True, kw_only=True, tag="surface/replace"):
    """The messages of seqs `start` to `end` leave the model's view, and `message` (if any) stands for them."""

    start: int
    end: int
    message: Message | None = None
    cause: str = ""
