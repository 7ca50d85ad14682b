"""Redact: what must not be kept is taken out before anything is kept.

At `accept`, before a message is logged: so it is neither on disk nor in front of a model. That is every send from outside, also
one that replaces another. What a model writes by itself, a tool returns, or `spawn(history=)` brings along is not looked at here;
those who need that write a plugin with `stream` and `tool_after`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...storage.errors import UsageError
from ...storage.messages import Message
from ..answers import Answer, Reject
from ..seams import Next, Plugin, SeamContext


class Redact(Plugin):
    """Replace whatever these patterns find in messages from outside."""

    def __init__(self, patterns: Sequence[str | re.Pattern[str]], *, by: str = "[redacted]") -> None:
        """Compile the patterns; `by` takes the place of each match, as it is.

        Raises:
            UsageError: one text instead of a list, or a pattern that is no regular expression.
        """
        if isinstance(patterns, str):
            raise UsageError(f"Redact({patterns!r}) is one pattern; give a list: Redact([{patterns!r}])")
        try:
            self._patterns = tuple(re.compile(pattern) for pattern in patterns)
        except re.error as error:
            raise UsageError(f"Redact: the pattern {error.pattern!r} is no regular expression: {error}") from error
        for pattern in self._patterns:
            if not isinstance(pattern.pattern, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"Redact: the pattern {pattern.pattern!r} is for bytes; messages are texts")
        self._by = by

    def __repr__(self) -> str:
        return f"Redact({[pattern.pattern for pattern in self._patterns]!r}, by={self._by!r})"

    async def accept(
        self, ctx: SeamContext, message: Message, next: Next[Message, Message | Reject | Answer], /
    ) -> Message | Reject | Answer:
        """Hand on the message without what must not be kept."""
        return await next(message.map_text(self._clean))

    def _clean(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(lambda _: self._by, text)
        return text
