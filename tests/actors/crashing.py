"""Crashes by prefix: what a kill leaves is a log that ends between two appends, so a test may cut one there and restart.

`live` runs an agent and remembers where its appends ended; `image` makes a store that holds the log up to a seq and nothing else;
`restart` opens a system over it and waits until nothing runs. `upto` finds a seq by the short notation of the cases.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from helpers import notation, opened, records

from callboard.actors.agent import Agent
from callboard.actors.ref import AgentRef
from callboard.actors.state import AgentState
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.events import CommandRun, InboxPut
from callboard.storage.log import Log
from callboard.storage.records import Record, UnknownEvent
from callboard.storage.store import Batch

Act = Callable[[AgentRef[Any]], Awaitable[object]]


@dataclass
class Life:
    """A log as a run left it, the seqs at which its appends ended, and the folds that the run had at its end."""

    records: list[Record]
    ends: list[int]
    dump: bytes

    def upto(self, short: str, nth: int = 1) -> int:
        """The seq of the nth record that has this short form."""
        return upto(self.records, short, nth)


def upto(log: Sequence[Record], short: str, nth: int = 1) -> int:
    """The seq of the nth record that is written so in the short notation."""
    found = [record.seq for place, record in enumerate(log) if _alone(log, place) == short]
    assert len(found) >= nth, f"{short} is there {len(found)} times: {notation(log)}"
    return found[nth - 1]


def _alone(log: Sequence[Record], place: int) -> str:
    return notation([*(r for r in log[:place] if isinstance(r.event, InboxPut)), log[place]], log[place].seq - 1)


class Appends:
    """Where the appends of every log ended, and the logs themselves."""

    def __init__(self, then: Callable[[int], object] | None) -> None:
        self.ends: dict[str, list[int]] = defaultdict(list)
        self.logs: dict[str, Log[Any]] = {}
        self._then = then

    def see(self, log: Log[Any]) -> None:
        """The log was appended to."""
        self.ends[log.agent].append(log.last)
        self.logs[log.agent] = log
        if self._then is not None:
            self._then(len(self.ends[log.agent]))


@contextmanager
def appends(then: Callable[[int], object] | None = None) -> Generator[Appends]:
    """Watch every log of this process; `then` is told the number of appends of the log, in the stretch of each."""
    seen, every_log = Appends(then), cast("Any", Log)
    append, append_chunk = every_log.append, every_log.append_chunk

    def watched(self: Log[Any], *events: Any, **rest: Any) -> int:
        first: int = append(self, *events, **rest)
        seen.see(self)
        return first

    def watched_chunk(self: Log[Any], *args: Any) -> int:
        seq: int = append_chunk(self, *args)
        seen.see(self)
        return seq

    every_log.append, every_log.append_chunk = watched, watched_chunk
    try:
        yield seen
    finally:
        every_log.append, every_log.append_chunk = append, append_chunk


async def live(agent: Agent[Any, Any], act: Act, **options: Any) -> Life:
    """Run `act` on a new agent `a` and wait until nothing runs."""
    return await restart(agent, MemoryStore(), act, **options)


async def restart(agent: Agent[Any, Any], store: MemoryStore, act: Act | None = None, **options: Any) -> Life:
    """Open a system over the store, run `act`, wait until nothing runs, and verify."""
    with appends() as seen:
        async with opened(agent, store, **options) as (_, ref):
            if act is not None:
                await act(ref)
            await ref.wait_idle()
            dump = seen.logs["a"].state.dump() if seen.logs else b""
            whole = await records(store)
    return Life(whole, [end for end in seen.ends["a"] if end <= whole[-1].seq], dump)


def folded(log: Sequence[Record]) -> AgentState:
    """The folds of these records."""
    state = AgentState()
    for record in log:
        state.apply(record.seq, record.time, record.event)
    return state


async def image(log: Sequence[Record], last: int, agent: str = "a", *, snapshot: int | None = None) -> MemoryStore:
    """What is left if the process dies when the log ends at seq `last`; with a snapshot behind seq `snapshot`, if given."""
    kept, store = [record for record in log if record.seq <= last], MemoryStore()
    assert not any(isinstance(record.event, UnknownEvent) for record in kept)
    epoch = await store.own(agent)
    if snapshot is None:
        await store.commit([[batch(kept, epoch, agent)]])
        return store
    before, behind = [r for r in kept if r.seq <= snapshot], [r for r in kept if r.seq > snapshot]
    dump = folded(before).dump()
    first = msgspec.structs.replace(batch(before, epoch, agent), snapshot=dump)
    rest = msgspec.structs.replace(batch(kept, epoch, agent), follows=snapshot, items=behind)
    await store.commit([[first], [rest]] if behind else [[first]])
    return store


def batch(kept: Sequence[Record], epoch: int, agent: str = "a") -> Batch:
    """All records of a log in one batch."""
    ids: dict[str, int] = {}
    for record in kept:
        if isinstance(record.event, InboxPut):
            ids[record.event.message.id] = record.seq
        elif isinstance(record.event, CommandRun):
            ids.setdefault(record.event.id, record.seq)
    return Batch(agent, epoch, -1, kept, folded(kept).summary(), ids)


async def crashed(log: Sequence[Record], last: int, agent: Agent[Any, Any], act: Act | None = None, **options: Any) -> str:
    """The short notation of what a restart adds to a log that was cut behind seq `last`."""
    after = await restart(agent, await image(log, last), act, **options)
    return notation(after.records, last)
