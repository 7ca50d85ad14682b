"""The memory engine: a store that lives and dies with the process, for tests and for runs that need no disk.

It keeps the promises of a disk without its waits: a commit is one checkpoint, then all of its units at once. Logs share
their prefix with their forks through *segments*, as they do on disk, so both engines delete by the same rule. `copy()` is
the image a crash would leave; `join()` is a second owner over the same data.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import trio

from ..errors import AgentDeleted, AgentNotFound, StoreError, UsageError
from ..records import Record
from ..store import Arrival, Batch, Delete, Flag, Fork, Head, Results, Snapshot, Unit
from .checks import check_agent, check_unit, fence_lost, gone, matches, size, stale
from .memory_data import Data, Log

PAGE = 256
"""Records a reader takes between two checkpoints."""


class MemoryStore:
    """A store in memory. `name` is only for messages; two stores never share anything unless one was made by `join`."""

    def __init__(self, name: str = ":memory:") -> None:
        self._name, self._owner = name, object()
        self._data = Data()
        self._taken: dict[str, int] = {}
        self._closed = False

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self._name

    @property
    def readonly(self) -> bool:
        """Never: nobody else could have written it."""
        return False

    def copy(self) -> MemoryStore:
        """What a crash at this moment would leave: all that is committed, owned by nobody, independent of this store."""
        return self._over(self._name, self._data.copy())

    def join(self, name: str) -> MemoryStore:
        """A second owner over the same data, as another process would be; what one owns is fenced from the other."""
        return self._over(name, self._data)

    @staticmethod
    def _over(name: str, data: Data) -> MemoryStore:
        store = MemoryStore(name)
        store._data = data
        return store

    async def own(self, agent: str) -> int:
        """Take the agent over; every older epoch of it loses its fence."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        check_agent(agent)
        return self._data.own(agent, self._owner)

    async def commit(self, units: Sequence[Unit]) -> Results:
        """One checkpoint, then all units at once; a unit that lost a race is answered with its error."""
        for unit in units:
            check_unit(unit)
        frozen = [[self._data.freeze(part) for part in unit] for unit in units]
        await trio.lowlevel.checkpoint()
        self._check_open()
        self._data.counters["commits"] += 1
        self._data.counters["flushes"] += 1
        return [self._write(unit) for unit in frozen]

    def _write(self, unit: Unit) -> StoreError | None:
        error = self._refusal(unit)
        if error is None:
            for part in unit:
                self._data.apply(part)
            for agent in {part.agent for part in unit if type(part) is Batch}:
                self._data.drop_arrivals(agent, self._taken.pop(agent, 0))
        return error

    def _refusal(self, unit: Unit) -> StoreError | None:
        """Why the unit may not be written; asked before any of it is, so that it stands or falls whole."""
        ends: dict[str, int | None] = {}
        for part in unit:
            log = self._data.logs.get(part.agent)
            last = ends.get(part.agent, None if log is None else log.last)
            error = self._refuse(part, last)
            if error is not None:
                return error
            if type(part) is Fork:
                ends[part.agent] = part.at
            elif type(part) is Delete:
                ends[part.agent] = None
            elif type(part) is Batch:
                ends[part.agent] = part.follows + sum(map(size, part.items))
        return None

    def _refuse(self, part: Batch | Delete | Fork | Arrival, last: int | None) -> StoreError | None:
        if type(part) is Arrival:
            return gone(part.agent, "does not exist") if last is None else None
        assert not isinstance(part, Arrival)
        if self._data.fences.get(part.agent) != (part.epoch, self._owner):
            return fence_lost(part)
        if type(part) is Batch:
            return None if part.follows == (-1 if last is None else last) else stale(part, -1 if last is None else last)
        if type(part) is Delete:
            return gone(part.agent, "does not exist") if last is None else None
        assert isinstance(part, Fork)
        source = self._data.logs.get(part.source)
        if last is not None:
            return gone(part.agent, "exists already")
        return (
            gone(part.source, f"has no record {part.at} to fork at")
            if source is None or not 0 <= part.at <= source.last
            else None
        )

    async def head(self, agent: str) -> Head | None:
        """The end of the agent's log; None if there is no such agent."""
        await trio.lowlevel.checkpoint()
        check_agent(agent)
        self._check_open()
        log = self._data.logs.get(agent)
        return log.head(agent) if log else None

    async def snapshot(self, agent: str) -> Snapshot | None:
        """The newest snapshot, if there is one."""
        await trio.lowlevel.checkpoint()
        check_agent(agent)
        self._check_open()
        log = self._data.logs.get(agent)
        return log.snapshot if log else None

    def read(self, agent: str, after: int = -1, upto: int | None = None, types: Container[str] | None = None) -> MemoryReader:
        """Committed records, page by page; see `Store.read`."""
        check_agent(agent)
        return MemoryReader(self, agent, after, upto, types)

    def page(
        self, agent: str, log: Log | None, after: int, upto: int | None, types: Container[str] | None
    ) -> tuple[Log, list[Record], int]:
        """The next records after `after`, and how far that looked; `log` is the one the reader began with."""
        self._check_open()
        now = self._data.logs.get(agent)
        if log is None and now is None:
            raise AgentNotFound(f"there is no agent {agent!r} in {self._name}", agent=agent)
        if now is None or (log is not None and now is not log):
            raise AgentDeleted(f"{agent!r} was deleted while its log was read", agent=agent)
        end = now.last if upto is None else min(upto, now.last)
        records, seen = now.page(after, end, types, PAGE, self._data.counters)
        return now, records, seen

    async def find(self, agent: str, message_id: str) -> int | None:
        """The seq of the record that brought this message, in the agent's own part of its log."""
        await trio.lowlevel.checkpoint()
        check_agent(agent)
        self._check_open()
        log = self._data.logs.get(agent)
        return log.ids.get(message_id) if log else None

    async def agents(
        self,
        prefix: str = "",
        labels: Mapping[str, str] | None = None,
        flag: Flag | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Head]:
        """One page of agents in order of id."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        found: list[Head] = []
        for agent in self._data.names_from(prefix, after, flag):
            if len(found) >= limit or not agent.startswith(prefix):
                break
            log = self._data.logs[agent]
            if matches(log.summary.labels, labels):
                found.append(log.head(agent))
        return found

    async def blob(self, digest: str) -> bytes:
        """A big value by its digest."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        try:
            return self._data.blobs[digest].data
        except KeyError:
            raise StoreError(f"there is no blob {digest} in {self._name}") from None

    async def arrivals(self, agent: str) -> list[bytes]:
        """Inputs that others queued for this agent, oldest first; the owner's next commit of the agent removes them."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        queue = self._data.arrivals.get(agent, [])
        self._taken[agent] = len(queue)
        return list(queue)

    async def aclose(self) -> None:
        """Close this handle; the data stays for those who joined it."""
        await trio.lowlevel.checkpoint()
        self._closed = True

    def statistics(self) -> Mapping[str, Any]:
        """Counters: commits, flushes, frames written and read, chunk rows read, agents."""
        return {**self._data.counters, "agents": len(self._data.logs)}

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError(f"the store {self._name} is closed; open it again")


class MemoryReader:
    """Reads one log page by page; holds no lock, so the log may grow, or be deleted, between two records."""

    def __init__(self, store: MemoryStore, agent: str, after: int, upto: int | None, types: Container[str] | None) -> None:
        self._store, self._agent, self._upto, self._types = store, agent, upto, types
        self._after = after
        self._log: Log | None = None
        self._page: Iterable[Record] = iter(())
        self._closed = False

    def __aiter__(self) -> MemoryReader:
        return self

    async def __anext__(self) -> Record:
        while True:
            for record in self._page:
                return record
            await trio.lowlevel.checkpoint()
            if self._closed:
                raise StopAsyncIteration
            start = self._after
            self._log, records, self._after = self._store.page(self._agent, self._log, start, self._upto, self._types)
            self._page = iter(records)
            if self._after == start:
                raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop reading."""
        await trio.lowlevel.checkpoint()
        self._page, self._closed = iter(()), True
