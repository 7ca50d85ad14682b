"""The open end of one agent's log: appends in memory at once, and is on disk when `commit` returns.

`append` is synchronous and cheap: it gives seqs, folds the events into the state and puts the records in a tail. Events passed
together are atomic, since the writer takes whole tails. `commit` waits for the writer; it is the only thing that waits. A
failed commit *poisons* the log: memory is ahead of the disk and cannot be trusted, so it is thrown away and read again.

Rejected: a queue of appends with a future each. A turn appends thirty records and waits twice; the tail is a list.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from time import time as unix_time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import trio

from .errors import AgentDeleted, CallboardError, CommitFailed, StoreError
from .events import CommandRun, Event, InboxPut, TimerSet
from .messages import Chunk
from .records import Record, sound
from .runs import ChunkRun
from .store import Batch, Delete, Fork, Summary

if TYPE_CHECKING:
    from .writer import Writer


class State(Protocol):
    """What the log keeps folded: the owner's view of its records."""

    def apply(self, seq: int, time: int, event: Event) -> None:
        """Fold one record in; never raises."""
        ...

    def summary(self) -> Summary:
        """What the store's index should know now."""
        ...

    def dump(self) -> bytes:
        """The state as bytes, for a snapshot."""
        ...


S = TypeVar("S", bound=State)
_WITH_IDS = frozenset({InboxPut, CommandRun, TimerSet})
"""Events that bring an id by which a message is known."""


class Ticket:
    """One trip of a tail to the disk. Those who wait for it are woken by its own result, never by a shared condition."""

    __slots__ = ("_waiting", "done", "error")

    def __init__(self) -> None:
        self._waiting: dict[trio.lowlevel.Task, None] = {}
        self.done = False
        self.error: CallboardError | None = None

    @property
    def waiting(self) -> int:
        """How many tasks wait for it."""
        return len(self._waiting)

    async def wait(self, *, shielded: bool = False) -> None:
        """Until it is on disk; raises what kept it from there. If `shielded`, no cancellation gets in between."""
        if not self.done:
            task = trio.lowlevel.current_task()

            def leave(_: object) -> trio.lowlevel.Abort:
                if shielded:  # as in a shielded scope, for a tenth of its price
                    return trio.lowlevel.Abort.FAILED
                del self._waiting[task]
                return trio.lowlevel.Abort.SUCCEEDED

            self._waiting[task] = None
            await trio.lowlevel.wait_task_rescheduled(leave)
        if self.error is not None:
            raise self.error

    def settle(self, error: CallboardError | None) -> None:
        """Wake all who wait."""
        self.done, self.error = True, error
        for task in self._waiting:
            trio.lowlevel.reschedule(task)
        self._waiting.clear()


