"""From a request to the body of Anthropic's messages. Pure: the same request is the same body.

The protocol is strict where the loop's history is free: user and assistant take turns, results stand first in the message after
their calls, no text is blank, reasoning comes back signed or not at all, and who has called a tool must still be told of it. What
does not fit is brought into that shape here, and the log keeps what was said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from ...storage.messages import (
    Block,
    File,
    Image,
    Message,
    ModelSource,
    ReasoningBlock,
    Request,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)
from .base import merged
from .known import ANTHROPIC_WITHOUT_EFFORT
from .parts import arguments_of, as_base64, file_text, is_text, shown_of, unreadable, wire_id, wire_name
from .schemas import strict

OWN = frozenset({"model", "messages", "stream", "system"})
"""Fields that the agent's own settings may not set: the loop decides them."""

META = "anthropic"
"""The name under which blocks keep what Anthropic alone knows of them, and wants back."""

_PICTURES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_GOES_ON = "(The conversation goes on.)"
_BUDGETS = {"minimal": 1_024, "low": 4_096, "medium": 12_288, "high": 24_576, "xhigh": 32_768, "max": 49_152}
"""Tokens of thinking for models that know a budget only."""
_MODEL_HAS = {"minimal": "low"}
"""Words of other providers for an effort."""


def to_body(request: Request, extra: Mapping[str, Any], *, cache: str | None) -> dict[str, Any]:
    """The body of the request; `extra` are the agent's own fields, over everything but what the loop decides.

    `cache` is how long the provider keeps what it has read of the conversation (`5m`, `1h`), None for not at all.
    """
    settings, messages = request.settings, _alternating(request)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": settings.max_tokens,
        "messages": messages,
        "stream": True,
        "system": request.system or None,
        "temperature": settings.temperature,
        "stop_sequences": [stop for stop in settings.stop if stop.strip()] if settings.stop else None,
        "cache_control": None if cache is None else {"type": "ephemeral", "ttl": cache},
    }
    body |= _tools(request, list(extra.get("tools", ())))
    output = _output(request)
    if settings.effort is not None:
        body |= _thinking(request, messages, output)
    fields = {name: value for name, value in extra.items() if name != "tools"}
    if isinstance(named := fields.get("output_config"), Mapping):
        fields["output_config"] = {**output, **cast("Mapping[str, Any]", named)}
    return merged({**body, "output_config": output or None}, fields)


def _output(request: Request) -> dict[str, Any]:
    if request.output is None:
        return {}
    return {"format": {"type": "json_schema", "schema": strict(request.output, recursive=False)}}


def _tools(request: Request, more: list[Any]) -> dict[str, Any]:
    tools = [{"name": t.name, "description": t.description, "input_schema": t.schema} for t in request.tools]
    if tools or more:
        return {"tools": [*tools, *more]}
    used = dict.fromkeys(wire_name(call.name) for message in request.messages for call in message.calls)
    if not used:
        return {}
    # A history with calls and no tools is refused; none of these can be called.
    gone = [{"name": n, "description": "It is not here any more.", "input_schema": {"type": "object"}} for n in used]
    return {"tools": gone, "tool_choice": {"type": "none"}}


def _thinking(request: Request, messages: list[dict[str, Any]], output: dict[str, Any]) -> dict[str, Any]:
    """How hard to think: a word where the model knows one, else a budget within its output."""
    effort = str(request.settings.effort)
    if effort == "none":
        return {"thinking": {"type": "disabled"}}
    if not request.model.startswith(ANTHROPIC_WITHOUT_EFFORT):
        output["effort"] = _MODEL_HAS.get(effort, effort)
        return {} if request.model.startswith("claude-opus-4-5") else {"thinking": {"type": "adaptive"}}
    budget = min(_BUDGETS.get(effort, _BUDGETS["medium"]), (request.settings.max_tokens or 0) - 1_024)
    if budget < _BUDGETS["minimal"] or _called_without_thinking(messages):
        return {}  # no room for it, or refused in the middle of calls that another model made
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _called_without_thinking(messages: list[dict[str, Any]]) -> bool:
    """Whether the calls whose results come last were made without a thought that can be shown."""
    last = next((m for m in reversed(messages) if m["role"] == "assistant"), None)
    answering = messages[-1]["role"] == "user" and messages[-1]["content"][0]["type"] == "tool_result"
    return answering and last is not None and last["content"][0]["type"] not in ("thinking", "redacted_thinking")


