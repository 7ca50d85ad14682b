"""Reading a long log again: all of its records, and all of its requests rebuilt and compared with their digests.

Both are for people who ask what happened (`callboard log`, `callboard verify`); opening an agent reads far less (opening.py). The
rate is in records.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from callboard import Agent
from callboard.storage import Store, open_store, verify

from .case import Case
from .measure import Meter, Sample
from .opening import written
from .turns import Scripted

TURNS = 1_000


async def read(store: Store) -> int:
    """Every record, one after the other."""
    return sum([1 async for _ in store.read("long")])


async def verified(store: Store) -> int:
    """Every record folded, every request rebuilt."""
    report = await verify(store)
    if not report.ok or report.requests < TURNS:
        raise AssertionError(f"{report.requests} requests of {TURNS} turns were rebuilt: {report.problems[:3]}")
    return report.records


async def measure(look: Callable[[Store], Awaitable[int]], folder: Path) -> Sample:
    """One sample, on a store that nobody runs."""
    await written(folder, Agent("bench", model=Scripted(False), system="Be brief.", plugins=[]), TURNS)
    async with open_store(folder, readonly=True) as store:
        with Meter() as meter:
            records = await look(store)
        return meter.sample([meter.wall_s / records] * records)


def run(look: Callable[[Store], Awaitable[int]]) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(measure, look, Path(folder))


CASES = (
    Case("replay, read", partial(run, read), "records/s", short=False),
    Case("replay, verify", partial(run, verified), "records/s", short=False),
)
