"""New agents and forks: spawn one after the other and 200 at once; fork agents with short and with long logs.

A fork copies nothing, so what it costs should not depend on where it is made; its folds are read through the prefix. Each is
durable on return. Forks are made at the end of the log, and just before its last turn, as `what-if` makes them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from callboard import Agent, System

from .case import Case
from .measure import Meter, Sample, folder_bytes
from .opening import written
from .turns import Scripted

FORKS = 40


async def clocked(latencies: list[float], function: Callable[[], Awaitable[object]]) -> None:
    """Call it, and keep what it took."""
    start = time.perf_counter()
    await function()
    latencies.append(time.perf_counter() - start)


async def measure_spawn(at_once: int, rounds: int, folder: Path) -> Sample:
    """One sample: so many at once, again and again."""
    agent, latencies = Agent("bench", model=Scripted(False), plugins=[]), list[float]()
    async with System.open(folder, agents=[agent]) as system:
        await system.spawn(agent, id="warm")
        size = folder_bytes(folder)
        with Meter() as meter:
            for number in range(rounds):
                async with trio.open_nursery() as nursery:
                    for i in range(at_once):
                        nursery.start_soon(clocked, latencies, partial(system.spawn, agent, id=f"agent-{number}-{i}"))
        return meter.sample(latencies, file_bytes=folder_bytes(folder) - size)


async def measure_fork(turns: int, at: int | None, folder: Path) -> Sample:
    """One sample: forks of one agent, one after the other, at the end or before the turn `at`."""
    agent, latencies = Agent("bench", model=Scripted(False), system="Be brief.", plugins=[]), list[float]()
    await written(folder, agent, turns)
    async with System.open(folder, agents=[agent]) as system:
        ref = await system.get("long")
        size = folder_bytes(folder)
        with Meter() as meter:
            for i in range(FORKS):
                await clocked(latencies, partial(ref.fork, id=f"fork-{i}", turn=at))
        return meter.sample(latencies, file_bytes=folder_bytes(folder) - size)


def run(function: Callable[[Path], Awaitable[Sample]]) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(function, Path(folder))


CASES = (
    Case("spawn x1", partial(run, partial(measure_spawn, 1, 300)), "agents/s", short=False),
    Case("spawn x200", partial(run, partial(measure_spawn, 200, 20)), "agents/s"),
    Case("fork of 100 records", partial(run, partial(measure_fork, 3, None)), "forks/s", short=False),
    Case("fork of 100,000 records", partial(run, partial(measure_fork, 3000, None)), "forks/s", short=False),
    Case("fork before the last turn of 100,000", partial(run, partial(measure_fork, 3000, 3000)), "forks/s", short=False),
)
