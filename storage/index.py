"""The index's summary of a log, folded from its records alone: for logs that come from outside.

A running agent makes its summaries from its own state, which knows more. Here it is enough that start-up looks at every agent
that has something to do.
"""

from __future__ import annotations

from .events import (
    ApprovalAnswered,
    ApprovalAsked,
    Event,
    InboxClaim,
    InboxDrop,
    InboxPut,
    LogCreated,
    LogForked,
    TurnCancel,
    TurnEnd,
    TurnResume,
    TurnStart,
)
from .folds.outbox import Outbox
from .folds.timers import Timers
from .folds.usage import UsageFold
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
        self._waking: dict[str, bool] = {}
        self._parked = False
        self._questions: set[str] = set()

    def apply(self, record: Record) -> None:
        """Take in the next record."""
        event = record.event
        if isinstance(event, UnknownEvent):
            return
        for fold in (self._outbox, self._timers, self._usage):
            fold.apply(record.seq, record.time, event)
        self._identity(event)
        self._turns(event)
        self._inbox(event)

    def _identity(self, event: Event) -> None:
        if isinstance(event, LogCreated):
            self._name, self._labels, self._parent, self._depth = event.name, event.labels, event.parent, event.depth
        elif isinstance(event, LogForked):
            # A fork begins anew, and is taken up by its first send only.
            self._name, self._labels = event.name, event.labels if event.labels is not None else self._labels
            self._parent, self._depth, self._open = None, 0, False
            self._waking.clear()
            self._questions.clear()

    def _turns(self, event: Event) -> None:
        if isinstance(event, TurnStart):
            self._turn, self._open = event.turn, True
        elif isinstance(event, TurnResume):
            self._open = True
        elif isinstance(event, TurnEnd):
            self._open = False
        elif isinstance(event, ApprovalAsked):
            self._questions.add(event.id)
        elif isinstance(event, ApprovalAnswered):
            self._questions.discard(event.id)

    def _inbox(self, event: Event) -> None:
        if isinstance(event, InboxPut) and event.wake:
            self._waking[event.message.id] = event.sender is not None
            self._parked = False
        elif isinstance(event, InboxClaim | InboxDrop | TurnCancel):
            for message_id in event.ids:
                self._waking.pop(message_id, None)
        if isinstance(event, TurnCancel) or (isinstance(event, TurnEnd) and event.park):
            self._parked = True

    @property
    def _due(self) -> bool:
        # Only what people sent is ever parked.
        return any(self._waking.values()) if self._parked else bool(self._waking)

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
            self._timers.next_due,
            self._usage.own,
            ("approval",) if self._questions else (),
        )
