"""Opening an agent with a long log: what the first message after a restart waits for.

The log is written by real turns, so that its share of chunks and its snapshots are as they are in use. Then a fresh system on the
same folder opens the agent, and opens it again. Nothing is dropped from the page cache: this is a restart, not a reboot.

3,000 turns of 34 records make 6,000 messages that the model sees; 20,000 of them are what 100,000 records hold without any chunk.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import trio

from callboard import Agent, System
from callboard.storage.messages import Message, TextBlock

from .case import Case, Load
from .measure import Meter, Sample, folder_bytes
from .turns import Scripted, client

OPENS = 10


async def written(folder: Path, agent: Agent, turns: int) -> None:
    """Write the log: about 34 records a turn."""
    async with System.open(folder, agents=[agent]) as system:
        await client(await system.spawn(agent, id="long"), Load(1, turns), turns, [])


async def cut(folder: Path, agent: Agent, turns: int) -> None:
    """The same, and no time to close: what came after the last snapshot has to be folded."""
    with trio.CancelScope() as scope:
        async with System.open(folder, agents=[agent]) as system:
            await client(await system.spawn(agent, id="long"), Load(1, turns), turns, [])
            scope.cancel()
            await trio.sleep_forever()


async def remembered(folder: Path, agent: Agent, messages: int) -> None:
    """Write a log of nothing but messages."""
    text = "All of what was said, as long as an answer often is. " * 3
    history = [Message(f"m{i}", "user", (TextBlock(text),)) for i in range(messages)]
    async with System.open(folder, agents=[agent]) as system:
        await system.spawn(agent, id="long", history=history)


async def opened(folder: Path, agent: Agent) -> float:
    """Seconds from asking for the agent to knowing where it stands. What it leaves is what it found."""
    took = 0.0
    with trio.CancelScope() as scope:
        async with System.open(folder, agents=[agent]) as system:
            start = time.perf_counter()
            ref = await system.get("long")
            await ref.info()
            took = time.perf_counter() - start
            scope.cancel()
            await trio.sleep_forever()
    return took


async def measure(write: Callable[[Path, Agent, int], Awaitable[None]], size: int, folder: Path) -> Sample:
    """One sample: the median and the slowest of ten openings, each by a new system."""
    agent = Agent("bench", model=Scripted(False), system="Be brief.", plugins=[])
    await write(folder, agent, size)
    with Meter() as meter:
        latencies = [await opened(folder, agent) for _ in range(OPENS)]
    return meter.sample(latencies, file_bytes=folder_bytes(folder))


def run(write: Callable[[Path, Agent, int], Awaitable[None]], size: int) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(measure, write, size, Path(folder))


CASES = (
    Case("open 100 records", partial(run, written, 3), "opens/s"),
    Case("open 10,000 records", partial(run, written, 300), "opens/s", short=False),
    Case("open 100,000 records", partial(run, written, 3000), "opens/s", short=False),
    Case("open 100,000 records, cut", partial(run, cut, 3000), "opens/s", short=False),
    Case("open 20,000 messages", partial(run, remembered, 20_000), "opens/s", short=False),
)
