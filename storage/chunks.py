"""Makers of chunks, for those who write a model adapter: `from callboard.storage import chunks as c`."""

from __future__ import annotations

from typing import Literal

from .messages import (
    BlockEnd,
    BlockStart,
    Failure,
    Finish,
    FinishChunk,
    Meta,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    UsageChunk,
)

__all__ = ["block_end", "block_start", "finish", "reasoning_delta", "text_delta", "tool_call_delta", "usage"]


def block_start(
    index: int, block: Literal["text", "reasoning", "tool-call"] | TextBlock | ReasoningBlock | ToolCallBlock
) -> BlockStart:
    """Block `index` begins; a kind alone makes its empty shape."""
    shapes: dict[str, TextBlock | ReasoningBlock | ToolCallBlock] = {
        "text": TextBlock(""),
        "reasoning": ReasoningBlock(""),
        "tool-call": ToolCallBlock("", ""),
    }
    return BlockStart(index, shapes[block] if isinstance(block, str) else block)


def text_delta(index: int, text: str) -> TextDelta:
    """More visible text."""
    return TextDelta(index, text)


def reasoning_delta(index: int, text: str, *, signature: str | None = None) -> ReasoningDelta:
    """More reasoning."""
    return ReasoningDelta(index, text, signature)


def tool_call_delta(index: int, *, id: str | None = None, name: str | None = None, arguments: str = "") -> ToolCallDelta:
    """A piece of a tool call."""
    return ToolCallDelta(index, id, name, arguments)


def block_end(index: int, *, meta: Meta | None = None) -> BlockEnd:
    """Block `index` is whole."""
    return BlockEnd(index, meta)


def usage(*, input: int = 0, output: int = 0, cache_read: int = 0, cache_write: int = 0, reasoning: int = 0) -> UsageChunk:
    """Tokens used so far, in disjoint counts."""
    return UsageChunk(Usage(input, output, cache_read, cache_write, reasoning))


def finish(reason: Finish, *, failure: Failure | None = None) -> FinishChunk:
    """The stream is over."""
    return FinishChunk(reason, failure)
