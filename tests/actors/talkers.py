"""Models for the tests of compaction: one that talks in a small window and counts nothing, and one that summarises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from callboard.actors.testing import Reply, ScriptedModel
from callboard.actors.tokens import messages_tokens
from callboard.storage import Request
from callboard.storage.messages import Usage

WINDOW = 400
LONG = "word " * 60
"""75 tokens: with its answer a fifth of a window and more."""
TWICE = LONG * 2
"""Two of them are more than half of it, and leave room for a third turn."""
NOT_COUNTED = Usage()


def said(text: str) -> Reply:
    return Reply.text(text, usage=NOT_COUNTED)


def talker(
    answer: str = "An answer. " * 8, *, window: int | None = WINDOW, refuse: Callable[[Request], bool] | None = None
) -> Any:
    """A model that always says the same, and refuses what it is told to."""

    def reply(request: Request) -> Reply:
        if refuse is not None and refuse(request):
            return Reply.fail("CONTEXT_OVERFLOW", "too long")
        return said(answer)

    return ScriptedModel(reply, context_window=window)


def summariser(*replies: Any) -> ScriptedModel:
    return ScriptedModel([said(r) if isinstance(r, str) else r for r in replies], provider="sum", name="small")


def full(request: Request) -> int:
    return messages_tokens(request.messages)


def tail(log: str, turn: int) -> str:
    """The notation from the start of a turn on."""
    return log[log.index(f"TS{turn} ") :]
