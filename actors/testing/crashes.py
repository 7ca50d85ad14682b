"""`every_crash`: a scenario killed behind each of its commits, run again over what was left, and verified.

What a crash leaves is what is committed, and nothing else. So a test need not kill a process to know what a restart finds: the
image of a memory store right after a commit is exactly that. The run is then let go on until it wants to write again, since that
is the worst a kill can do: whatever the world was told or made to do behind the last commit has happened, and no record says so.

    async for crash in every_crash(scenario):
        assert crash.result == "Take a coat", crash

Commits are not counted ahead: which appends share one depends on the scheduler, so two runs may differ. The walk ends with the
first run that reaches its end unharmed, which is also the crash behind everything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import trio

from ...storage.engines.checks import size
from ...storage.engines.memory import MemoryStore
from ...storage.errors import CommitFailed, UsageError
from ...storage.records import Record
from ...storage.store import Batch, Results, Store, Unit
from ...storage.verify import verify

T = TypeVar("T")
Scenario = Callable[[Store], Awaitable[T]]


class Crash(Generic[T]):
    """One kill, and what came of running the scenario again over what it left. Its repr says where to look."""

    def __init__(self, commit: int, lost: tuple[str, ...], left: tuple[str, ...], result: T, store: MemoryStore) -> None:
        self.commit = commit
        """The last commit that landed, from 1."""
        self.lost = lost
        """The records that the next commit would have written, each as `agent: type`; empty for the crash behind the end."""
        self.left = left
        """Where the logs ended when it was restarted, each as `agent: seq type`."""
        self.result = result
        """What the scenario returned when it was run again."""
        self.store = store
        """The store after that, verified."""

    @property
    def lost_records(self) -> int:
        """How many records the kill took with it."""
        return len(self.lost)

    def __repr__(self) -> str:
        return f"<Crash {_where(self.commit, self.left, self.lost)}; run again: {self.result!r}>"


def every_crash(scenario: Scenario[T]) -> Crashes[T]:
    """Run `scenario(store)` once for each of its commits, killed behind it, and again to its end over what was left.

    The scenario opens its own system over the store, and must be re-runnable: the ids it chooses make it so. Effects of the
    world that it keeps outside the store (a counter in a tool) live on over the kill, as they would.

    Raises (while iterating):
        AssertionError: what the second run left does not verify.
        UsageError: the scenario writes nothing.
        Whatever the second run raises, with a note that says where the first was killed.
    """
    return Crashes(scenario)


class Crashes(Generic[T]):
    """A plain iterator, no generator: break whenever you like."""

    def __init__(self, scenario: Scenario[T]) -> None:
        self._scenario = scenario
        self._commit = 0
        self._over = False

    def __aiter__(self) -> Crashes[T]:
        return self

    async def __anext__(self) -> Crash[T]:
        if self._over:
            await trio.lowlevel.checkpoint()
            raise StopAsyncIteration
        self._commit += 1
        doomed = _DoomedStore(self._commit)
        self._over = not await doomed.run(self._scenario)
        if doomed.image is None:  # this run needed fewer commits than the one before
            if self._commit > 1:
                raise StopAsyncIteration
            raise UsageError(f"the scenario {self._scenario!r} committed nothing, so there is nothing to crash")
        return await self._again(doomed, doomed.image)

    async def _again(self, doomed: _DoomedStore, image: MemoryStore) -> Crash[T]:
        left = await _ends(image)
        where = _where(self._commit, left, doomed.lost)
        try:
            result = await self._scenario(image)
        except BaseException as error:
            error.add_note(f"in the run {where}")
            raise
        report = await verify(image)
        if not report.ok:
            raise AssertionError("\n".join([f"the run {where} does not verify:", *map(str, report.problems)]))
        return Crash(self._commit, doomed.lost, left, result, image)


class _DoomedStore(MemoryStore):
    """A store whose process dies: it takes `fatal` commits, and the next one finds nobody."""

    def __init__(self, fatal: int) -> None:
        super().__init__(f":memory: (killed behind commit {fatal})")
        self._left, self._scope = fatal, trio.CancelScope()
        self.image: MemoryStore | None = None
        self.lost: tuple[str, ...] = ()
        self._dead = False

    async def run(self, scenario: Scenario[T]) -> bool:
        """Run the scenario until the kill; False if it came to its end before."""
        with self._scope:
            try:
                await scenario(self)
            except Exception:
                if not self._dead:
                    raise
                # A dead process raises nothing: these are the failed commits of the run that was killed.
        return self._dead

    async def commit(self, units: Sequence[Unit]) -> Results:
        """Write, take the image behind the last commit of this life, and fail from then on."""
        if self.image is not None:
            self.lost = self.lost or tuple(_types(units))
            self._dead = True
            self._scope.cancel()
            await trio.lowlevel.checkpoint()
            raise CommitFailed(f"{self.name}: the test has killed this process")
        results = await super().commit(units)
        self._left -= 1
        if self._left == 0:
            self.image = self.copy()
        return results


def _types(units: Sequence[Unit]) -> list[str]:
    return [
        f"{part.agent}: {type}"
        for unit in units
        for part in unit
        if isinstance(part, Batch)
        for item in part.items
        for type in ([item.type] if isinstance(item, Record) else ["assistant/chunk"] * size(item))
    ]


async def _ends(store: MemoryStore) -> tuple[str, ...]:
    ends: list[str] = []
    for head in await store.agents(limit=1000):
        last = [record async for record in store.read(head.agent, after=head.last - 1)]
        ends.append(f"{head.agent}: {head.last} {last[0].type}")
    return tuple(ends)


def _where(commit: int, left: Sequence[str], lost: Sequence[str]) -> str:
    gone = f"{len(lost)} records lost ({', '.join(lost)})" if lost else "nothing lost"
    return f"killed behind commit {commit} (logs ended at {', '.join(left) or 'nothing'}; {gone})"
