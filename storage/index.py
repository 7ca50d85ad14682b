"""The index's summary of a log, folded from its records alone: for logs that come from outside.

A running agent makes its summaries from its own state, which knows more. Here it is enough that start-up looks at every agent
that has something to do.
"""

from __future__ import annotations

from typing import Any

from .events import (
    Event,
    InboxClaim,
    InboxDrop,
    InboxPut,
    LogCreated,
    LogForked,
    Note,
    TurnCancel,
    TurnEnd,
    TurnResume,
    TurnStart,
)
from .folds import Approvals, Asks, Children, Outbox, Position, Timers, UsageFold, wait_kinds
from .folds.handoffs import handed_to
from .messages import AgentSource
from .records import Record, UnknownEvent
from .store import Summary


class IndexFold:
    """What `Summary` holds, record by record."""

    def __init__(self) -> None:
        self._name, self._depth = "", 0
        self._labels: dict[str, str] | None = None
        self._parent: str | None = None
        self._turn, self._open = 0, False
        self._outbox, self._timers, self._usage = Outbox(), Timers(), UsageFold()
        self._position, self._approvals, self._asks, self._children = Position(), Approvals(), Asks(), Children()
        self._waking: dict[str, tuple[int, bool]] = {}
        self._later: dict[str, int] = {}
        self._parked_before = 0

    def apply(self, record: Record) -> None:
        """Take in the next record."""
        event = record.event
        if isinstance(event, UnknownEvent):
            return
        for fold in self._folds():
            if isinstance(event, fold.EVENTS):
                fold.apply(record.seq, record.time, event)
        self._identity(event)
        self._turns(event)
        self._inbox(record.seq, event)

    def _folds(self) -> tuple[Any, ...]:
        around = (self._outbox, self._timers, self._usage)
        return (*around, self._position, self._approvals, self._asks, self._children)

    def _identity(self, event: Event) -> None:
        if isinstance(event, LogCreated):
            self._name, self._labels, self._parent, self._depth = event.name, event.labels, event.parent, event.depth
        elif isinstance(event, Note):
            self._name = handed_to(event) or self._name
        elif isinstance(event, LogForked):
            # A fork begins anew, and is taken up by its first send only.
            self._name, self._labels = event.name, event.labels if event.labels is not None else self._labels
            self._parent, self._depth, self._open = None, 0, False
            self._waking.clear()
            self._later.clear()
            self._position.fork()

    def _turns(self, event: Event) -> None:
        if isinstance(event, TurnStart):
            self._turn, self._open = event.turn, True
        elif isinstance(event, TurnResume):
            self._open = True
        elif isinstance(event, TurnEnd):
            self._open = False

    def _inbox(self, seq: int, event: Event) -> None:
        if isinstance(event, InboxPut) and event.wake:
            self._waking[event.message.id] = seq, isinstance(event.message.source, AgentSource)
            self._parked_before = 0 if event.releases else self._parked_before
            if event.not_before is not None:
                self._later[event.message.id] = event.not_before
        elif isinstance(event, InboxClaim | InboxDrop | TurnCancel):
            for message_id in event.ids:
                self._waking.pop(message_id, None)
                self._later.pop(message_id, None)
        if isinstance(event, TurnCancel) or (isinstance(event, TurnEnd) and event.park):
            self._parked_before = seq

    @property
    def _due(self) -> bool:
        return any(message_id not in self._later for message_id in self._runnable)

    @property
    def _runnable(self) -> list[str]:
        # What another agent sent is never parked.
        waking = self._waking.items()
        return [message_id for message_id, (seq, from_agent) in waking if from_agent or seq >= self._parked_before]

    @property
    def _next(self) -> int | None:
        later = [self._later[message_id] for message_id in self._runnable if message_id in self._later]
        timer = self._timers.next_due
        return min(later if timer is None else [timer, *later], default=None)

    @property
    def _waits(self) -> tuple[str, ...]:
        if self._position.open and not self._open:
            return ()  # a fork that nobody has taken up
        return wait_kinds(self._position, self._approvals, self._asks, self._children, timed=self._next is not None)

    def summary(self) -> Summary:
        """What the index should know."""
        return Summary(
            self._name,
            self._labels,
            self._parent,
            self._depth,
            self._turn,
            self._open,
            self._due,
            len(self._outbox),
            self._next,
            self._usage.own,
            self._waits,
        )