class Log(Generic[S]):
    """One agent's log, open for writing by its owner.

    `last` is the seq of the newest record in memory, `committed` that of the newest on disk; `failed` is set once a commit
    failed, and then every call raises it.
    """

    __slots__ = (
        "_blobs",
        "_clock",
        "_flying",
        "_ids",
        "_joined",
        "_prelude",
        "_run",
        "_tail",
        "_ticket",
        "_time",
        "_want_snapshot",
        "_writer",
        "agent",
        "committed",
        "deleting",
        "epoch",
        "failed",
        "followers",
        "last",
        "moved",
        "on_poison",
        "on_settle",
        "state",
    )

    def __init__(
        self,
        agent: str,
        epoch: int,
        state: S,
        writer: Writer,
        *,
        last: int = -1,
        time: int = 0,
        now: Callable[[], float] = unix_time,
        prelude: Fork | None = None,
    ) -> None:
        self.agent, self.epoch, self.state = agent, epoch, state
        self.last = self.committed = last
        self.failed: CallboardError | None = None
        self.followers = 0
        self.moved = trio.lowlevel.ParkingLot()
        self.on_poison: Callable[[], None] | None = None
        """Told once, at once, when a commit failed: whoever owns the log has to stop and give it up."""
        self.on_settle: Callable[[], None] | None = None
        """Told, at once, each time that something appended is on disk."""
        self.deleting = False
        self._writer, self._clock, self._time, self._prelude = writer, now, time, prelude
        self._tail: list[Record | ChunkRun] = []
        self._run: ChunkRun | None = None
        """The end of the tail, if that is a run of chunks: the next chunk of its step joins it."""
        self._ids: dict[str, int] = {}
        self._blobs: dict[str, bytes] = {}
        self._joined: set[Log[S]] | None = None
        self._ticket: Ticket | None = None
        self._flying: Ticket | None = None
        self._want_snapshot = False

    def __repr__(self) -> str:
        return f"<Log of {self.agent!r} at seq {self.last}, {self.last - self.committed} uncommitted>"

    @property
    def dirty(self) -> bool:
        """Whether anything appended is not yet on disk."""
        return self.committed != self.last or self._flying is not None

    @property
    def waiting(self) -> int:
        """How many tasks wait for a commit of this log."""
        return sum(t.waiting for t in (self._ticket, self._flying) if t is not None)

    def _tick(self) -> int:
        # The clock may go back or jump; a record's time only orders.
        now = int(self._clock() * 1000)
        if now > self._time:
            self._time = now
        return self._time

    @trio.lowlevel.enable_ki_protection
    def append(self, *events: Event, blobs: Mapping[str, bytes] | None = None) -> int:
        """Append the events as one: all of them reach the disk together, or none. Returns the seq of the first.

        Raises:
            StoreError: an earlier commit of this log failed.
            UsageError: an event holds what a log cannot keep; nothing was appended.
        """
        if self.failed is not None:
            raise self.failed
        encoded = [*map(sound, events)]
        tail, apply = self._tail, self.state.apply
        if not tail:
            self._writer.add(self)
        self._run = None
        first, time = self.last + 1, self._tick()
        for event, raw in zip(events, encoded, strict=True):
            self.last = seq = self.last + 1
            tail.append(Record(seq, time, event, raw))
            if type(event) in _WITH_IDS:
                self._know(event, seq)
            apply(seq, time, event)
        if blobs:
            self._blobs.update(blobs)
        return first

    @trio.lowlevel.enable_ki_protection
    def append_chunk(self, turn: int, step: int, chunk: Chunk) -> int:
        """Append one chunk of a stream: an `assistant/chunk` record, kept as a column. Returns its seq."""
        run = self._run
        if run is None or run.turn != turn or run.step != step:
            run = self._begin_run(turn, step)
        now = int(self._clock() * 1000)  # as in `_tick`; most records are chunks
        if now > self._time:
            self._time = now
        run.times.append(self._time)
        run.chunks.append(chunk)
        self.last = seq = self.last + 1
        return seq

    def _begin_run(self, turn: int, step: int) -> ChunkRun:
        if self.failed is not None:
            raise self.failed
        if not self._tail:
            self._writer.add(self)
        run = self._run = ChunkRun(turn, step, self.last + 1)
        self._tail.append(run)
        return run

    def _know(self, event: Event, seq: int) -> None:
        if isinstance(event, InboxPut):
            self._ids[event.message.id] = seq
        elif isinstance(event, CommandRun | TimerSet):
            self._ids.setdefault(event.id, seq)

    def join(self, other: Log[S]) -> None:
        """Make the tails of both logs one unit: they reach the disk together, or neither does."""
        for log, with_it in ((self, other), (other, self)):
            if log._joined is None:
                log._joined = set()
            log._joined.add(with_it)

    def tail_id(self, message_id: str) -> int | None:
        """The seq of a message's put (or of the timer that will put it) that is not yet on disk."""
        return self._ids.get(message_id)

    async def commit(self, *, shielded: bool = False) -> None:
        """Return when everything appended so far is on disk. If `shielded`, no cancellation gets in between.

        Raises:
            CommitFailed: it did not get there (StoreFull: for want of space); the log is poisoned.
        """
        ticket = self.push()
        if ticket is not None:
            await ticket.wait(shielded=shielded)
        elif not shielded:
            await trio.lowlevel.checkpoint()
        else:
            await trio.lowlevel.cancel_shielded_checkpoint()

    def push(self) -> Ticket | None:
        """Have everything appended so far written at once, for who need not wait for it. The trip; None if all is on disk.

        Raises:
            CommitFailed: an earlier trip failed; the log is poisoned.
        """
        if self.failed is not None:
            raise self.failed
        if self._tail or self._want_snapshot:
            if self._ticket is None:
                self._ticket = Ticket()
            self._writer.want()
            return self._ticket
        return self._flying

    async def delete(self) -> None:
        """Remove the agent; what was appended before is written first, and nothing can be appended after. No cancellation gets in
        between: nobody could tell then whether it is there.

        Raises:
            CommitFailed: the agent is still there.
        """
        self.deleting = True
        self._writer.add(self)
        self._ticket = self._ticket or Ticket()
        ticket = self._ticket
        self._writer.want()
        await ticket.wait(shielded=True)
        self.failed = AgentDeleted(f"the agent {self.agent!r} was deleted", agent=self.agent)
        self.moved.unpark_all()

    def snapshot_soon(self) -> None:
        """Let the next batch carry a snapshot of the state; there will be one, also if nothing else is to be written.

        Raises:
            StoreError: an earlier commit of this log failed.
            UsageError: nobody writes any more.
        """
        if self.failed is not None:
            raise self.failed
        self._writer.add(self)
        self._want_snapshot = True

    async def wait_beyond(self, seq: int) -> None:
        """Return when a record after `seq` is on disk, or the log failed."""
        while self.committed <= seq and self.failed is None:
            await self.moved.park()
        if self.failed is not None:
            raise self.failed

    # -- the writer's side

    def take(self) -> tuple[list[Fork | Batch | Delete], Ticket]:
        """Hand the tail over: the operations that write it, and the ticket to settle."""
        ops: list[Fork | Batch | Delete] = []
        if not self._tail and not self._want_snapshot and not self.deleting:
            return ops, Ticket()
        ticket, self._ticket = self._ticket or Ticket(), None
        self._flying = ticket
        if self._prelude is not None:
            ops.append(self._prelude)
            self._prelude = None
        if self._tail or self._want_snapshot:
            ops.append(self._batch())
        if self.deleting:
            ops.append(Delete(self.agent, self.epoch))
            self.deleting = False
        return ops, ticket

    def _batch(self) -> Batch:
        first = self._tail[0] if self._tail else None
        follows = self.last if first is None else (first.first if isinstance(first, ChunkRun) else first.seq) - 1
        snapshot = self.state.dump() if self._want_snapshot else None
        batch = Batch(self.agent, self.epoch, follows, self._tail, self.state.summary(), self._ids, snapshot, self._blobs)
        self._want_snapshot = False
        self._tail, self._run, self._ids, self._blobs = [], None, {}, {}
        return batch

    @property
    def joined(self) -> bool:
        """Whether the tail of another log has to go with this one."""
        return self._joined is not None

    def take_joined(self) -> Collection[Log[S]]:
        """The logs whose tails must go with this one."""
        joined, self._joined = self._joined, None
        return joined or ()

    def settle(self, ticket: Ticket, last: int, error: StoreError | None) -> None:
        """The trip is over: note it, and wake who waited and who follows."""
        if error is None:
            self.committed = max(self.committed, last)
            if self.on_settle is not None and self.failed is None:
                self.on_settle()
        else:
            self.poison(error)
        if self._flying is ticket:
            self._flying = None
        ticket.settle(self.failed)
        if self.moved:
            self.moved.unpark_all()

    def poison(self, error: StoreError) -> None:
        """Memory is not what the disk holds: refuse everything from here on."""
        if self.failed is None:
            if isinstance(error, CommitFailed):
                failed = error
            else:
                failed = CommitFailed(
                    f"the log of {self.agent!r} could not be written: {error}; it is read again from disk at the next access",
                    agent=self.agent,
                    seq=self.committed,
                )
                failed.__cause__ = error
            self.failed = failed
            if self.on_poison is not None:
                self.on_poison()
        self._tail, self._run, self._ids, self._blobs, self._want_snapshot = [], None, {}, {}, False
        if self._ticket is not None:
            self._ticket.settle(self.failed)
            self._ticket = None
        for other in self.take_joined():  # what was to stand or fall with this tail falls
            other.poison(error)
