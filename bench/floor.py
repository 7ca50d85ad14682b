"""The floor: the least a durable turn needs on trio, LMDB and msgspec, so that a runtime can be judged by its share of it.

No folds, no supervision, no validation, no seams, no inspection. Three to seven records a turn, group-committed by a thread of
its own, two commits a turn (the input before the model is asked, the answer before the caller is told) and four a tool turn
(also the call before the tool runs, and its result before the model is asked again): what Callboard promises, and nothing else.
"""

from __future__ import annotations

import queue
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import lmdb
import trio
from msgspec import Struct, msgpack

from callboard.actors.collector import collector

from .case import ANSWER, CHUNKS, LOADS, SHORT, TOOL_RESULT, Case, Load
from .measure import Meter, Sample, folder_bytes

encode = msgpack.Encoder().encode


class Entry(Struct, frozen=True, tag=True):
    """What every record of the floor has."""

    agent: str
    seq: int
    time: float


class Input(Entry, frozen=True):
    """What the user said."""

    text: str


class Answer(Entry, frozen=True):
    """What the model said, or the tool it asks for."""

    text: str
    tool: str | None


class Result(Entry, frozen=True):
    """What the tool gave."""

    text: str


class End(Entry, frozen=True):
    """The turn is over."""

    turn: int


class Batch:
    """Records on one trip to the disk, and who waits for them."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.lot = trio.lowlevel.ParkingLot()


class Journal:
    """Group commit: a batch gathers while the last one is being flushed; one scheduler pass lets all ready tasks join."""

    def __init__(self, folder: Path) -> None:
        self._environment = lmdb.open(str(folder), map_size=4 << 30)
        self._position = self.commits = 0
        self._batch, self._busy = Batch(), False
        self._wake = trio.lowlevel.ParkingLot()
        self._queue: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work)

    async def append(self, records: list[bytes]) -> None:
        """Return when the records are on disk."""
        batch = self._batch
        batch.records += records
        if not self._busy:
            self._busy = True
            self._wake.unpark()
        await batch.lot.park()

    async def run(self, task_status: trio.TaskStatus[None]) -> None:
        """Hand batches to the thread, for ever."""
        self._token = trio.lowlevel.current_trio_token()
        self._thread.start()
        task_status.started()
        while True:
            await self._wake.park()
            await trio.lowlevel.checkpoint()
            batch, self._batch = self._batch, Batch()
            self._queue.put(batch)

    def close(self) -> None:
        """End the thread and close the file."""
        self._queue.put(None)
        self._thread.join()
        self._environment.close()

    def _work(self) -> None:
        while (batch := self._queue.get()) is not None:
            with self._environment.begin(write=True) as transaction:
                for record in batch.records:
                    transaction.put(self._position.to_bytes(8, "big"), record, append=True)
                    self._position += 1
            self.commits += 1
            self._token.run_sync_soon(self._flushed, batch)

    def _flushed(self, batch: Batch) -> None:
        batch.lot.unpark_all()
        self._busy = bool(self._batch.records)
        if self._busy:
            self._wake.unpark()


class Listener:
    """Where a turn's chunks go. In a burst `put` never waits and `take` gets all there is; paced, each takes a channel hop."""

    def __init__(self, paced: bool) -> None:
        self._chunks: list[str] = []
        self._lot = trio.lowlevel.ParkingLot()
        self._send, self._receive = trio.open_memory_channel[str](64)
        self.paced = paced
        self.done = trio.Event()

    async def put(self, chunk: str) -> None:
        if self.paced:
            await self._send.send(chunk)
            return
        self._chunks.append(chunk)
        self._lot.unpark()

    async def take(self) -> list[str]:
        if self.paced:
            return [await self._receive.receive()]
        if not self._chunks:
            await self._lot.park()
        chunks, self._chunks = self._chunks, []
        return chunks


async def model(history: list[str], paced: bool) -> AsyncIterator[tuple[str, str | None]]:
    """The scripted model: a tool call if it was asked for one, else twenty chunks."""
    if history[-1] == "use the tool":
        yield "", "lookup"
        return
    for chunk in CHUNKS:
        if paced:
            await trio.lowlevel.checkpoint()
        yield chunk, None


class Agent:
    """A task with a mailbox and a history."""

    def __init__(self, name: str, journal: Journal) -> None:
        self._name, self._journal = name, journal
        self._seq = self._turn = 0
        self._history: list[str] = []
        self.inbox, self._receive = trio.open_memory_channel[tuple[str, Listener]](16)

    async def run(self) -> None:
        """Answer one message after the other."""
        async for text, listener in self._receive:
            self._history.append(text)
            pending = [encode(Input(*self._next(), text))]
            while await self._step(pending, listener) is not None:
                await self._journal.append(pending)
                self._history.append(TOOL_RESULT)
                pending = [encode(Result(*self._next(), TOOL_RESULT))]
            self._turn += 1
            pending.append(encode(End(*self._next(), self._turn)))
            await self._journal.append(pending)
            listener.done.set()

    async def _step(self, pending: list[bytes], listener: Listener) -> str | None:
        """Commit what is pending, ask the model once, leave its answer pending; the tool it asks for."""
        await self._journal.append(pending)
        pending.clear()
        parts: list[str] = []
        tool = None
        async for chunk, tool in model(self._history, listener.paced):
            if tool is None:
                parts.append(chunk)
                await listener.put(chunk)
        text = "".join(parts)
        self._history.append(text)
        pending.append(encode(Answer(*self._next(), text, tool)))
        return tool

    def _next(self) -> tuple[str, int, float]:
        self._seq += 1
        return self._name, self._seq, time.time()


async def client(agent: Agent, load: Load, turns: int, latencies: list[float]) -> None:
    """Ask again and again; check every answer."""
    for _ in range(turns):
        start, listener = time.perf_counter(), Listener(load.paced)
        await agent.inbox.send(("use the tool" if load.tool else "hello", listener))
        heard: list[str] = []
        while len(heard) < len(CHUNKS):
            heard += await listener.take()
        await listener.done.wait()
        latencies.append(time.perf_counter() - start)
        if "".join(heard) != ANSWER:
            raise AssertionError("the floor lost a chunk")


async def measure(load: Load, folder: Path) -> Sample:
    """One sample: agents first, one turn each to warm up, then the clock."""
    journal = Journal(folder)
    latencies: list[float] = []
    try:
        async with trio.open_nursery() as service:
            await service.start(journal.run)
            agents = [Agent(f"agent-{i}", journal) for i in range(load.agents)]
            for agent in agents:
                service.start_soon(agent.run)
            await everyone(agents, load, 1, [])
            commits, size = journal.commits, folder_bytes(folder)
            with Meter() as meter:
                await everyone(agents, load, load.turns, latencies)
            service.cancel_scope.cancel()
    finally:
        journal.close()
    return meter.sample(latencies, flushes=journal.commits - commits, file_bytes=folder_bytes(folder) - size)


async def everyone(agents: list[Agent], load: Load, turns: int, latencies: list[float]) -> None:
    """All clients at once."""
    async with trio.open_nursery() as nursery:
        for agent in agents:
            nursery.start_soon(client, agent, load, turns, latencies)


def run(load: Load) -> Sample:
    """One sample of a load, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder, collector(load.gc):
        return trio.run(measure, load, Path(folder))


CASES = tuple(Case(f"floor {load.label}", partial(run, load), short=i < SHORT) for i, load in enumerate(LOADS))