# -- messages


def _alternating(request: Request) -> list[dict[str, Any]]:
    """The history as user and assistant by turns, beginning with the user."""
    made: list[dict[str, Any]] = []
    for message in request.messages:
        role = "assistant" if message.role == "assistant" else "user"
        content = [part for block in message.content for part in _parts(block, message, request.provider)]
        if not content:
            continue
        if made and made[-1]["role"] == role:
            made[-1]["content"] += content
        else:
            made.append({"role": role, "content": content})
    if not made or made[0]["role"] != "user":
        made.insert(0, {"role": "user", "content": [{"type": "text", "text": _GOES_ON}]})
    return made


def _parts(block: Block, message: Message, provider: str) -> Iterator[dict[str, Any]]:
    kept: Any = (block.meta or {}).get(META) if isinstance(message.source, ModelSource) else None
    own = isinstance(message.source, ModelSource) and message.source.provider == provider
    match block:
        case TextBlock(text="") if own and isinstance(kept, Mapping) and "block" in kept:
            yield cast("Mapping[str, Any]", kept)["block"]
        case TextBlock() if block.text.strip():
            yield {"type": "text", "text": block.text}
        case ReasoningBlock() if own:  # a thought of another provider's has no signature that this one knows
            yield from _thought(block, kept)
        case ToolCallBlock():
            arguments = arguments_of(block.arguments)
            yield {"type": "tool_use", "id": wire_id(block.id), "name": wire_name(block.name), "input": arguments}
        case ToolResultBlock():
            yield _result(block)
        case Image() | File():
            yield _media(block)
        case _:
            pass  # blank text, and thoughts that cannot be given back


def _thought(block: ReasoningBlock, kept: Any) -> Iterator[dict[str, Any]]:
    if isinstance(kept, Mapping) and "redacted" in kept:
        yield {"type": "redacted_thinking", "data": cast("Mapping[str, Any]", kept)["redacted"]}
    elif block.signature:
        yield {"type": "thinking", "thinking": block.text, "signature": block.signature}


def _result(block: ToolResultBlock) -> dict[str, Any]:
    content = [
        {"type": "text", "text": shown.text} if isinstance(shown, TextBlock) else _media(shown)
        for shown in shown_of(block)
        if not isinstance(shown, TextBlock) or shown.text.strip()
    ]
    result: dict[str, Any] = {"type": "tool_result", "tool_use_id": wire_id(block.call_id), "content": content}
    return {**result, "is_error": True} if block.is_error else result


def _media(block: Image | File) -> dict[str, Any]:
    match block:
        case Image(data=None, url=str(url)):
            return {"type": "image", "source": {"type": "url", "url": url}}
        case Image(data=bytes()) if block.media_type in _PICTURES:
            source = {"type": "base64", "media_type": block.media_type, "data": as_base64(block)}
            return {"type": "image", "source": source}
        case File(data=None, url=str(url), media_type="application/pdf"):
            return {"type": "document", "source": {"type": "url", "url": url}}
        case File(data=bytes()) if is_text(block) and block.data:
            return {"type": "text", "text": file_text(block)}
        case File(data=bytes(), media_type="application/pdf"):
            source = {"type": "base64", "media_type": block.media_type, "data": as_base64(block)}
            return {"type": "document", "source": source, **({"title": block.name} if block.name else {})}
        case _:
            return {"type": "text", "text": unreadable(block)}
