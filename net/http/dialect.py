"""OpenAI's chat completions as values: what a client sends, and what it hears of a turn. Pure: no trio, no I/O.

`model` names a definition, and the agent behind it has its own system prompt, tools and settings. So of a request only the
messages count; sampling parameters are left to the agent, and what would change the answer's shape (tools of the client, several
choices, another format) is refused by name and not ignored.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from ...actors.content import mint_id
from ...actors.streams import DELTA_TYPES, DeltaFold
from ...actors.values import Delta, Outcome, explain
from ...storage.errors import UsageError
from ...storage.events import Aborted, Blocked, Completed, EndReason, Errored, InboxClaim, Limited
from ...storage.messages import Block, Image, Message, TextBlock, Usage
from ...storage.records import Record

TYPES = DELTA_TYPES | {"inbox/claim"}
"""The records that `Telling` looks at."""
PAUSE = "\n\n"
"""Between what two steps of a turn say, and after an attempt that failed."""


# -- what is sent


class ImageUrl(Struct, frozen=True):
    """A picture by its address; a `data:` address holds it."""

    url: str


class Part(Struct, frozen=True):
    """A part of a message: `text`, or `image_url`."""

    type: str
    text: str | None = None
    image_url: ImageUrl | None = None


class ChatMessage(Struct, frozen=True):
    """One message of the conversation as the client remembers it."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    tool_calls: list[Any] | None = None


class StreamOptions(Struct, frozen=True):
    """`include_usage`: a last chunk with the turn's tokens."""

    include_usage: bool = False


class Format(Struct, frozen=True):
    """The format of the answer; an agent with `output=` has its own."""

    type: str = "text"


class ChatRequest(Struct, frozen=True):
    """A request; fields that are not here are the agent's business, and ignored."""

    model: str
    messages: list[ChatMessage]
    stream: bool = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    n: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: Format | None = None


def check(request: ChatRequest) -> None:
    """Refuse what would be promised and not kept.

    Raises:
        UsageError: the request asks for it.
    """
    if request.tools or request.functions:
        raise UsageError("an agent has its own tools, and runs them itself: send none")
    if request.n not in (None, 1):
        raise UsageError("an agent gives one answer: leave n out")
    if request.response_format is not None and request.response_format.type != "text":
        raise UsageError("the form of an answer is the agent's (its output=): leave response_format out")


def conversation(messages: Sequence[ChatMessage]) -> tuple[list[Message], list[Block]]:
    """What came before, for an agent that is new, and what is said now: all that follows the last answer. What the client's
    system messages say is remembered as context; the agent's own system prompt stays.

    Raises:
        UsageError: nothing is said now, or there is something that an agent cannot take.
    """
    answered = max((place for place, message in enumerate(messages) if message.role == "assistant"), default=-1)
    before, now = messages[: answered + 1], messages[answered + 1 :]
    before = [*before, *(message for message in now if message.role != "user")]
    prompt = [block for message in now if message.role == "user" for block in _blocks(message)]
    if not prompt:
        raise UsageError("the last message has to be the user's: there is nothing to answer")
    history = [
        Message(mint_id(), "assistant" if message.role == "assistant" else "user", tuple(blocks))
        for message in before
        if (blocks := _blocks(message))
    ]
    return history, prompt


def _blocks(message: ChatMessage) -> list[Block]:
    if message.role in ("tool", "function") or message.tool_calls:
        raise UsageError("a history with tool calls belongs to another agent: leave out its tool messages and tool_calls")
    if message.content is None:
        return []
    if isinstance(message.content, str):
        return [TextBlock(message.content)] if message.content else []
    return [_block(part) for part in message.content]


def _block(part: Part) -> Block:
    if part.type == "text" and part.text is not None:
        return TextBlock(part.text)
    if part.type == "image_url" and part.image_url is not None:
        return _image(part.image_url.url)
    raise UsageError(f"a part of the type {part.type!r} cannot be taken; send text and image_url")


