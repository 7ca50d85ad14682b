"""Replies that a channel has not taken yet, in their order.

An entry is closed by `outbox/sent` or `outbox/failed` and by nothing else; what is open after a restart is tried again under
the same delivery id. The newest that failed for good are remembered, so that a person and the next turn can see them. Of an
unsent one it is known how many processes may have ended while it was sent: a runtime counts that in notes of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, cast

import msgspec
from msgspec import Struct

from ..events import Event, LogForked, Note, OutboxFailed, OutboxPut, OutboxSent
from ..messages import Failure
from .fold import Fold, Handler

KEEP = 16
"""Failed deliveries that are remembered."""
COUNTED = "callboard/delivery"
"""The kind of note that counts the processes which may have ended while a reply was sent: `delivery`, and how many, `ends`."""


class Unsent(Struct, frozen=True):
    """A reply to be delivered, the seq of its `outbox/put` and its time."""

    seq: int
    time: int
    entry: OutboxPut
    ends: int = 0
    """How many processes may have ended while it was sent."""


class Lost(Struct, frozen=True):
    """A reply that could not be delivered, and why; `seq` and `time` are those of its `outbox/failed`."""

    seq: int
    entry: OutboxPut
    failure: Failure
    time: int = 0


class OutboxState(Struct, frozen=True, omit_defaults=True):
    """The fold as a snapshot keeps it."""

    unsent: tuple[Unsent, ...] = ()
    lost: tuple[Lost, ...] = ()


def counted(delivery: str, ends: int) -> Note:
    """The note that so many processes may have ended while the reply was sent."""
    return Note(kind=COUNTED, data={"delivery": delivery, "ends": ends})


class Outbox(Fold):
    """Unsent replies by delivery id."""

    __slots__ = ("_unsent", "lost")

    def __init__(self) -> None:
        self._unsent: dict[str, Unsent] = {}
        self.lost: tuple[Lost, ...] = ()
        """The newest that failed for good."""

    def __len__(self) -> int:
        return len(self._unsent)

    def unsent(self) -> tuple[Unsent, ...]:
        """What is to be delivered, oldest first."""
        return tuple(self._unsent.values())

    def __contains__(self, delivery: str) -> bool:
        return delivery in self._unsent

    def ends(self, delivery: str) -> int:
        """How many processes may have ended while the reply was sent; 0 if it is not unsent."""
        unsent = self._unsent.get(delivery)
        return 0 if unsent is None else unsent.ends

    def behind(self, seq: int) -> list[Unsent]:
        """What is to be delivered and was put behind `seq`, oldest first; costs what it gives."""
        return list(self._newest(seq))[::-1]

    def _newest(self, seq: int) -> Iterator[Unsent]:
        for unsent in reversed(self._unsent.values()):
            if unsent.seq <= seq:
                return
            yield unsent

    def _put(self, seq: int, time: int, event: OutboxPut) -> None:
        self._unsent.setdefault(event.delivery, Unsent(seq, time, event))

    def _sent(self, seq: int, time: int, event: OutboxSent) -> None:
        self._unsent.pop(event.delivery, None)

    def _count(self, seq: int, time: int, event: Note) -> None:
        data: Any = event.data
        if event.kind != COUNTED or not isinstance(data, Mapping):
            return
        delivery, ends = (cast("Mapping[str, Any]", data).get(name) for name in ("delivery", "ends"))
        if isinstance(delivery, str) and isinstance(ends, int) and delivery in self._unsent:
            self._unsent[delivery] = msgspec.structs.replace(self._unsent[delivery], ends=ends)

    def _fail(self, seq: int, time: int, event: OutboxFailed) -> None:
        unsent = self._unsent.pop(event.delivery, None)
        if unsent is not None:
            self.lost = (*self.lost, Lost(seq, unsent.entry, event.failure, time))[-KEEP:]

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {
        OutboxPut: _put,
        OutboxSent: _sent,
        OutboxFailed: _fail,
        Note: _count,
        LogForked: Fold.on_fork,
    }

    def fork(self) -> None:
        """A fork owes nobody a reply."""
        self._unsent, self.lost = {}, ()

    def dump(self) -> OutboxState:
        """The state for a snapshot."""
        return OutboxState(self.unsent(), self.lost)

    @classmethod
    def load(cls, dumped: OutboxState) -> Outbox:
        """The fold in a snapshot."""
        fold = cls()
        fold._unsent = {unsent.entry.delivery: unsent for unsent in dumped.unsent}
        fold.lost = dumped.lost
        return fold
