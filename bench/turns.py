"""Durable turns through the public API: `System.open` on a folder, `ask`, and the outcome's text checked.

Everything is logged and synced: every chunk, the header, the request's digest and every bracket. Default plugins are off, nobody
follows, and the model is a plain adapter that yields what it has. The floor does the same work with nothing around it.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import trio

from callboard import Agent, System, tool
from callboard.actors import AgentRef, Model
from callboard.storage import chunks
from callboard.storage.messages import Chunk, Request

from .case import ANSWER, CHUNKS, LOADS, SHORT, TOOL_RESULT, Case, Load
from .measure import Meter, Sample, folder_bytes

AIMS = {
    "turn x1": 0.65,
    "turn x200": 0.25,
    "tool x1": 0.65,
    "tool x200": 0.25,
    "paced turn x200": 0.9,
    "turn x200, gc server": 0.25,
}
"""The share of the floor that each load should reach."""


@tool(replay="never", mode="parallel")
async def lookup(question: str) -> str:
    """Look something up."""
    return TOOL_RESULT


TEXT: tuple[Chunk, ...] = (
    chunks.block_start(0, "text"),
    *(chunks.text_delta(0, text) for text in CHUNKS),
    chunks.block_end(0),
    chunks.usage(input=10, output=20),
    chunks.finish("stop"),
)
CALL: tuple[Chunk, ...] = (
    chunks.block_start(0, "tool-call"),
    chunks.tool_call_delta(0, id="call", name="lookup", arguments='{"question": "?"}'),
    chunks.block_end(0),
    chunks.usage(input=10, output=5),
    chunks.finish("tool-calls"),
)


class Scripted(Model):
    """Twenty chunks; if it is asked to use the tool, first a call."""

    provider, name = "bench", "scripted"

    def __init__(self, paced: bool) -> None:
        self._paced = paced

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """The next chunks of the script."""
        for chunk in CALL if request.messages[-1].text == "use the tool" else TEXT:
            if self._paced:
                await trio.lowlevel.checkpoint()
            yield chunk


async def client(ref: AgentRef, load: Load, turns: int, latencies: list[float]) -> None:
    """Ask again and again; check every answer."""
    for _ in range(turns):
        start = time.perf_counter()
        outcome = await ref.ask("use the tool" if load.tool else "hello")
        latencies.append(time.perf_counter() - start)
        if outcome.text != ANSWER:
            raise AssertionError(f"a turn gave {outcome!r}")


async def everyone(refs: list[AgentRef], load: Load, turns: int, latencies: list[float]) -> None:
    """All clients at once."""
    async with trio.open_nursery() as nursery:
        for ref in refs:
            nursery.start_soon(client, ref, load, turns, latencies)


async def measure(load: Load, folder: Path) -> Sample:
    """One sample: agents first, one turn each to warm up, then the clock."""
    agent = Agent("bench", model=Scripted(load.paced), system="Be brief.", tools=[lookup], plugins=[])
    latencies: list[float] = []
    async with System.open(folder, agents=[agent], gc=load.gc) as system:
        refs = [await system.spawn(agent, id=f"agent-{i}") for i in range(load.agents)]
        await everyone(refs, load, 1, [])
        before, size = flushes(system), folder_bytes(folder)
        with Meter() as meter:
            await everyone(refs, load, load.turns, latencies)
        return meter.sample(latencies, flushes=flushes(system) - before, file_bytes=folder_bytes(folder) - size)


def flushes(system: System) -> int:
    """Synced transactions of the system's store so far."""
    statistics: Mapping[str, Any] = system.store.statistics()
    return int(statistics["commits"])


def run(load: Load) -> Sample:
    """One sample of a load, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(measure, load, Path(folder))


CASES = tuple(
    Case(load.label, partial(run, load), against=f"floor {load.label}", aim=AIMS.get(load.label), short=i < SHORT)
    for i, load in enumerate(LOADS)
)
