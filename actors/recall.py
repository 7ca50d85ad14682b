"""Recall: a tool with which an agent finds again what it does not see any more.

A summary leaves things out, and the log keeps them. The model gives words, and reads where all of them stand together: when, who
said it, and what stands around. What it sees anyway is left out. The whole log is read, so a call takes longer the longer that
is.
"""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Any

from ..storage.errors import ToolError, UsageError
from ..storage.events import AssistantMessage, ToolResult, UserMessage
from ..storage.messages import Message, PluginSource
from ..storage.records import Record
from ..storage.searching import Hit, Search
from .tools.context import ToolContext
from .tools.tool import Tool, tool

TYPES = ("user/message", "assistant/message", "tool/result")
AROUND = 250
"""Characters on either side of what was found."""


def recall(*, name: str = "recall", most: int = 8) -> Tool[..., Any]:
    """A tool that searches what this agent said and heard, and does not see any more.

    Args:
        name: the tool's name.
        most: places that one call shows, the newest.

    Raises:
        UsageError: `most` is less than 1, or the name is none that a model takes.
    """
    if not most >= 1:
        raise UsageError(f"recall(most={most!r}) would never find anything; give 1 or more")

    @tool(name=name, mode="parallel", replay="safe")
    async def search(ctx: ToolContext, words: str, before: int | None = None) -> str:
        """Search the whole of this conversation, also what you do not see any more because it was summarised.

        Args:
            words: few and telling ones; a place is found where all of them stand.
            before: only places with a lower number than this, to see older ones.
        """
        hits = await _hits(ctx, words, most, before)
        if not hits:
            return f"Nothing that you do not see already has all of these words: {words}. Try fewer, or others."
        lines = [f"[{hit.seq}] {_when(ctx, hit)}, {who}: {hit.context}" for hit, who in reversed(hits)]
        return "\n".join(lines)

    return search


async def _hits(ctx: ToolContext, words: str, most: int, before: int | None) -> list[tuple[Hit, str]]:
    if not words.split():
        raise ToolError("Give some words to search for.", code="INVALID_ARGUMENTS")
    looking, seen = Search(words, around=AROUND, words=True), {message.id for message in await ctx.agent.messages()}
    found: deque[tuple[Hit, str]] = deque(maxlen=most)
    async for record in ctx.agent.read(upto=None if before is None else before - 1, types=TYPES):
        id, who = _of(record)
        hit = None if id in seen else looking.see(record)
        if hit is not None:
            found.append((hit, who))
    return list(found)


def _of(record: Record) -> tuple[str, str]:
    """The id of the message that a record is on the surface, and who said it."""
    match record.event:
        case ToolResult():
            return f"result:{record.seq}", "a tool"
        case AssistantMessage(message=message):
            return message.id, "you"
        case UserMessage(message=message):
            return message.id, _who(message)
        case _:
            return "", ""


def _who(message: Message) -> str:
    return message.source.name if isinstance(message.source, PluginSource) else "user"


def _when(ctx: ToolContext, hit: Hit) -> str:
    return datetime.fromtimestamp(hit.time / 1000, ctx.now.tzinfo).strftime("%Y-%m-%d %H:%M")
