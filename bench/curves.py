"""Two curves that have to be flat: what an event costs as the log grows, and what a turn costs as agents become many.

The first is one agent without compaction, turn after turn: CPU for each record, in pieces of 10,000 records. Its history grows,
too, and a request holds all of it. The second is the CPU for each turn with 1 to 1,000 agents at once, each in a system of its
own, in one process, with the garbage collector as a server has it. A turn of one agent alone pays for its own flush, so the curve
falls first. CPU is that of all threads, since the clock of a shared machine says little.
"""

from __future__ import annotations

import gc
import tempfile
import time
from functools import partial
from pathlib import Path

import msgspec
import trio

from callboard import Agent, System

from .case import Case, Load
from .measure import Meter, Sample
from .turns import Scripted, client, everyone

PIECE = 300
"""Turns between two looks: some 10,000 records."""
TURNS_IN_ALL = 4_000
AT_ONCE = (1, 10, 50, 200, 500, 1_000)


async def growing(pieces: int, folder: Path) -> Sample:
    """One sample: one agent, whose log grows piece by piece."""
    agent, latencies = Agent("bench", model=Scripted(False), system="Be brief.", plugins=[]), list[float]()
    points: list[tuple[float, float]] = []
    async with System.open(folder, agents=[agent], gc="server") as system:
        ref = await system.spawn(agent, id="long")
        with Meter() as meter:
            for _ in range(pieces):
                records, began = ref.source().last(), time.process_time()
                await client(ref, Load(1, PIECE), PIECE, latencies)
                grown = ref.source().last() - records
                points.append((records + grown, (time.process_time() - began) / grown * 1e6))
    sample = meter.sample(latencies)
    return msgspec.structs.replace(sample, points=tuple(points), last_to_first=points[-1][1] / points[0][1])


async def many(loads: tuple[int, ...], turns: int, folder: Path) -> Sample:
    """One sample: more and more agents, each load in a system of its own."""
    latencies: list[float] = []
    points: list[tuple[float, float]] = []
    with Meter() as meter:
        for agents in loads:
            points.append((agents, await cost(agents, min(200, max(2, turns // agents)), latencies, folder / str(agents))))
            gc.collect()
    sample = meter.sample(latencies)
    return msgspec.structs.replace(sample, points=tuple(points), last_to_first=points[-1][1] / points[-3][1])


async def cost(agents: int, turns: int, latencies: list[float], folder: Path) -> float:
    """Microseconds of CPU for a turn, with so many agents at once."""
    agent = Agent("bench", model=Scripted(False), system="Be brief.", plugins=[])
    async with System.open(folder, agents=[agent], gc="server") as system:
        refs = [await system.spawn(agent, id=f"agent-{i}") for i in range(agents)]
        await everyone(refs, Load(agents, 1), 1, [])
        began, before = time.process_time(), len(latencies)
        await everyone(refs, Load(agents, turns), turns, latencies)
        return (time.process_time() - began) / (len(latencies) - before) * 1e6


def run_growing(pieces: int) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(growing, pieces, Path(folder))


def run_many() -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(many, AT_ONCE, TURNS_IN_ALL, Path(folder))


CASES = (
    Case("events against length", partial(run_growing, 10), short=False),
    Case("turns against agents", run_many, short=False),
)
