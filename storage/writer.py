"""Group commit: one writer per store gathers what all agents have ready into one synced transaction.

A flush costs from 0.2 to 8 ms, whatever is in it: a thousand agents share one. To share it as a rule and not by luck, a woken
driver is *expected*: the writer waits until none is, for as long as it takes the driver to reach its first barrier; a driver
that really waits (a timer, a socket) is not waited for longer than a millisecond.

Only `commit` wakes the writer. What nobody waits for (chunks) is flushed lazily, soon if somebody follows that agent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from .errors import CommitFailed, StoreError, UsageError
from .log import Log, Ticket
from .store import Batch, Delete, Fork, Store, Unit
from .timings import Timings

LAZY_S = 0.2
"""How long an uncommitted record may wait when nobody follows the agent."""
FOLLOWED_S = 0.01
"""The same while somebody follows it."""
PATIENCE_S = 0.001
"""How long a flush waits for expected drivers."""
FLUSH_S = (0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 1.0)
MIN_PASSES, MAX_PASSES = 20, 200
"""The same in scheduler passes: at least so many even if they take long, at most so many even if they are quick."""

AnyLog = Log[Any]
_Entry = tuple[AnyLog, Ticket, int]


class Writer:
    """The one task that takes tails to the store. `run` is its body; it ends after `stop`, when its tail is empty."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._dirty: dict[AnyLog, None] = {}
        self._wanted = self._stopping = False
        self.closed = False
        """Whether the task has ended: nothing that is appended now would ever reach the disk."""
        self._expected = 0
        self._lot = trio.lowlevel.ParkingLot()
        self._lazy_at = math.inf
        self._sleep: trio.CancelScope | None = None
        self._flushing_since: float | None = None
        self._took = Timings(FLUSH_S)
        self.flushes = 0

    def statistics(self) -> Mapping[str, Any]:
        """Flushes so far and how long they took, logs with unwritten records, drivers expected, and how long the present flush
        has taken."""
        since = self._flushing_since
        return {
            "flushes": self.flushes,
            "flush_seconds": self._took.read(),
            "dirty": len(self._dirty),
            "expected": self._expected,
            "flushing_s": 0.0 if since is None else time.perf_counter() - since,
        }

    # -- what logs and drivers call

    def add(self, log: AnyLog) -> None:
        """The log's tail is about to be no longer empty.

        Raises:
            UsageError: nobody writes any more.
        """
        if self.closed:
            raise UsageError(f"the system on {self._store.name!r} is closed: open it again to go on", agent=log.agent)
        self._dirty[log] = None
        due = trio.current_time() + (FOLLOWED_S if log.followers else LAZY_S)
        if due < self._lazy_at:
            self._lazy_at = due
            if self._sleep is not None:
                self._sleep.deadline = due

    def followed(self, log: AnyLog) -> None:
        """Somebody began to follow the log: what it has must not wait for the long timer."""
        if log in self._dirty:
            self.add(log)

    def want(self) -> None:
        """Somebody waits for a commit."""
        if not self._wanted:  # else the task knows, and has not parked since
            self._wanted = True
            self._lot.unpark_all()

    def expect(self) -> Expectation:
        """A driver was woken: a flush waits for its first barrier."""
        self._expected += 1
        return Expectation(self)

    def release(self) -> None:
        """An expected driver reached its barrier, or will not."""
        self._expected -= 1

    def stop(self) -> None:
        """Write what there is and end."""
        self._stopping = True
        self._lot.unpark_all()

    async def flush(self) -> None:
        """Return when everything appended anywhere so far is on disk or has failed."""
        for log in list(self._dirty):
            try:
                await log.commit()
            except StoreError:
                continue  # the log's own waiters hear of it
        await trio.lowlevel.checkpoint()

    # -- the task

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """The writer's task. Run it shielded, outside everything that appends."""
        while True:
            await self._until_needed()
            if not self._dirty:
                self._wanted = False
                if self._stopping:
                    self.closed = True
                    return
                continue
            if self._wanted:
                await self._gather_expected()
            await self._flush()

    async def _until_needed(self) -> None:
        if self._wanted:
            return  # gathering is a checkpoint
        if self._stopping:
            await trio.lowlevel.checkpoint()
            return
        with trio.CancelScope(deadline=self._lazy_at) as self._sleep:
            await self._lot.park()
        self._sleep = None

    async def _gather_expected(self) -> None:
        # One pass lets every ready task join; more only while a driver is on its way to its first barrier.
        await trio.lowlevel.checkpoint()
        start, passes = time.perf_counter(), 0
        while self._expected > 0 and passes < MAX_PASSES:
            if passes >= MIN_PASSES and time.perf_counter() - start > PATIENCE_S:
                break
            await trio.lowlevel.checkpoint()
            passes += 1

    async def _flush(self) -> None:
        self._wanted, self._lazy_at = False, math.inf
        units, entries = self._collect()
        self._flushing_since = time.perf_counter()
        try:
            results = await self._store.commit(units)
        except StoreError as error:
            self._settle(entries, [error] * len(entries))
        except Exception as error:
            # An engine that breaks its contract must not leave anybody waiting for ever.
            failed = CommitFailed(f"the store {self._store.name!r} failed: {type(error).__name__}: {error}")
            failed.__cause__ = error
            self._settle(entries, [failed] * len(entries))
        else:
            self._settle(entries, results)
        self._took.add(time.perf_counter() - self._flushing_since)
        self._flushing_since = None
        self.flushes += 1

    def _settle(self, entries: list[list[_Entry]], results: Sequence[StoreError | None]) -> None:
        for unit_entries, error in zip(entries, results, strict=True):
            for log, ticket, last in unit_entries:
                log.settle(ticket, last, error)

    def _collect(self) -> tuple[list[Unit], list[list[_Entry]]]:
        units: list[Unit] = []
        entries: list[list[_Entry]] = []
        dirty, self._dirty = self._dirty, {}
        for log in dirty:
            unit: list[Fork | Batch | Delete] = []
            unit_entries: list[_Entry] = []
            for member in _group(log, dirty) if log.joined else (log,):
                last = member.last
                ops, ticket = member.take()
                if ops:
                    unit.extend(ops)
                    unit_entries.append((member, ticket, last))
            if unit:
                units.append(unit)
                entries.append(unit_entries)
        return units, entries


def _group(log: AnyLog, dirty: Mapping[AnyLog, None]) -> list[AnyLog]:
    # Joined transitively; a log that went with an earlier group has nothing left to take.
    group = [log]
    for member in group:
        group.extend(other for other in member.take_joined() if other in dirty and other not in group)
    return group


class Expectation:
    """One driver on its way to its first barrier; ends once."""

    __slots__ = ("_writer",)

    def __init__(self, writer: Writer) -> None:
        self._writer: Writer | None = writer

    def end(self) -> None:
        """The driver is there, or gave up; calling it again does nothing."""
        if self._writer is not None:
            self._writer.release()
            self._writer = None
