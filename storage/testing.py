"""A store that fails on demand, for tests of everything above the store.

It wraps a real engine: `fail_next` makes the next commit raise, `hold` keeps commits waiting until `release`, and `commits`
lists what each commit held, so that a test can count flushes and look at their units.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

import trio

from .store import Flag, Head, Reader, Results, Snapshot, Store, Unit


class FaultyStore:
    """`inner`, with faults. `commits`: the units of each commit that reached the engine, oldest first."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.commits: list[list[Unit]] = []
        self._faults: list[BaseException] = []
        self._gate: trio.Event | None = None
        self.waiting = 0
        """Commits that `hold` keeps waiting."""

    @property
    def name(self) -> str:
        """The inner store's."""
        return self.inner.name

    @property
    def readonly(self) -> bool:
        """The inner store's."""
        return self.inner.readonly

    def fail_next(self, error: BaseException, times: int = 1) -> None:
        """Let the next commits, `times` of them, raise `error` and write nothing."""
        self._faults += [error] * times

    def heal(self) -> None:
        """Let commits pass again, whatever was still to fail."""
        self._faults.clear()

    def hold(self) -> None:
        """Let commits wait from now on."""
        if self._gate is None:
            self._gate = trio.Event()

    def release(self) -> None:
        """Let the waiting commits, and later ones, go on."""
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.set()

    async def own(self, agent: str) -> int:
        """As the inner store."""
        return await self.inner.own(agent)

    async def commit(self, units: Sequence[Unit]) -> Results:
        """As the inner store, unless it is to wait or to fail."""
        if self._gate is not None:
            self.waiting += 1
            try:
                await self._gate.wait()
            finally:
                self.waiting -= 1
        if self._faults:
            await trio.lowlevel.checkpoint()
            raise self._faults.pop(0)
        self.commits.append(list(units))
        return await self.inner.commit(units)

    async def head(self, agent: str) -> Head | None:
        """As the inner store."""
        return await self.inner.head(agent)

    async def snapshot(self, agent: str) -> Snapshot | None:
        """As the inner store."""
        return await self.inner.snapshot(agent)

    def read(self, agent: str, after: int = -1, upto: int | None = None, types: Container[str] | None = None) -> Reader:
        """As the inner store."""
        return self.inner.read(agent, after, upto, types)

    async def find(self, agent: str, message_id: str) -> int | None:
        """As the inner store."""
        return await self.inner.find(agent, message_id)

    async def agents(
        self,
        prefix: str = "",
        labels: Mapping[str, str] | None = None,
        flag: Flag | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Head]:
        """As the inner store."""
        return await self.inner.agents(prefix, labels, flag, after, limit)

    async def blob(self, digest: str) -> bytes:
        """As the inner store."""
        return await self.inner.blob(digest)

    async def arrivals(self, agent: str) -> list[bytes]:
        """As the inner store."""
        return await self.inner.arrivals(agent)

    async def aclose(self) -> None:
        """As the inner store."""
        await self.inner.aclose()

    def statistics(self) -> Mapping[str, Any]:
        """As the inner store."""
        return self.inner.statistics()
