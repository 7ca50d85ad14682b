"""The data under one or more memory stores: segments of records, logs over them, and what a delete leaves behind.

A *segment* is what one log wrote itself. A fork's log is a list of (segment, upto) below its own segment, so it copies
nothing. Each segment knows which logs reach into it and how far; deleting a log cuts its segment back to the furthest reach
that is left, and the blobs with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Container, Iterator

from ..records import Record
from ..runs import ChunkRun
from ..store import Arrival, Batch, Delete, Flag, Fork, Head, Snapshot, Summary
from .checks import Item, end_time, first, size

CHUNK = "assistant/chunk"


class Segment:
    """What one log wrote itself, in order of seq; `reach`: which other logs share it, and up to where."""

    __slots__ = ("blobs", "firsts", "items", "reach")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.firsts: list[int] = []
        self.blobs: dict[str, int] = {}
        self.reach: dict[Log, int] = {}

    def add(self, items: list[Item]) -> None:
        """Append items that follow."""
        self.items += items
        self.firsts += [first(i) for i in items]

    def within(self, after: int, upto: int) -> Iterator[Item]:
        """The items that hold seqs in (after, upto]."""
        at = max(bisect_right(self.firsts, after + 1) - 1, 0)
        for i in range(at, bisect_right(self.firsts, upto)):
            yield self.items[i]

    def cut(self, upto: int) -> list[str]:
        """Forget everything after `upto`; answers the digests of blobs that went with it."""
        keep = bisect_right(self.firsts, upto)
        del self.items[keep:], self.firsts[keep:]
        if self.items and isinstance(run := self.items[-1], ChunkRun) and run.last > upto:
            self.items[-1] = copy_run(run, upto - run.first + 1)
        lost = [d for d, seq in self.blobs.items() if seq > upto]
        for digest in lost:
            del self.blobs[digest]
        return lost


def copy_run(run: ChunkRun, count: int) -> ChunkRun:
    """The first `count` chunks of a run, in lists of their own: the caller's may go on growing."""
    copy = ChunkRun(run.turn, run.step, run.first)
    copy.times, copy.chunks = run.times[:count], run.chunks[:count]
    return copy


class Log:
    """One agent's log: what it shares (`below`, oldest first), what it wrote (`own`), and its row in the index."""

    __slots__ = ("below", "epoch", "ids", "last", "own", "snapshot", "summary", "time")

    def __init__(self, below: tuple[tuple[Segment, int], ...] = ()) -> None:
        self.below, self.own = below, Segment()
        self.last = below[-1][1] if below else -1
        self.time = self.epoch = 0
        self.summary = Summary()
        self.ids: dict[str, int] = {}
        self.snapshot: Snapshot | None = None

    def head(self, agent: str) -> Head:
        """The log's row in the index."""
        return Head(agent, self.last, self.time, self.epoch, self.summary)

    def parts(self) -> list[tuple[Segment, int]]:
        """All segments with the last seq of each."""
        return [*self.below, (self.own, self.last)]

    def page(
        self, after: int, end: int, types: Container[str] | None, limit: int, counters: Counter[str]
    ) -> tuple[list[Record], int]:
        """Up to about `limit` records in (after, end], and the last seq looked at."""
        found: list[Record] = []
        for segment, upto in self.parts():
            for item in segment.within(after, min(upto, end)):
                if len(found) >= limit:
                    return found, after
                counters["frames_read"] += 1
                stop = min(first(item) + size(item) - 1, upto, end)
                found += self._take(item, after, stop, types, counters)
                after = max(after, stop)
        return found, after

    @staticmethod
    def _take(item: Item, after: int, stop: int, types: Container[str] | None, counters: Counter[str]) -> list[Record]:
        if isinstance(item, Record):
            return [item] if after < item.seq and (types is None or item.type in types) else []
        if types is not None and CHUNK not in types:
            return []
        counters["chunk_rows_read"] += 1
        return [r for r in item.records() if after < r.seq <= stop]


class Blob:
    """A big value and how many segments hold it."""

    __slots__ = ("count", "data")

    def __init__(self, data: bytes) -> None:
        self.data, self.count = data, 0


