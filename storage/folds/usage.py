"""What an agent has spent: its own turns, and the subtrees of children that have ended.

Both are kept apart, because a budget of a tree counts a child that still runs at the child. A plugin's own model calls leave
a `note` of kind `model-call` with a `usage`; they are not in `turn/end`, and are counted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

import msgspec
from msgspec import Struct

from ..events import ChildEnded, Event, LogForked, Note, TurnEnd
from ..messages import NO_USAGE, Usage
from .fold import Fold, Handler

MODEL_CALL = "model-call"
"""The kind of note that a plugin's model call leaves; its `usage` is counted."""


class UsageState(Struct, frozen=True, omit_defaults=True):
    """The fold as a snapshot keeps it."""

    own: Usage = NO_USAGE
    children: Usage = NO_USAGE


class UsageFold(Fold):
    """Usage, summed."""

    __slots__ = ("children", "own")

    def __init__(self, own: Usage = NO_USAGE, children: Usage = NO_USAGE) -> None:
        self.own = own
        """Of turns that have ended, and of plugins."""
        self.children = children
        """Of the subtrees of children that have ended."""

    @property
    def total(self) -> Usage:
        """Both together."""
        return self.own + self.children

    def _turn(self, seq: int, time: int, event: TurnEnd) -> None:
        self.own += event.usage

    def _child(self, seq: int, time: int, event: ChildEnded) -> None:
        self.children += event.usage

    def _note(self, seq: int, time: int, event: Note) -> None:
        self.own += usage_of(event)

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {TurnEnd: _turn, ChildEnded: _child, Note: _note, LogForked: Fold.on_fork}

    def fork(self) -> None:
        """A fork has spent nothing."""
        self.own = self.children = NO_USAGE

    def dump(self) -> UsageState:
        """The state for a snapshot."""
        return UsageState(self.own, self.children)

    @classmethod
    def load(cls, dumped: UsageState) -> UsageFold:
        """The fold in a snapshot."""
        return cls(dumped.own, dumped.children)


def usage_of(note: Note) -> Usage:
    """The usage in a note of a model call; none if it has none, or none that makes sense."""
    data: Any = note.data
    if note.kind != MODEL_CALL or not isinstance(data, Mapping):
        return NO_USAGE
    counts: Any = cast("Mapping[str, Any]", data).get("usage")
    if isinstance(counts, Usage):
        return counts
    try:
        return msgspec.convert(counts, Usage)
    except msgspec.ValidationError:
        # Notes are free JSON of whoever wrote them: a fold must not fail on one.
        return NO_USAGE