def _image(url: str) -> Image:
    if not url.startswith("data:"):
        return Image("image/*", url=url)
    kind, _, data = url.removeprefix("data:").partition(",")
    if not kind.endswith(";base64"):
        raise UsageError("a picture in an address is base64: data:image/png;base64,...")
    try:
        return Image.from_bytes(base64.b64decode(data, validate=True), kind.removesuffix(";base64"))
    except binascii.Error as error:
        raise UsageError(f"the picture is no base64: {error}") from error


# -- what is heard


class Heading(Struct, frozen=True):
    """What every piece of an answer begins with."""

    id: str
    created: int
    model: str

    def chunk(self, delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
        """A piece of a streamed answer."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._head("chat.completion.chunk"), "choices": [choice], **more}

    def usage(self, usage: Usage) -> dict[str, Any]:
        """The last piece, with the tokens and without a choice."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": tokens(usage)}

    def whole(self, outcome: Outcome[Any]) -> dict[str, Any]:
        """The answer in one piece."""
        message = {"role": "assistant", "content": outcome.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_of(outcome.reason)}
        return {**self._head("chat.completion"), "choices": [choice], "usage": tokens(outcome.usage)}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def tokens(usage: Usage) -> dict[str, Any]:
    """Tokens as OpenAI counts them: cached ones are part of the prompt, reasoning is part of the completion."""
    prompt = usage.input + usage.cache_read + usage.cache_write
    completion = usage.output + usage.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def finish_of(reason: EndReason) -> str | None:
    """The finish reason that says so; None if the turn failed."""
    match reason:
        case Completed():
            return "stop"
        case Blocked():
            return "content_filter"
        case _:
            return "length" if reason.kind == "max-tokens" else None


def failure_of(reason: EndReason) -> tuple[int, dict[str, Any]]:
    """A turn that failed, as a status and an error."""
    status, code = 502, reason.kind
    match reason:
        case Errored(error=error):
            code = error.code
            status = {"RATE_LIMIT": 429, "CONTEXT_OVERFLOW": 400, "BAD_REQUEST": 400, "TIMEOUT": 504}.get(error.code, 502)
        case Limited(limit=limit):
            status, code = 429, f"limit_{limit}"
        case Aborted():
            status = 409
        case _:
            pass
    kind = "rate_limit_error" if status == 429 else "invalid_request_error" if status < 500 else "server_error"
    return status, {"message": f"the turn {explain(reason)}", "type": kind, "param": None, "code": code}


class Telling:
    """Records of an agent in, pieces of the answer to one message out. Tool calls and their results stay inside; that a tool
    runs, or that what was shown is dropped, stands in the field `callboard` of an otherwise empty piece."""

    def __init__(self, heading: Heading, message_id: str) -> None:
        self._heading, self._message = heading, message_id
        self._fold = DeltaFold()
        self._place: tuple[int, int] | None = None
        self._said = False
        self.turn: int | None = None
        """The turn that took the message."""
        self.end: EndReason | None = None
        """How it ended."""

    def feed(self, record: Record) -> Iterator[dict[str, Any]]:
        """The pieces in this record."""
        event = record.event
        if isinstance(event, InboxClaim) and self._message in event.ids:
            self.turn = event.turn
        delta = self._fold.feed(record)
        if delta is not None and delta.turn == self.turn:
            yield from self._pieces(delta)

    def _pieces(self, delta: Delta) -> Iterator[dict[str, Any]]:
        match delta.kind:
            case "text":
                yield self._heading.chunk({"content": self._pause(delta) + delta.text})
            case "reasoning":
                yield self._heading.chunk({"reasoning_content": delta.text})
            case "tool":
                yield self._heading.chunk({}, callboard={"tool": delta.text})
            case "discard":
                self._place = None
                yield self._heading.chunk({}, callboard={"discard": True})
            case "end":
                self.end = delta.reason

    def _pause(self, delta: Delta) -> str:
        """What separates this text from one of another step."""
        here, place = (delta.turn, delta.step), self._place
        self._place, said, self._said = here, self._said, True
        return PAUSE if said and place != here else ""
