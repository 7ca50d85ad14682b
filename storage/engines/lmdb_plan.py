"""Planning a commit: units in, rows out.

The plan checks each unit against what is on disk and what the units before it will change, encodes what passes, and takes out
what has lost its race. Nothing is written and nothing in memory is changed: the rows go to the writer's thread, and only when
they are on disk do the plan's *effects* reach the overlay. So a failed transaction leaves memory as the disk is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ..codec import encode_frame
from ..errors import CommitFailed, StoreError
from ..store import Batch, Delete, Fork, Head, Unit
from .checks import fence_lost, gone, stale
from .lmdb_delete import Doomed, delete_log, hold_blob
from .lmdb_layout import Ancestry, LogRow, Row, State, encode, key, pair, unkey
from .lmdb_overlay import Overlay
from .lmdb_parts import Part, Rows, next_part

if TYPE_CHECKING:
    from .lmdb_env import Tables, Transaction

APPENDED = ("journal", "chunks")
CATCH_UP = 2
"""How many rows of derived tables a commit writes for each that it will cause, so that what waits becomes less."""
Added = tuple[Row, int, int, Head, Mapping[str, int]]
"""What the overlay has to know of a frame: head before it, position, first seq, head after it, ids. (A closure would be as short,
and eight objects more for every agent and commit: many agents at once keep the garbage collector busy.)"""


class Staged:
    """The rows of a plan, or of one of its units until the whole unit has passed."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.work: list[Callable[[Transaction], None]] = []
        self.effects: list[Added | Row] = []
        self.ends: dict[str, tuple[Row, int, int] | None] = {}
        self.frames = self.deletes = 0

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """One row."""
        self.rows.setdefault(table, []).append((key, value))

    def take(self, other: Staged) -> None:
        """The other's rows too."""
        for table, rows in other.rows.items():
            self.rows.setdefault(table, []).extend(rows)
        self.work += other.work
        self.effects += other.effects
        self.ends.update(other.ends)
        self.frames += other.frames
        self.deletes += other.deletes


