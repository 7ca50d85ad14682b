"""A start after a crash: 1,000 agents are in the middle of an answer when their process is killed.

How long until all are taken up? The first process is a real one and its end a real SIGKILL. A turn is taken up when its model
is asked again, with all that the log needed for that (`turn/resume`, `request/failed`, `request/sent`) on disk. Every turn has to
end with its whole answer. *p50* and *p99* are of single turns, from the start of the second process's system; the rate is that
of the whole.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import trio

from callboard import Agent, System
from callboard.actors import AgentRef, Model
from callboard.storage.messages import Chunk, Request

from .case import ANSWER, Case
from .measure import Meter, Sample, folder_bytes
from .turns import TEXT

TOLD = "all are open"
LONGEST_S = 120.0


class Half(Model):
    """Says half of its answer and then nothing."""

    provider, name = "bench", "scripted"

    def __init__(self, agents: int) -> None:
        self._missing = agents
        self.all_open = trio.Event()

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Half of the chunks."""
        for chunk in TEXT[: len(TEXT) // 2]:
            yield chunk
        self._missing -= 1
        if not self._missing:
            self.all_open.set()
        await trio.sleep_forever()


class Whole(Model):
    """Says all of it, and keeps when it was asked."""

    provider, name = "bench", "scripted"

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.asked: list[float] = []

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """All chunks."""
        self.asked.append(time.perf_counter() - self.start)
        for chunk in TEXT:
            yield chunk


def definition(model: Model) -> Agent:
    """What all agents are, in both processes."""
    return Agent("bench", model=model, system="Be brief.", plugins=[])


async def begin(folder: str, agents: int) -> None:
    """The process that is killed: open all turns, say so, and wait for the end."""
    model = Half(agents)
    agent = definition(model)
    async with System.open(folder, agents=[agent], model_slots=agents) as system, trio.open_nursery() as nursery:
        for i in range(agents):
            nursery.start_soon(_one, system, agent, f"agent-{i}")
        await model.all_open.wait()
        await trio.sleep(0.5)  # chunks that nobody waits for are flushed within this time
        print(TOLD, flush=True)
        await trio.sleep_forever()


async def _one(system: System, agent: Agent, id: str) -> None:
    await (await system.spawn(agent, id=id)).followup("hello", message_id="m")


def killed(folder: Path, agents: int) -> None:
    """Run the first process until all turns are open, and kill it."""
    command = [sys.executable, "-m", "bench.restart", str(folder), str(agents)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).resolve().parent.parent) as process:
        assert process.stdout is not None
        said = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
        if said != TOLD:
            raise AssertionError(f"the first process said {said!r}")


async def measure(folder: Path, agents: int) -> Sample:
    """One sample of the second process."""
    model, size = Whole(), folder_bytes(folder)
    model.start = time.perf_counter()
    with Meter() as meter, trio.fail_after(LONGEST_S):
        async with System.open(folder, agents=[definition(model)]) as system, trio.open_nursery() as nursery:
            for i in range(agents):
                nursery.start_soon(ended, await system.get(f"agent-{i}"))
    return meter.sample(model.asked, file_bytes=folder_bytes(folder) - size)


async def ended(ref: AgentRef) -> None:
    """Wait for the turn that was cut, and check its answer."""
    outcome = await ref.outcome("m")
    if outcome.text != ANSWER:
        raise AssertionError(f"{ref.id} gave {outcome!r}")


def run(agents: int) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        killed(Path(folder), agents)
        return trio.run(measure, Path(folder), agents)


CASES = (Case("restart with 1,000 open turns", partial(run, 1_000), "turns/s", short=False),)

if __name__ == "__main__":
    trio.run(begin, sys.argv[1], int(sys.argv[2]))
