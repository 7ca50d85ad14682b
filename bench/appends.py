"""The store alone: batches of 200 agents a commit, on a store that already holds 400 batches of each, against raw LMDB.

A fresh store hides what its keys cost, so it is filled first, in big commits that are not measured. Raw LMDB is the cheapest
that can be done with the same bytes: one value a batch, appended under the next number, one synced commit for all of them.

*Busy loop* asks what a loop that never rests does to the time of a commit, *busy thread* what a tool does that computes in a
thread of its own, by default and with `gc="server"`. *One value* is raw LMDB beside the busy loop with all bytes of a commit in
one value: a thread that asks for Python's lock three times for a commit, and gets it by luck.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Literal

import lmdb
import trio

from callboard.actors.collector import Mode, collector
from callboard.storage.events import AssistantMessage, Event, StepEnd, TurnEnd
from callboard.storage.events.base import Completed
from callboard.storage.messages import Message, TextBlock
from callboard.storage.opening import open_store
from callboard.storage.records import Record, encode_event
from callboard.storage.store import Batch, Store, Summary

from .case import Case
from .measure import Meter, Sample, folder_bytes

AGENTS, PRELOAD, COMMITS = 200, 400, 200
LONGEST_S = 10.0
"""After so long no commit is begun any more: beside a loop that never rests one may take seconds."""
Busy = Literal["loop", "thread"]
TEXT = "All of what the model said, as long as an answer often is. " * 6


def records(first: int) -> Sequence[Record]:
    """What the end of a turn appends: about 500 bytes."""
    message = Message(f"m{first}", "assistant", (TextBlock(TEXT),))
    events: tuple[Event, ...] = (
        AssistantMessage(turn=first, step=1, message=message),
        StepEnd(turn=first, step=1),
        TurnEnd(turn=first, reason=Completed()),
    )
    return [Record(first + i, 1_764_500_000_000 + first, event) for i, event in enumerate(events)]


class Filler:
    """Makes the next batch of every agent."""

    def __init__(self, epochs: Sequence[int]) -> None:
        self._epochs, self._next = epochs, 0

    def units(self, batches: int) -> list[list[Batch]]:
        """As many batches of each agent, one unit each."""
        units: list[list[Batch]] = []
        for _ in range(batches):
            items = records(self._next)
            units += [[self._batch(i, items)] for i in range(len(self._epochs))]
            self._next += len(items)
        return units

    def _batch(self, i: int, items: Sequence[Record]) -> Batch:
        return Batch(f"agent-{i}", self._epochs[i], self._next - 1, items, Summary(name="bench", turn=self._next))


async def filled(store: Store) -> Filler:
    """Own the agents and write what was there before."""
    filler = Filler([await store.own(f"agent-{i}") for i in range(AGENTS)])
    for _ in range(PRELOAD // 20):
        await commit(store, filler.units(20))
    return filler


async def commit(store: Store, units: list[list[Batch]]) -> None:
    """Commit, and fail if any unit did."""
    for error in await store.commit(units):
        if error is not None:
            raise error


async def measure_store(folder: Path, busy: Busy | None) -> Sample:
    """Commit group after group, beside whatever is busy."""
    async with open_store(folder) as store:
        filler = await filled(store)
        size = folder_bytes(folder)
        async with beside(busy):
            meter, latencies = await timed(lambda: commit(store, filler.units(1)))
        return per_batch(meter, latencies, folder_bytes(folder) - size)


async def timed(one: Callable[[], Awaitable[object]]) -> tuple[Meter, list[float]]:
    """How long each of so many takes, or of as many as there is time for."""
    latencies: list[float] = []
    with Meter() as meter:
        end = time.perf_counter() + LONGEST_S
        while len(latencies) < COMMITS and time.perf_counter() < end:
            start = time.perf_counter()
            await one()
            latencies.append(time.perf_counter() - start)
    return meter, latencies


@asynccontextmanager
async def beside(busy: Busy | None) -> AsyncGenerator[None]:
    """Something that is busy for the length of a block."""
    async with trio.open_nursery() as nursery:
        if busy == "loop":
            nursery.start_soon(spin)
        with computing() if busy == "thread" else trio.CancelScope():
            yield
        nursery.cancel_scope.cancel()


async def spin() -> None:
    """Keep the loop's thread busy, a millisecond at a time."""
    while True:
        end = time.perf_counter() + 0.001
        while time.perf_counter() < end:
            pass
        await trio.lowlevel.checkpoint()


