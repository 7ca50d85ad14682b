"""The workload and the clock of every peer. Standard library alone: each script runs in its peer's environment.

A peer gives `turn(agent, tool)`, which takes one input for that agent, runs the scripted model (20 streamed chunks; with `tool`
a first call that asks for one tool), records what the peer records, and returns the text. The result of every turn is checked.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

CHUNKS = tuple(f"tok{i:02d} " for i in range(20))
ANSWER = "".join(CHUNKS)
TOOL_RESULT = "42"
HELLO, USE_THE_TOOL = "hello", "use the tool"

Turn = Callable[[str, bool], Awaitable[str]]


def arguments() -> tuple[str, int, int, bool]:
    """The kind of memory, agents, turns of each, with a tool."""
    memory, agents, turns, tool = sys.argv[1:5]
    return memory, int(agents), int(turns), tool == "1"


def folder() -> Path:
    """Where the peer may keep its files; the process that starts the scripts does not care what stays in a temporary folder."""
    return Path(tempfile.mkdtemp(prefix="callboard-peer-"))


async def measure(turn: Turn, agents: int, turns: int, tool: bool, *, disk: Path | None = None) -> None:
    """Warm up, then all agents at once, each one turn after the other; prints the sample."""
    for n in range(3):
        await turn(f"warm-{n}", False)
        await turn(f"warm-{n}", True)
    latencies: list[float] = []

    async def client(name: str) -> None:
        for _ in range(turns):
            start = time.perf_counter()
            text = await turn(name, tool)
            latencies.append(time.perf_counter() - start)
            if text != ANSWER:
                raise AssertionError(f"a turn gave {text!r}")

    size, written = _bytes(disk), _written()
    cpu, wall = time.process_time(), time.perf_counter()
    await asyncio.gather(*(client(f"agent-{n}") for n in range(agents)))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    count = len(latencies)
    sample = {
        "per_s": count / wall,
        "p50_ms": statistics.median(latencies) * 1e3,
        "p99_ms": sorted(latencies)[min(count - 1, int(0.99 * count))] * 1e3,
        "cpu_us": cpu / count * 1e6,
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "written_bytes": (_written() - written) / count,
    }
    if disk is not None:
        sample["file_bytes"] = (_bytes(disk) - size) / count
    print(json.dumps(sample))


def _bytes(disk: Path | None) -> int:
    return 0 if disk is None else sum(p.stat().st_blocks * 512 for p in disk.rglob("*") if p.is_file())


def _written() -> int:
    path = Path("/proc/self/io")
    if not path.exists():
        return 0
    return int(dict(line.split(": ") for line in path.read_text().splitlines())["wchar"])
