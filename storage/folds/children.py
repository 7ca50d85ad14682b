"""The tree below an agent, as data: who was spawned, for which call, and how it ended.

Cancel walks it, delegation re-attaches by it. Children that live are all kept; of those that have ended, all of the current
turn (a call may still have to read how its child ended) and the newest `KEEP` of turns before, so that an agent that
delegates for years stays small.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec
from msgspec import Struct

from ..events import ChildEnded, ChildSpawned, EndReason, Event, LogForked, TurnEnd
from .fold import Fold, Handler

KEEP = 100
"""Ended children that are remembered beyond the turn."""


class Child(Struct, frozen=True, omit_defaults=True):
    """A child: its definition's `name`, the call that delegated, the message id of its `task`, how often that may be put again;
    `ended` is None while it lives."""

    id: str
    name: str
    call_id: str | None = None
    task: str | None = None
    background: bool = False
    ended: EndReason | None = None
    restarts: tuple[int, float] | None = None

    @property
    def alive(self) -> bool:
        """Whether it has not ended."""
        return self.ended is None


class ChildrenState(Struct, frozen=True, omit_defaults=True):
    """The fold as a snapshot keeps it."""

    children: tuple[Child, ...] = ()


class Children(Fold):
    """Children by id, in the order of their spawning (those that have ended: of their end)."""

    __slots__ = ("_alive", "_ended")

    def __init__(self) -> None:
        self._alive: dict[str, Child] = {}
        self._ended: dict[str, Child] = {}

    def get(self, child: str) -> Child | None:
        """The child with this id, alive or ended."""
        return self._alive.get(child) or self._ended.get(child)

    def by_call(self, call_id: str) -> Child | None:
        """The newest child that this call delegated to."""
        for children in (self._alive, self._ended):
            found = next((child for child in reversed(children.values()) if child.call_id == call_id), None)
            if found is not None:
                return found
        return None

    @property
    def living(self) -> bool:
        """Whether any has not ended."""
        return bool(self._alive)

    def alive(self) -> tuple[Child, ...]:
        """Children that have not ended."""
        return tuple(self._alive.values())

    def all(self) -> tuple[Child, ...]:
        """Every child that is remembered; those that have ended come first."""
        return (*self._ended.values(), *self._alive.values())

    def _spawn(self, seq: int, time: int, event: ChildSpawned) -> None:
        self._ended.pop(event.child, None)
        child = Child(event.child, event.name, event.call_id, event.task, event.background, None, event.restarts)
        self._alive[event.child] = child

    def _end(self, seq: int, time: int, event: ChildEnded) -> None:
        child = self._alive.pop(event.child, None)
        if child is not None:
            self._ended[child.id] = msgspec.structs.replace(child, ended=event.reason)

    def _forget(self, seq: int, time: int, event: TurnEnd) -> None:
        while len(self._ended) > KEEP:
            del self._ended[next(iter(self._ended))]

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {
        ChildSpawned: _spawn,
        ChildEnded: _end,
        TurnEnd: _forget,
        LogForked: Fold.on_fork,
    }

    def fork(self) -> None:
        """A fork has no children."""
        self._alive, self._ended = {}, {}

    def dump(self) -> ChildrenState:
        """The state for a snapshot."""
        return ChildrenState(self.all())

    @classmethod
    def load(cls, dumped: ChildrenState) -> Children:
        """The fold in a snapshot."""
        fold = cls()
        for child in dumped.children:
            (fold._alive if child.alive else fold._ended)[child.id] = child
        return fold
