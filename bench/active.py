"""Active agents: how many bytes each one holds in the middle of a turn, while its model is still speaking.

Each has streamed half a sentence and waits for the rest: its driver's task, the scratch of its turn, the open stream, its log and
folds. Bytes are what Python has allocated (tracemalloc) over what it had before the first agent; tracing makes everything slow,
so the rate says nothing.
"""

from __future__ import annotations

import tempfile
import tracemalloc
from functools import partial
from pathlib import Path

import msgspec
import trio
import trio.testing

from callboard import Agent, System

from .case import Case
from .idle import held, tasks
from .mail import Thinks
from .measure import Meter, Sample


async def begin(system: System, agent: Agent, id: str) -> None:
    """A new agent, and a message for it."""
    await (await system.spawn(agent, id=id)).followup("Think.")


async def measure(agents: int, folder: Path) -> Sample:
    """One sample: so many agents in the middle of a stream, and what they hold."""
    agent = Agent("bench", model=Thinks(), system="Be brief.", plugins=[])
    tracemalloc.start()
    try:
        async with System.open(folder, agents=[agent], model_slots=agents, grace=0) as system:
            bytes_before, tasks_before = held(), tasks()
            with Meter() as meter:
                async with trio.open_nursery() as nursery:
                    for i in range(agents):
                        nursery.start_soon(begin, system, agent, f"agent-{i}")
                await trio.testing.wait_all_tasks_blocked(0.1)
            if tasks() != tasks_before + agents:
                raise AssertionError(f"{agents} active agents have {tasks() - tasks_before} tasks, and not one each")
            sample = meter.sample([meter.wall_s / agents] * agents)
            return msgspec.structs.replace(sample, held_bytes=(held() - bytes_before) / agents)
    finally:
        tracemalloc.stop()


def run(agents: int) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(measure, agents, Path(folder))


CASES = (Case("active x1,000", partial(run, 1_000), "agents/s", short=False),)
