"""Durable reminders: which are set, and when the next one is due.

A repeating timer that fires late skips what it missed: its next time is the first of its series after the moment at which it
fired, so that a process that was down for a week is not flooded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec
from msgspec import Struct

from ..events import Event, LogForked, Route, TimerCancelled, TimerFired, TimerSet
from ..messages import Message
from .fold import Fold, Handler


class Timer(Struct, frozen=True, omit_defaults=True):
    """A reminder: next `due` in Unix ms, `every` in seconds if it repeats, the message that it puts, the route of the answer."""

    id: str
    due: int
    message: Message
    every: float | None = None
    route: Route | None = None
    fired: int = 0
    """How often it has fired."""


class TimersState(Struct, frozen=True, omit_defaults=True):
    """The fold as a snapshot keeps it."""

    timers: tuple[Timer, ...] = ()


class Timers(Fold):
    """Set timers by id."""

    __slots__ = ("_timers", "next_due")

    def __init__(self) -> None:
        self._timers: dict[str, Timer] = {}
        self.next_due: int | None = None
        """When the next one is due, Unix ms; None if none is set."""

    def all(self) -> tuple[Timer, ...]:
        """Every timer that is set, in the order in which they were set."""
        return tuple(self._timers.values())

    def get(self, id: str) -> Timer | None:
        """The timer with this id."""
        return self._timers.get(id)

    def due(self, now: int) -> tuple[Timer, ...]:
        """Timers that should have fired by `now`, the longest due first."""
        if self.next_due is None or self.next_due > now:
            return ()
        return tuple(sorted((timer for timer in self._timers.values() if timer.due <= now), key=lambda timer: timer.due))

    def _set(self, seq: int, time: int, event: TimerSet) -> None:
        known = self._timers.get(event.id)
        fired = known.fired if known is not None else 0
        self._timers[event.id] = Timer(event.id, event.due, event.message, event.every, event.route, fired)
        self._look()

    def _cancel(self, seq: int, time: int, event: TimerCancelled) -> None:
        self._timers.pop(event.id, None)
        self._look()

    def _fire(self, seq: int, time: int, event: TimerFired) -> None:
        timer = self._timers.pop(event.id, None)
        again = None if timer is None else next_time(timer, time) if event.again is None else event.again
        if timer is not None and again is not None:
            self._timers[event.id] = msgspec.structs.replace(timer, due=again, fired=timer.fired + 1)
        self._look()

    def _look(self) -> None:
        self.next_due = min((timer.due for timer in self._timers.values()), default=None)

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {
        TimerSet: _set,
        TimerFired: _fire,
        TimerCancelled: _cancel,
        LogForked: Fold.on_fork,
    }

    def fork(self) -> None:
        """A fork is reminded of nothing."""
        self._timers, self.next_due = {}, None

    def dump(self) -> TimersState:
        """The state for a snapshot."""
        return TimersState(self.all())

    @classmethod
    def load(cls, dumped: TimersState) -> Timers:
        """The fold in a snapshot."""
        fold = cls()
        fold._timers = {timer.id: timer for timer in dumped.timers}
        fold._look()
        return fold


def next_time(timer: Timer, now: int) -> int | None:
    """When a timer that fires at `now` (Unix ms) is due again; None if it does not repeat."""
    step = round((timer.every or 0) * 1000)
    if step <= 0:
        return None
    return timer.due + step * max(1, (now - timer.due) // step + 1)
