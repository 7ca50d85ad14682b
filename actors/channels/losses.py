"""Replies that did not reach anybody, in words: for the agent's next turn, for `/status`, and for whoever asks.

A reply that failed for good is not tried again; what is left to do is to know it. The newest are in the outbox fold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.messages import TextBlock
from ..content import route_map
from ..values import moment

if TYPE_CHECKING:
    from ...storage.folds.outbox import Lost
    from ..state import AgentState

TOLD = 3
"""How many of them the model is told of."""
_LONGEST = 200


def lost_replies(state: AgentState) -> tuple[str, ...]:
    """A sentence for each reply that could not be delivered, newest first: when, where to, why, and how it began."""
    return tuple(_sentence(lost) for lost in reversed(state.outbox.lost))


def section(state: AgentState) -> str | None:
    """What the runtime context says of them; None if there are none."""
    if not state.outbox.lost:
        return None
    return "\n".join(("Replies of yours that did not arrive:", *lost_replies(state)[:TOLD]))


def _sentence(lost: Lost) -> str:
    put = lost.entry
    where = ", ".join(f"{key} {_short(value)}" for key, value in route_map(put.route).items())
    text = "".join(block.text for block in put.content if isinstance(block, TextBlock))
    when = f"{moment(lost.time):%Y-%m-%d %H:%M} UTC, " if lost.time else ""
    return f"{when}to {where}: {_short(lost.failure.message or lost.failure.code)}. It began: {_short(text)!r}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
