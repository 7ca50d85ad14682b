"""Drafts: summaries that are written beside the turn, before they are due.

A draft is scratch: a crash forgets it, and the log never heard of it. It holds the messages that it summarises, and is put in
place only where exactly those still stand, whatever was rewritten, undone or begun anew meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

import trio

from ....storage.messages import Message
from ...answers import Position
from .ranges import Range

DRAFTS = 1_000
"""So many are kept at most, of as many agents."""


class Draft:
    """A summary that is made beside the turn: of which messages, and what came of it."""

    def __init__(self, messages: Sequence[Message], tokens: int) -> None:
        self.messages, self.tokens = messages, tokens
        self.done = trio.Event()
        self.text: str | None = None


async def ready(draft: Draft, position: Position) -> Range | None:
    """Where the draft stands in the view; None if nothing came of it, or the view has changed there meanwhile."""
    await draft.done.wait()
    messages = [message for _, message in position.entries]
    if draft.text is None or draft.messages[0] not in messages:
        return None
    first = messages.index(draft.messages[0])
    last = first + len(draft.messages) - 1
    return Range(first, last, draft.tokens) if messages[first : last + 1] == draft.messages else None
