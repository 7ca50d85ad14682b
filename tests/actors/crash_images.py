"""What a crash may leave of several logs, and a scheduler that does the same again for the same seed.

`watched` notes where every log ended after each append of the process. An append to one log is a place to cut at; what one
stretch (between two checkpoints) appends to several logs is joined, or taken by one flush, so that a crash leaves all of it or
nothing: there is one place behind it. `left_by` makes the store that holds the logs up to such a place and nothing else.

`seeded` makes trio's scheduler, minted ids and the patience of the writer a function of a seed, and puts all of it back.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, cast

import msgspec
import trio
from crashing import batch, folded

from callboard.actors import content
from callboard.storage import writer
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.events import LogForked
from callboard.storage.log import Log
from callboard.storage.records import Record
from callboard.storage.store import Fork

Cut = Mapping[str, int]
"""Where each log ended, by agent."""
Logs = Mapping[str, Sequence[Record]]


class Watch(trio.abc.Instrument):
    """Where the logs ended after each append, from `start` on."""

    def __init__(self, start: Cut, then: Callable[[int], object] | None) -> None:
        self.cuts: list[Cut] = []
        self.appends = 0
        self._now: dict[str, int] = dict(start)
        self._then = then
        self._stretch: list[tuple[str, Cut]] = []

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A stretch is over, or it was that of a task that appends nothing."""
        if self._stretch:
            self.end_stretch()

    def end_stretch(self) -> None:
        """Keep the places of the stretch, or the last one if several logs share it."""
        several = len({agent for agent, _ in self._stretch}) > 1
        self.cuts.extend(cut for _, cut in (self._stretch[-1:] if several else self._stretch))
        self._stretch = []

    def see(self, log: Log[Any]) -> None:
        """The log was appended to."""
        self._now[log.agent] = log.last
        self._stretch.append((log.agent, dict(self._now)))
        self.appends += 1
        if self._then is not None:
            self._then(self.appends)


@contextmanager
def watched(start: Cut | None = None, then: Callable[[int], object] | None = None) -> Generator[Watch]:
    """Watch every log of this process; `then` is told the number of appends, in the stretch of each. Use it in a trio run."""
    watch, every_log = Watch(start or {}, then), cast("Any", Log)
    append, append_chunk = every_log.append, every_log.append_chunk

    def seen(self: Log[Any], *events: Any, **rest: Any) -> int:
        first: int = append(self, *events, **rest)
        watch.see(self)
        return first

    def seen_chunk(self: Log[Any], *args: Any) -> int:
        seq: int = append_chunk(self, *args)
        watch.see(self)
        return seq

    every_log.append, every_log.append_chunk = seen, seen_chunk
    trio.lowlevel.add_instrument(watch)
    try:
        yield watch
    finally:
        trio.lowlevel.remove_instrument(watch)
        watch.end_stretch()
        every_log.append, every_log.append_chunk = append, append_chunk


def upto(logs: Logs, cut: Cut) -> dict[str, list[Record]]:
    """The logs as they were there."""
    return {agent: [record for record in logs[agent] if record.seq <= last] for agent, last in cut.items()}


async def left_by(logs: Logs, cut: Cut, snapshots: Cut) -> MemoryStore:
    """A store that holds the logs up to a place, with a snapshot of some of them behind the seqs given."""
    store = MemoryStore()
    for agent, kept in upto(logs, cut).items():
        epoch = await store.own(agent)
        if forks := [record.event for record in kept if isinstance(record.event, LogForked)]:
            at = forks[-1].at
            rest = msgspec.structs.replace(batch(kept, epoch, agent), follows=at, items=[r for r in kept if r.seq > at])
            await store.commit([[Fork(agent, epoch, forks[-1].source, at), rest]])
            continue
        before = [record for record in kept if record.seq <= snapshots.get(agent, -1)]
        if not before:
            await store.commit([[batch(kept, epoch, agent)]])
            continue
        first = msgspec.structs.replace(batch(before, epoch, agent), snapshot=folded(before).dump())
        rest = msgspec.structs.replace(batch(kept, epoch, agent), follows=before[-1].seq, items=kept[len(before) :])
        await store.commit([[first], [rest]] if rest.items else [[first]])
    return store


@contextmanager
def seeded(*seed: object) -> Generator[None]:
    """Until the end of the block, the same seed gives the same schedule and the same minted ids."""
    trio_run, minter = cast("Any", trio)._core._run, cast("Any", content)._minter
    switch, state = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r.getstate()
    digest = hashlib.sha256(repr(seed).encode()).hexdigest()
    kept = minter._prefix, minter._count, writer.PATIENCE_S
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True
    trio_run._r.seed(digest)
    minter._prefix, minter._count = digest[:16], count()
    cast("Any", writer).PATIENCE_S = math.inf  # or a flush would wait longer on a slow machine than on a quick one
    try:
        yield
    finally:
        minter._prefix, minter._count, cast("Any", writer).PATIENCE_S = kept
        trio_run._r.setstate(state)
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = switch
