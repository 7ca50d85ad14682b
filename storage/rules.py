"""The rules that every log keeps, checked one record at a time: what `verify` knows.

Four sets, each a small class with `see`, which yields a sentence for every rule that the record breaks: order (seqs dense, times
never back, the first record opens the log), the inbox (each message ends pending, in one claim, one drop or one cancel), requests
(a header and a context before each; its digest is that of what the log held), and turns (`turn_rules.py`).

After a broken rule each goes on as if the record were right, so that one mistake is told once and not in every record behind it.
"""

from __future__ import annotations

from msgspec import Struct

from .digest import header_digest
from .events import Event, InboxClaim, InboxDrop, InboxPut, LogCreated, LogForked, RequestHeader, RequestSent, TurnCancel, type_of
from .folds.headers import Headers
from .folds.surface import Surface
from .records import Record, UnknownEvent
from .turn_rules import Broken


class OrderRules:
    """Seqs are dense from 0, times never go back, the log begins with `log/created`, and a fork's part with `log/forked`."""

    def __init__(self) -> None:
        self.last = -1
        self._time = 0

    def see(self, record: Record) -> Broken:
        """Check the record's place and its type."""
        if record.seq != self.last + 1:
            yield f"follows seq {self.last}: seqs must be dense"
        if record.time < self._time:
            yield f"is {self._time - record.time} ms older than the record before it"
        self.last, self._time = record.seq, max(record.time, self._time)
        event = record.event
        if (record.seq == 0) != isinstance(event, LogCreated):
            yield "a log begins with log/created, and has it only there"
        if isinstance(event, LogForked) and event.at != record.seq - 1:
            yield f"says that the fork begins after seq {event.at}"
        if isinstance(event, UnknownEvent) and not event.skippable:
            yield f"has the unknown type {event.type!r}: upgrade to verify this log"


class InboxRules:
    """Each message is put once, and ends pending, in one claim, in one drop or in one cancel."""

    def __init__(self) -> None:
        self._ends: dict[str, int | None] = {}

    def see(self, seq: int, event: Event) -> Broken:
        """Check what the record does to the inbox."""
        if isinstance(event, LogForked):
            self._ends.clear()
        elif isinstance(event, InboxPut):
            if event.message.id in self._ends:
                yield f"puts message {event.message.id!r} a second time"
            self._ends[event.message.id] = None
        elif isinstance(event, InboxClaim | InboxDrop | TurnCancel):
            for id in event.ids:
                yield from self._end(seq, id, type_of(event))

    def _end(self, seq: int, id: str, by: str) -> Broken:
        if id not in self._ends:
            yield f"{by} names message {id!r}, which was never put"
        elif self._ends[id] is not None:
            yield f"{by} names message {id!r}, which seq {self._ends[id]} has taken already"
        self._ends[id] = seq


class Doubt(Struct, frozen=True):
    """A request that was derived before the newest change of the surface: only a fold of its own prefix can tell its digest."""

    seq: int
    sent: RequestSent
    header_line: bytes


class RequestRules:
    """Each request can be rebuilt: the messages folded up to `upto`, and the header in force where it stands, have its digest."""

    def __init__(self) -> None:
        self.requests = 0
        self.doubts: list[Doubt] = []
        self._surface, self._headers = Surface(), Headers(keep=None)
        self._changed = -1

    def see(self, seq: int, event: Event) -> Broken:
        """Check the record if it is a header or a request; fold it in if it changes either."""
        if isinstance(event, RequestSent):
            yield from self._sent(seq, event)
        elif isinstance(event, self._surface.EVENTS):
            self._surface.apply(seq, 0, event)
            self._changed = seq
        elif isinstance(event, self._headers.EVENTS):
            if isinstance(event, RequestHeader):
                yield from self._header(event)
            self._headers.apply(seq, 0, event)

    def _header(self, event: RequestHeader) -> Broken:
        if event.header is None and event.digest not in self._headers.known:
            yield f"repeats header {event.digest[:12]}, which was never written whole"
        if event.header is not None and header_digest(event.header) != event.digest:
            yield "the digest is not that of the header beside it"
        if (event.reason == "initial") == self._headers.any:
            yield f"gives the reason {event.reason!r} to a header that is {'not ' if self._headers.any else ''}the first"

    def _sent(self, seq: int, event: RequestSent) -> Broken:
        self.requests += 1
        if self._headers.context is None:
            yield "a request is sent before any request/context"
        if event.upto >= seq:
            yield f"a request is derived from seq {event.upto}, which is not before it"
        line = self._headers.current_line
        if line is None:
            yield "a request is sent before any request/header"
        elif self._changed <= event.upto:
            if self._surface.digest(line) != event.digest:
                yield mismatch(event)
        else:
            self.doubts.append(Doubt(seq, event, line))


def mismatch(event: RequestSent) -> str:
    """What is said of a request that the log does not give again."""
    return (
        f"the request of turn {event.turn} step {event.step} attempt {event.attempt} cannot be rebuilt: "
        f"records up to seq {event.upto} have another digest"
    )
