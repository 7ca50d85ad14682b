"""From a request to the body of OpenAI's chat completions. Pure: the same request is the same body.

Why this API and not OpenAI's newer Responses: it is the one that everybody else speaks (local servers, gateways, most
providers), it is stateless, as a request that the log can rebuild has to be, and one adapter serves them all. What Responses has
alone, such as tools that run at the provider, a `Model` of its own would bring.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from ...storage.messages import (
    File,
    Image,
    Message,
    ReasoningBlock,
    Request,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
)
from .base import merged
from .parts import arguments_of, as_base64, as_data_url, file_text, is_text, shown_of, unreadable, wire_id, wire_name
from .schemas import strict

OWN = frozenset({"model", "messages", "stream", "response_format"})
"""Fields that the agent's own settings may not set: the loop decides them."""

_SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_LONGEST_ID = 40


class Dialect(Struct, frozen=True):
    """How a server's chat completions differ from OpenAI's own."""

    max_tokens: str = "max_completion_tokens"
    """What the field is called: OpenAI has renamed it, and most others have not."""
    send_reasoning: bool = False
    """Whether reasoning goes back with the history, as `reasoning_content`: some ask for it, OpenAI does not take it."""


def to_body(request: Request, dialect: Dialect, extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body of the request; `extra` are the agent's own fields, over everything but what the loop decides."""
    settings = request.settings
    body: dict[str, Any] = {
        "model": request.model,
        "messages": [*_system(request.system), *_messages(request.messages, dialect)],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": settings.temperature,
        dialect.max_tokens: settings.max_tokens,
        "stop": list(settings.stop) if settings.stop else None,
        "reasoning_effort": settings.effort,
    }
    tools = [*map(_tool, request.tools), *extra.get("tools", ())]
    if tools:
        body["tools"] = tools
    if request.output is not None:
        schema = strict(request.output, recursive=True)
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    return merged(body, {name: value for name, value in extra.items() if name != "tools"})


def _system(text: str) -> Iterator[dict[str, Any]]:
    if text:
        yield {"role": "system", "content": text}


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.schema}
    return {"type": "function", "function": function}


# -- messages


def _messages(messages: Sequence[Message], dialect: Dialect) -> Iterator[dict[str, Any]]:
    pictures: list[dict[str, Any]] = []
    for message in messages:
        if message.role != "tool" and pictures:
            # A tool's message holds text alone, and all results of a batch have to follow their calls at once: so pictures
            # that came with them stand behind the last of them, in a message of the user's.
            yield {"role": "user", "content": pictures}
            pictures = []
        match message.role:
            case "user":
                yield from _user(message)
            case "assistant":
                yield from _assistant(message, dialect)
            case "tool":
                yield from _results(message, pictures)
    if pictures:
        yield {"role": "user", "content": pictures}


def _user(message: Message) -> Iterator[dict[str, Any]]:
    parts = [part for block in message.content if isinstance(block, TextBlock | Image | File) and (part := _part(block))]
    if len(parts) == 1 and parts[0]["type"] == "text":
        yield {"role": "user", "content": parts[0]["text"]}  # the form that every server takes
    elif parts:
        yield {"role": "user", "content": parts}


def _assistant(message: Message, dialect: Dialect) -> Iterator[dict[str, Any]]:
    said: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    if calls := [_call(call) for call in message.calls]:
        said["tool_calls"] = calls
    if dialect.send_reasoning:
        thought = "".join(block.text for block in message.content if isinstance(block, ReasoningBlock))
        said |= {"reasoning_content": thought} if thought else {}
    if message.text or calls:  # an answer with nothing to show is refused by some, and says nothing
        yield said


def _call(call: ToolCallBlock) -> dict[str, Any]:
    # Servers that render the history by a template decode arguments: those of the model that are no JSON go wrapped.
    arguments = msgspec.json.encode(arguments_of(call.arguments)).decode()
    function = {"name": wire_name(call.name), "arguments": arguments}
    return {"id": wire_id(call.id, longest=_LONGEST_ID), "type": "function", "function": function}


def _results(message: Message, pictures: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for block in message.content:
        if isinstance(block, ToolResultBlock):
            yield _result(block, pictures)


def _result(block: ToolResultBlock, pictures: list[dict[str, Any]]) -> dict[str, Any]:
    call_id = wire_id(block.call_id, longest=_LONGEST_ID)
    texts: list[str] = []
    for shown in shown_of(block):
        part = _part(shown)
        if part is None:
            continue
        if part["type"] == "text":
            texts.append(part["text"])
        else:
            texts.append(f"[what came with this result follows as part {len(pictures) + 1} of the next message]")
            pictures.append(part)
    return {"role": "tool", "tool_call_id": call_id, "content": "\n".join(texts)}


def _part(block: TextBlock | Image | File) -> dict[str, Any] | None:
    """A block as a part of content; None for an empty text."""
    match block:
        case TextBlock():
            return {"type": "text", "text": block.text} if block.text else None
        case Image(data=None, url=str(url)):
            return {"type": "image_url", "image_url": {"url": url}}
        case Image(data=bytes()) if block.media_type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": as_data_url(block)}}
        case File(data=bytes()) if is_text(block):
            return {"type": "text", "text": file_text(block)}
        case File(data=bytes(), media_type="application/pdf"):
            return {"type": "file", "file": {"filename": block.name or "file.pdf", "file_data": as_data_url(block)}}
        case File(data=bytes()) if block.media_type in _SOUNDS:
            return {"type": "input_audio", "input_audio": {"data": as_base64(block), "format": _SOUNDS[block.media_type]}}
        case _:
            return {"type": "text", "text": unreadable(block)}
