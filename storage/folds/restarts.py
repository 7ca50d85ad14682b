"""Restarts: how often the task of a supervised child was put again, and under which id it stands now.

A child that failed gets its task again as a new message, which says what it stands for (`inbox/put` with `restarts`). Who waits
for the task knows its first id; who decides whether it may be tried once more counts the times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from ..events import Event, InboxPut, LogForked
from .fold import Fold, Handler

KEEP = 100
"""Restarts that are remembered, and so the most that a policy may allow in its time."""


class RestartsState(Struct, frozen=True, omit_defaults=True):
    """The fold as a snapshot keeps it; also its whole state."""

    first: str | None = None
    last: str | None = None
    times: tuple[int, ...] = ()


class Restarts(Fold):
    """The restarts of the one task that a child lives for."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = RestartsState()

    def current(self, task: str) -> str:
        """The id of the message that stands for this task now."""
        return self._state.last if task == self._state.first and self._state.last is not None else task

    def since(self, time: int) -> int:
        """How many restarts there were from this time on (Unix ms)."""
        return sum(each >= time for each in self._state.times)

    def _put(self, seq: int, time: int, event: InboxPut) -> None:
        if event.restarts is not None:
            times = (*self._state.times, time)[-KEEP:]
            self._state = RestartsState(event.restarts, event.message.id, times)

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {InboxPut: _put, LogForked: Fold.on_fork}

    def fork(self) -> None:
        """A fork is nobody's child."""
        self._state = RestartsState()

    def dump(self) -> RestartsState:
        """The state for a snapshot."""
        return self._state

    @classmethod
    def load(cls, dumped: RestartsState) -> Restarts:
        """The fold in a snapshot."""
        fold = cls()
        fold._state = dumped
        return fold