class Data:
    """Everything that the handles of one memory store share."""

    def __init__(self) -> None:
        self.logs: dict[str, Log] = {}
        self.names: list[str] = []
        self.flags: dict[Flag, set[str]] = {"attention": set(), "timer": set()}
        self.blobs: dict[str, Blob] = {}
        self.fences: dict[str, tuple[int, object]] = {}
        self.arrivals: dict[str, list[bytes]] = {}
        self.epoch = 0
        self.counters: Counter[str] = Counter(commits=0, flushes=0, frames_written=0, frames_read=0, chunk_rows_read=0)

    def own(self, agent: str, owner: object) -> int:
        """A new epoch for the agent, from the one counter."""
        self.epoch += 1
        self.fences[agent] = (self.epoch, owner)
        return self.epoch

    @staticmethod
    def freeze(part: Batch | Delete | Fork | Arrival) -> Batch | Delete | Fork | Arrival:
        """The part as it is now: its lists and open runs belong to a caller who goes on writing."""
        if type(part) is not Batch:
            return part
        items = [i if isinstance(i, Record) else copy_run(i, len(i)) for i in part.items]
        return Batch(part.agent, part.epoch, part.follows, items, part.summary, dict(part.ids), part.snapshot, dict(part.blobs))

    # -- writing: the parts were checked, nothing here can fail half-way

    def apply(self, part: Batch | Delete | Fork | Arrival) -> None:
        """Write one part."""
        if isinstance(part, Batch):
            self._append(part)
        elif isinstance(part, Delete):
            self._delete(part.agent)
        elif isinstance(part, Fork):
            self._fork(part)
        else:
            self.arrivals.setdefault(part.agent, []).append(part.data)

    def _append(self, batch: Batch) -> None:
        log = self.logs.get(batch.agent) or self._add(batch.agent, Log())
        items = list(batch.items)
        log.own.add(items)
        log.last += sum(size(i) for i in items)
        if items:
            log.time = end_time(items[-1])
        log.epoch, log.summary = batch.epoch, batch.summary
        log.ids.update(batch.ids)
        if batch.snapshot is not None:
            log.snapshot = Snapshot(log.last, batch.snapshot)
        for digest, data in batch.blobs.items():
            if digest not in log.own.blobs:
                log.own.blobs[digest] = batch.follows + 1
                self.blobs.setdefault(digest, Blob(data)).count += 1
        self._flag(batch.agent, batch.summary)
        self.counters["frames_written"] += 1

    def _fork(self, fork: Fork) -> None:
        below: list[tuple[Segment, int]] = []
        start = 0
        for segment, upto in self.logs[fork.source].parts():
            if start <= fork.at and upto >= start:
                below.append((segment, min(upto, fork.at)))
            start = upto + 1
        log = self._add(fork.agent, Log(tuple(below)))
        for segment, upto in below:
            segment.reach[log] = upto

    def _add(self, agent: str, log: Log) -> Log:
        self.logs[agent] = log
        insort(self.names, agent)
        return log

    def _delete(self, agent: str) -> None:
        log = self.logs.pop(agent)
        del self.names[bisect_left(self.names, agent)], self.fences[agent]
        self.arrivals.pop(agent, None)
        self._flag(agent, Summary())
        living = {other.own for other in self.logs.values()} if log.below else set[Segment]()
        for segment, _ in log.below:
            segment.reach.pop(log, None)
            if segment not in living:
                self._cut(segment)
        self._cut(log.own)

    def _cut(self, segment: Segment) -> None:
        for digest in segment.cut(max(segment.reach.values(), default=-1)):
            self.blobs[digest].count -= 1
            if not self.blobs[digest].count:
                del self.blobs[digest]

    def _flag(self, agent: str, summary: Summary) -> None:
        flags: tuple[tuple[Flag, bool], ...] = (("attention", summary.attention), ("timer", summary.timer is not None))
        for flag, on in flags:
            (self.flags[flag].add if on else self.flags[flag].discard)(agent)

    def drop_arrivals(self, agent: str, count: int) -> None:
        """The owner has moved the oldest `count` inputs into the log."""
        if count:
            del self.arrivals[agent][:count]

    # -- reading

    def names_from(self, prefix: str, after: str | None, flag: Flag | None) -> Iterator[str]:
        """Ids in order, from the prefix or behind `after` on, whichever is further."""
        names = self.names if flag is None else sorted(self.flags[flag])
        at = bisect_left(names, prefix)
        if after is not None:
            at = max(at, bisect_right(names, after))
        return iter(names[at:])

    def copy(self) -> Data:
        """An independent image; records are shared, since nobody changes them. Nobody owns anything in it."""
        copy = Data()
        copied = _Copier()
        copy.logs = {agent: copied.log(log) for agent, log in self.logs.items()}
        copy.names = list(self.names)
        copy.flags = {flag: set(agents) for flag, agents in self.flags.items()}
        copy.arrivals = {agent: list(queue) for agent, queue in self.arrivals.items()}
        for digest, blob in self.blobs.items():
            copy.blobs[digest] = Blob(blob.data)
            copy.blobs[digest].count = blob.count
        copy.epoch = self.epoch
        return copy


class _Copier:
    """Copies logs so that what two of them share is shared by their copies too."""

    def __init__(self) -> None:
        self.segments: dict[Segment, Segment] = {}

    def log(self, log: Log) -> Log:
        copy = Log()
        copy.below = tuple((self.segment(s), upto) for s, upto in log.below)
        copy.own = self.segment(log.own)
        copy.last, copy.time, copy.epoch, copy.summary = log.last, log.time, log.epoch, log.summary
        copy.ids, copy.snapshot = dict(log.ids), log.snapshot
        for segment, upto in copy.below:
            segment.reach[copy] = upto
        return copy

    def segment(self, segment: Segment) -> Segment:
        if segment not in self.segments:
            copy = self.segments[segment] = Segment()
            copy.items, copy.firsts, copy.blobs = list(segment.items), list(segment.firsts), dict(segment.blobs)
        return self.segments[segment]
