"""What the derived tables do not have yet, in memory: heads, positions and message ids of the journal's tail.

The owner of a folder feeds it with each commit and writes it out now and then (`lmdb_parts`); a process that only reads catches
up from the journal, in the transaction it reads with. Either way tables and overlay together say what the journal says, and where
both know an agent the overlay is right. Tables may be ahead of the position they are said to be valid up to, of some agents: so a
frame that a head knows already is not added to it again.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from ..codec import StoredFrame, decode_frame
from ..store import Flag, Head
from .lmdb_layout import Row, State, decode_log, decode_places, decode_state, flag_key, id_key, key, unkey

if TYPE_CHECKING:
    from .lmdb_env import Tables, Transaction
    from .lmdb_parts import Part

KEPT: Final = 1000
"""Heads that are kept in memory although the tables have them."""


class Goal(NamedTuple):
    """What is being written out: all up to this position; and the commits and frames that were waiting when it began."""

    position: int
    commits: int
    frames: int


class Overlay:
    """The tail of the journal behind `valid`, folded. `known` is False when memory and disk may differ."""

    def __init__(self, tables: Tables, counters: Counter[str]) -> None:
        self._tables, self._counters = tables, counters
        self.known = False
        self.state = State()
        self.scanned = 0
        self.heads: dict[str, Row] = {}
        self.dirty: dict[str, Row] = {}
        self.ids: dict[int, dict[str, int]] = {}
        self.commits = self.frames = 0
        self.goal: Goal | None = None

    # -- following the disk

    def refresh(self, txn: Transaction) -> None:
        """Catch up with what is on disk."""
        state = decode_state(txn.get(b"state", db=self._tables["meta"]))
        if not self.known or (state.valid, state.changes) != (self.state.valid, self.state.changes):
            self._forget()
            self.scanned = state.valid
        self.state, self.known = state, True
        self._scan(txn)

    def _forget(self) -> None:
        self.heads, self.dirty, self.ids = {}, {}, {}
        self.commits = self.frames = 0
        self.goal = None

    def _scan(self, txn: Transaction) -> None:
        logs: dict[int, Row | None] = {}
        cursor = txn.cursor(db=self._tables["journal"])
        if not cursor.set_range(key(self.scanned + 1)):
            return
        for raw, data in cursor.iternext():
            self.scanned = unkey(raw)
            frame = decode_frame(data)
            self._counters["frames_scanned"] += 1
            if frame.log not in logs:
                logs[frame.log] = self._row_of(txn, frame.log)
            row = logs[frame.log]
            if row is None:
                continue  # deleted; only a fork reads it, by the index
            if not self._knows(txn, row, frame):  # else its head was written out since
                row.last, row.time, row.epoch, row.summary = frame.last, frame.end, frame.epoch, frame.summary
                row.add(self.scanned, frame.first)
            self.frames += 1
            self._touch(row)
            for message_id, offset in frame.ids.items():
                self.ids.setdefault(row.log, {})[message_id] = frame.first + offset

    def _knows(self, txn: Transaction, row: Row, frame: StoredFrame) -> bool:
        """Whether the head has the frame at `scanned` already. One without records (of a snapshot) is told by its place."""
        if frame.last > row.last or frame.first <= frame.last:
            return frame.last <= row.last
        known = row.unindexed() or self._last_block(txn, row.log)
        return bool(known) and self.scanned <= known[-2]

    def _last_block(self, txn: Transaction, log: int) -> array[int]:
        cursor = txn.cursor(db=self._tables["index"])
        found = cursor.prev() if cursor.set_range(key(log + 1)) else cursor.last()
        return decode_places(cursor.value()) if found and cursor.key().startswith(key(log)) else array("q")

    def _row_of(self, txn: Transaction, log: int) -> Row | None:
        data = txn.get(key(log), db=self._tables["logs"])
        stored = decode_log(data) if data is not None else None
        if stored is None or stored.agent is None:
            return None
        row = self.row(txn, stored.agent)
        return row if row is not None and row.log == log else Row(stored.agent, log, stored.below)

    def _touch(self, row: Row) -> None:
        if row.agent not in self.dirty:
            row.since = self.scanned
        self.heads[row.agent] = self.dirty[row.agent] = row

    # -- fed by the owner, after its transaction is on disk

    def add(self, row: Row, position: int, first: int, head: Head, ids: Mapping[str, int]) -> None:
        """One more frame of `row`, at `position`."""
        row.last, row.time, row.epoch, row.summary = head.last, head.time, head.epoch, head.summary
        row.add(position, first)
        self.scanned = position
        self.frames += 1
        self._touch(row)
        if ids:
            self.ids.setdefault(row.log, {}).update(ids)

    def drop(self, row: Row) -> None:
        """The agent was deleted."""
        self.heads.pop(row.agent, None)
        self.dirty.pop(row.agent, None)
        self.ids.pop(row.log, None)

    # -- reading

    def row(self, txn: Transaction, agent: str) -> Row | None:
        """The agent's head: from here, else from its table."""
        row = self.heads.get(agent)
        if row is None:
            data = txn.get(agent.encode(), db=self._tables["heads"])
            if data is None:
                return None
            self._counters["heads_read"] += 1
            row = Row.decode(agent, data)
        return row

    def keep(self, row: Row) -> None:
        """Remember a head that was read, for the next commit of its agent."""
        self.heads.setdefault(row.agent, row)

    def find(self, txn: Transaction, log: int, message_id: str) -> int | None:
        """The seq of a message id."""
        seq = self.ids.get(log, {}).get(message_id)
        if seq is None:
            data = txn.get(id_key(log, message_id), db=self._tables["ids"])
            seq = None if data is None else unkey(data)
        return seq

    def names(self, txn: Transaction, prefix: str, after: str | None, flag: Flag | None) -> Iterator[str]:
        """Ids in order, from the prefix or behind `after` on; those without the flag by now may be among them."""
        start = max(prefix.encode(), b"" if after is None else after.encode() + b"\0")
        fresh = sorted(n for n in (a.encode() for a in self.dirty) if n >= start)
        stored = self._stored_names(txn, start, flag)
        yield from (n.decode() for n in _merge(iter(fresh), stored))

    def _stored_names(self, txn: Transaction, start: bytes, flag: Flag | None) -> Iterator[bytes]:
        cut = b"" if flag is None else flag_key(flag, "")
        cursor = txn.cursor(db=self._tables["heads" if flag is None else "flags"])
        if not cursor.set_range(cut + start or b"\0"):
            return
        for raw in cursor.iternext(values=False):
            if not raw.startswith(cut):
                return
            yield raw[len(cut) :]

    # -- writing out

    def aim(self, commits: int, frames: int) -> bool:
        """Whether to write some of it out with the next commit: what was begun, or else all there is, if it is so much."""
        if self.goal is None and (self.commits >= commits or self.frames >= frames):
            self.goal = Goal(self.scanned, self.commits, self.frames)
        return self.goal is not None

    def written(self, part: Part) -> None:
        """The tables have this part: forget it, keep the heads of those who wrote last."""
        for log, names in part.ids.items():
            found = self.ids[log]
            for name in names:
                del found[name]
            if not found:
                del self.ids[log]
        for row in part.heads:
            row.full, row.stored = [], row.flags
            del self.dirty[row.agent]
        if part.state is not None:
            self._reached(part.state)

    def _reached(self, state: State) -> None:
        assert self.goal is not None
        self.commits, self.frames = self.commits - self.goal.commits, self.frames - self.goal.frames
        self.state, self.goal = state, None
        if len(self.heads) > KEPT:
            self.heads = dict(self.dirty)


def _merge(one: Iterator[bytes], two: Iterator[bytes]) -> Iterator[bytes]:
    a, b = next(one, None), next(two, None)
    while a is not None or b is not None:
        if b is None or (a is not None and a <= b):
            assert a is not None
            yield a
            if a == b:
                b = next(two, None)
            a = next(one, None)
        else:
            yield b
            b = next(two, None)