@contextmanager
def computing() -> Generator[None]:
    """A thread that computes."""
    over = threading.Event()

    def compute() -> None:
        while not over.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


async def measure_one_value(folder: Path) -> Sample:
    """One put a commit, in a thread beside the busy loop."""
    positions = iter(range(1 << 62))
    with lmdb.open(str(folder), map_size=4 << 30) as environment:
        value = payload(0) * AGENTS
        async with beside("loop"):
            meter, latencies = await timed(lambda: trio.to_thread.run_sync(append, environment, positions, [value]))
        return per_batch(meter, latencies, folder_bytes(folder))


def measure_raw(folder: Path) -> Sample:
    """The same bytes, appended by hand."""
    positions = iter(range(1 << 62))
    environment = lmdb.open(str(folder), map_size=4 << 30)
    for number in range(PRELOAD // 20):
        append(environment, positions, [payload(number * 20 + i) for i in range(20) for _ in range(AGENTS)])
    size, latencies = folder_bytes(folder), list[float]()
    with Meter() as meter:
        for number in range(COMMITS):
            start = time.perf_counter()
            append(environment, positions, [payload(PRELOAD + number) for _ in range(AGENTS)])
            latencies.append(time.perf_counter() - start)
    environment.close()
    return per_batch(meter, latencies, folder_bytes(folder) - size)


def payload(number: int) -> bytes:
    """A batch as bytes."""
    return b"".join(encode_event(r) for r in records(number * 3))


def append(environment: lmdb.Environment, positions: Iterator[int], values: list[bytes]) -> None:
    """One synced commit."""
    with environment.begin(write=True) as transaction:
        rows = [(next(positions).to_bytes(8, "big"), value) for value in values]
        transaction.cursor().putmulti(rows, append=True)


def per_batch(meter: Meter, latencies: list[float], size: int) -> Sample:
    """Rates and bytes for a batch, times for a commit of all agents."""
    batches = len(latencies) * AGENTS
    whole = meter.sample(latencies)
    return Sample(
        per_s=batches / meter.wall_s,
        p50_ms=whole.p50_ms,
        p99_ms=whole.p99_ms,
        cpu_us=meter.cpu_s / batches * 1e6,
        others=whole.others,
        rss_mb=whole.rss_mb,
        flushes=len(latencies) / batches,
        file_bytes=size / batches,
        written_bytes=meter.written / batches,
    )


def run_store(busy: Busy | None = None, mode: Mode | None = None) -> Sample:
    """One sample of the store."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder, collector(mode):
        return trio.run(measure_store, Path(folder), busy)


def run_one_value() -> Sample:
    """One sample of raw LMDB beside a busy loop."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(measure_one_value, Path(folder))


def run_raw() -> Sample:
    """One sample of raw LMDB."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return measure_raw(Path(folder))


CASES = (
    Case("floor append x200", run_raw, "batches/s"),
    Case("append x200", run_store, "batches/s", against="floor append x200"),
    Case("append x200, busy loop", partial(run_store, "loop"), "batches/s", against="append x200", short=False),
    Case("one value, busy loop", run_one_value, "batches/s", against="append x200", short=False),
    Case("append x200, busy thread", partial(run_store, "thread"), "batches/s", against="append x200", short=False),
    Case(
        "append x200, busy thread, gc server",
        partial(run_store, "thread", "server"),
        "batches/s",
        against="append x200",
        short=False,
    ),
)
