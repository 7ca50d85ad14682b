"""Idle agents: how many bytes each one holds while it is open, and once it has been dropped from memory; and that it has no task.

Each agent has run one turn. *Open* is right after it; *passive* is a fresh system that has opened all of them and let them go.
Bytes are what Python has allocated (tracemalloc) over what it had before the first agent, so the store's own books are in them.
Tracing makes everything slow: the rates of these cases say nothing.
"""

from __future__ import annotations

import gc
import tempfile
import tracemalloc
from functools import partial
from pathlib import Path

import msgspec
import trio

from callboard import Agent, System

from .case import Case, Load
from .measure import Meter, Sample
from .turns import Scripted, client

AT_ONCE = 200


def held() -> int:
    """Bytes that Python holds now, without garbage."""
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def tasks() -> int:
    """How many tasks there are."""
    return trio.lowlevel.current_statistics().tasks_living


async def one_turn(system: System, agent: Agent, id: str, places: trio.CapacityLimiter) -> None:
    """A new agent, and its first turn."""
    async with places:
        await client(await system.spawn(agent, id=id), Load(1, 1), 1, [])


async def begun(system: System, agent: Agent, agents: int) -> None:
    """All agents, with one turn each."""
    places = trio.CapacityLimiter(AT_ONCE)
    async with trio.open_nursery() as nursery:
        for i in range(agents):
            nursery.start_soon(one_turn, system, agent, f"agent-{i}", places)


async def dropped(system: System) -> None:
    """Return when no agent is open any more."""
    while True:
        await trio.sleep(0.05)
        if not system.statistics()["agents"]:
            return


async def measure(agents: int, passive: bool, folder: Path) -> Sample:
    """One sample: agents that rest, and what they hold."""
    try:
        return await traced(agents, passive, folder)
    finally:
        tracemalloc.stop()


async def traced(agents: int, passive: bool, folder: Path) -> Sample:
    """The same; memory is traced from the moment at which it counts."""
    agent = Agent("bench", model=Scripted(False), system="Be brief.", plugins=[])
    if passive:
        async with System.open(folder, agents=[agent], idle_after=3600) as system:
            await begun(system, agent, agents)
    tracemalloc.start()
    async with System.open(folder, agents=[agent], idle_after=0.1 if passive else 3600) as system:
        bytes_before, tasks_before = held(), tasks()
        with Meter() as meter:
            if passive:
                for i in range(agents):
                    await system.get(f"agent-{i}")
                await dropped(system)
            else:
                await begun(system, agent, agents)
        if tasks() != tasks_before:
            raise AssertionError(f"{agents} idle agents have {tasks() - tasks_before} tasks")
        sample = meter.sample([meter.wall_s / agents] * agents)
        return msgspec.structs.replace(sample, held_bytes=(held() - bytes_before) / agents)


def run(agents: int, passive: bool) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(measure, agents, passive, Path(folder))


CASES = (
    Case("idle x10,000 open", partial(run, 10_000, False), "agents/s", short=False),
    Case("idle x10,000 passive", partial(run, 10_000, True), "agents/s", short=False),
)
