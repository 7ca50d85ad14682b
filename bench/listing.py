"""Many agents on disk: a page of the listing, and opening one, beside the same with a hundredth of them.

The agents are written straight into the store, each with the first records of a life. Pages and agents are taken from all over
the ids, so that nothing is in memory because the last look was at its neighbour.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from callboard import Agent, System
from callboard.storage.events import LogCreated, UserMessage
from callboard.storage.messages import Message, TextBlock
from callboard.storage.opening import open_store
from callboard.storage.records import FORMAT, Record
from callboard.storage.store import Batch, Store, Summary

from .appends import commit
from .case import Case
from .measure import Meter, Sample, folder_bytes
from .turns import Scripted

PAGE, LOOKS, AT_ONCE = 100, 200, 1_000


def name(number: int) -> str:
    """The id of an agent."""
    return f"agent-{number:06d}"


async def written(store: Store, agents: int) -> None:
    """All agents, in big commits."""
    for start in range(0, agents, AT_ONCE):
        await commit(store, [[await first_batch(store, name(i))] for i in range(start, min(start + AT_ONCE, agents))])


async def first_batch(store: Store, id: str) -> Batch:
    """The beginning of a log."""
    created = LogCreated(format=FORMAT, agent=id, name="bench", labels={"customer": id[-2:]})
    message = UserMessage(message=Message("m", "user", (TextBlock("Remember that I take my tea without milk."),)))
    items = [Record(seq, 1_764_500_000_000, event) for seq, event in enumerate((created, message))]
    return Batch(id, await store.own(id), -1, items, Summary(name="bench", labels=created.labels))


async def page(system: System, after: str) -> None:
    """One page behind an id."""
    found = await system.store.agents(after=after, limit=PAGE)
    if len(found) != PAGE:
        raise AssertionError(f"a page behind {after} has {len(found)} agents")


async def opened(system: System, id: str) -> None:
    """Open an agent, to know where it stands."""
    info = await (await system.get(id)).info()
    if info.definition != "bench":
        raise AssertionError(f"{id} is {info!r}")


async def measure(agents: int, look: Callable[[System, str], Awaitable[None]], folder: Path) -> Sample:
    """One sample: a fresh system, and looks all over the ids."""
    agent = Agent("bench", model=Scripted(False), plugins=[])
    async with open_store(folder) as store:
        await written(store, agents)
    latencies, places = list[float](), random.Random(17)
    async with System.open(folder, agents=[agent]) as system:
        with Meter() as meter:
            for number in places.sample(range(agents - PAGE), LOOKS):
                start = time.perf_counter()
                await look(system, name(number))
                latencies.append(time.perf_counter() - start)
        return meter.sample(latencies, file_bytes=folder_bytes(folder) // agents * LOOKS)


def run(agents: int, look: Callable[[System, str], Awaitable[None]]) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(measure, agents, look, Path(folder))


CASES = tuple(
    Case(f"{what} of {agents:,} agents", partial(run, agents, look), f"{what}s/s", short=False)
    for what, look in (("page", page), ("open", opened))
    for agents in (1_000, 100_000)
)