class Plan:
    """One commit in the making. `run` is the job for the thread; `settle` is for when it is on disk."""

    def __init__(self, overlay: Overlay, tables: Tables, fences: Mapping[str, int], txn: Transaction) -> None:
        self._overlay, self._tables, self._fences, self._txn = overlay, tables, fences, txn
        self._all = Staged()
        self._written: Part | None = None
        self.state = overlay.state
        self._position = max(overlay.scanned, self.state.valid, self.state.position)
        self._log = max(_last_key(txn, tables["logs"]), self.state.log)
        self.results: list[StoreError | None] = []

    @property
    def empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self._all.rows and not self._all.work

    @property
    def frames(self) -> int:
        """How many batches it writes."""
        return self._all.frames

    @property
    def rows(self) -> int:
        """How many rows it puts, beside those of deletes and blobs: so often the thread gives up Python's lock."""
        return sum(map(len, self._all.rows.values()))

    def add(self, unit: Unit) -> None:
        """Check and encode one unit; the answer is the next of `results`. Positions of a unit that fails stay unused."""
        # A part stages nothing if it fails, so a unit of one part needs no staging of its own.
        staged = self._all if len(unit) == 1 else Staged()
        error = None
        for part in unit:
            error = self._part(part, staged)
            if error is not None:
                break
        else:
            if staged is not self._all:
                self._all.take(staged)
        self.results.append(error)

    def _part(self, part: Any, staged: Staged) -> StoreError | None:
        if type(part) is Batch:
            return self._batch(part, staged)
        if type(part) is Delete:
            return self._delete(part, staged)
        if type(part) is Fork:
            return self._fork(part, staged)
        return gone(part.agent, "has no other owner: write its input into its log")

    def _end(self, agent: str, staged: Staged) -> tuple[Row, int, int] | None:
        """The agent's head with the last seq and time it will have after what is planned so far."""
        for ends in (staged.ends, self._all.ends):
            if agent in ends:
                return ends[agent]
        row = self._overlay.row(self._txn, agent)
        if row is None:
            return None
        self._overlay.keep(row)
        return row, row.last, row.time

    # -- batches

    def _batch(self, batch: Batch, staged: Staged) -> StoreError | None:
        if self._fences.get(batch.agent) != batch.epoch:
            return fence_lost(batch)
        end = self._end(batch.agent, staged)
        if batch.follows != (-1 if end is None else end[1]):
            return stale(batch, -1 if end is None else end[1])
        log, time = (self._log + 1, 0) if end is None else (end[0].log, end[2])
        try:
            frame, chunks, last, time = encode_frame(batch, log, time)
        except (TypeError, ValueError, OverflowError) as e:
            error = CommitFailed(f"a record of {batch.agent!r} cannot be stored: {e}", agent=batch.agent)
            error.__cause__ = e
            return error
        row = self._create(batch.agent, [], staged) if end is None else end[0]
        self._position += 1
        position, first = self._position, batch.follows + 1
        staged.put("journal", key(position), frame)
        if chunks is not None:
            staged.put("chunks", key(position), chunks)
        if batch.snapshot is not None:
            staged.put("snapshots", key(row.log), encode((last, batch.snapshot)))
        for digest, data in batch.blobs.items():
            staged.work.append(partial(hold_blob, self._tables, row.log, digest, data, first))
        staged.frames += 1
        staged.ends[batch.agent] = (row, last, time)
        head = Head(batch.agent, last, time, batch.epoch, batch.summary)
        staged.effects.append((row, position, first, head, batch.ids))
        return None

    def _create(self, agent: str, below: Ancestry, staged: Staged) -> Row:
        self._log += 1
        staged.put("logs", key(self._log), encode(LogRow(agent, below)))
        return Row(agent, self._log, below)

    # -- forks and deletes

    def _fork(self, fork: Fork, staged: Staged) -> StoreError | None:
        if self._fences.get(fork.agent) != fork.epoch:
            return fence_lost(fork)
        source = self._end(fork.source, staged)
        if self._end(fork.agent, staged) is not None:
            return gone(fork.agent, "exists already")
        if source is None or not 0 <= fork.at <= source[1]:
            return gone(fork.source, f"has no record {fork.at} to fork at")
        below = _shared(source[0], fork.at)
        row = self._create(fork.agent, below, staged)
        for log, upto in below:
            staged.put("reach", pair(log, row.log), key(upto))
        staged.ends[fork.agent] = (row, fork.at, source[2])
        return None

    def _delete(self, delete: Delete, staged: Staged) -> StoreError | None:
        if self._fences.get(delete.agent) != delete.epoch:
            return fence_lost(delete)
        end = self._end(delete.agent, staged)
        if end is None:
            return gone(delete.agent, "does not exist")
        row = end[0]
        places = row.unindexed()
        for effect in (*self._all.effects, *staged.effects):
            if not isinstance(effect, Row) and effect[0].log == row.log:
                places.extend(effect[1:3])
        staged.work.append(partial(delete_log, self._tables, Doomed(row.agent, row.log, row.below, places)))
        staged.deletes += 1
        staged.ends[delete.agent] = None
        staged.effects.append(row)
        return None

    # -- the job

    def write_out(self, least: int) -> None:
        """Write some of what the derived tables lack in the same transaction, before anything else of it: so many rows, or
        more if the plan itself adds more to them."""
        causes = sum(3 + len(e[4]) for e in self._all.effects if not isinstance(e, Row))  # a head, two flags, and ids
        part = self._written = next_part(self._overlay, max(least, CATCH_UP * causes))
        self.state = part.state or self.state
        for table, found in part.rows.items():
            self._all.rows[table] = found + self._all.rows.get(table, [])
        if part.off:
            self._all.work.insert(0, partial(part.unflag, self._tables["flags"]))

    def finish(self) -> None:
        """Nothing more will be added."""
        if self._all.deletes:
            state = self.state
            self.state = State(state.valid, state.changes + self._all.deletes, self._position, self._log)
            self._all.put("meta", b"state", encode(self.state))

    def run(self, txn: Transaction) -> None:
        """Put everything in this transaction; may run again in another one if this one comes to nothing."""
        for table, rows in self._all.rows.items():
            append = table in APPENDED
            consumed, added = txn.cursor(db=self._tables[table]).putmulti(rows, append=append)
            if append and added != consumed:
                raise StoreError(f"the table {table} has rows behind its end; open the store again")
        for work in self._all.work:
            work(txn)

    def settle(self) -> None:
        """It is on disk: let the overlay know."""
        if self._written is not None:
            self._overlay.written(self._written)
        self._overlay.state = self.state
        for effect in self._all.effects:
            if isinstance(effect, Row):
                self._overlay.drop(effect)
            else:
                self._overlay.add(*effect)
        self._overlay.commits += 1

    def deleted(self) -> list[str]:
        """The agents that are gone by it."""
        return [agent for agent, end in self._all.ends.items() if end is None]


def _shared(row: Row, at: int) -> Ancestry:
    """What a fork at `at` shares: the whole ancestry below it, and the last log cut there."""
    shared: Ancestry = []
    start = 0
    for log, upto in (*row.below, (row.log, at)):
        if start <= at:
            shared.append((log, min(upto, at)))
        start = upto + 1
    return shared


def _last_key(txn: Transaction, table: Any) -> int:
    cursor = txn.cursor(db=table)
    return unkey(cursor.key()) if cursor.last() else 0
