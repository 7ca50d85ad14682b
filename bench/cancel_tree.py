"""Cancel of a root with three levels and a hundred descendants: until every log has its end, and nothing is left running.

Every agent waits: those above for their children, the lowest in the middle of a stream, in a tool, or for a program that a tool
runs. Afterwards the logs are looked at (ends of children before those of their parents, all aborted) and verified, and what the
process has is counted: as many tasks, threads and programs as before. The p50 is the time of a cancel; the rate counts the
building of the trees, too.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import trio

from callboard import Agent, System, ToolContext, delegate, tool
from callboard.actors import AgentRef, Model
from callboard.storage import chunks, verify
from callboard.storage.events import Aborted, ChildEnded, TurnEnd
from callboard.storage.messages import Chunk, Request

from .case import Case
from .measure import Meter, Sample

FAN = (4, 4, 5)
"""Children of the root, of each of them, and of each of those: 4 + 16 + 80."""
TREES, LONGEST_S = 3, 30.0


class Splits(Model):
    """Gives a task to each of its children at once; the lowest say half a sentence, or use a tool, by the number of the task."""

    provider, name = "bench", "splits"

    def __init__(self, children: int) -> None:
        self._children = children

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """As many calls as there are children; or something that does not end."""
        number = int(request.messages[-1].text)
        if self._children:
            calls = [(request.tools[0].name, f'{{"task": "{i}"}}') for i in range(self._children)]
        else:
            calls = [] if number % 3 == 0 else [(("wait", "program")[number % 3 - 1], "{}")]
        for index, (name, arguments) in enumerate(calls):
            yield chunks.block_start(index, "tool-call")
            yield chunks.tool_call_delta(index, id=f"c{index}", name=name, arguments=arguments)
            yield chunks.block_end(index)
        if not calls:
            yield chunks.block_start(0, "text")
            yield chunks.text_delta(0, "Half of")
            await trio.sleep_forever()
        yield chunks.usage(input=10, output=20)
        yield chunks.finish("tool-calls")


@tool
async def wait() -> str:
    """Wait for what never comes."""
    await trio.sleep_forever()
    return ""


@tool
async def program(ctx: ToolContext) -> str:
    """Run a program that takes an hour."""
    await ctx.process("sleep", "3600")
    return ""


def family(fan: tuple[int, ...] = FAN) -> Agent:
    """The definition of the root, with those below it."""
    below = Agent("level-0", model=Splits(0), tools=[wait, program], plugins=[])
    for level, children in enumerate(reversed(fan), 1):
        below = Agent(f"level-{level}", model=Splits(children), tools=[delegate(below)], plugins=[])
    return below


def size(fan: tuple[int, ...]) -> int:
    """How many descendants the root has."""
    return fan[0] * (1 + size(fan[1:])) if fan else 0


def programs() -> set[str]:
    """Programs that this process has started and that still run; nothing where there is no /proc."""
    return {pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text(encoding="ascii").split()}


async def busy(system: System, ref: AgentRef, fan: tuple[int, ...]) -> list[str]:
    """Return when everybody below the root waits for something that does not come; their ids."""
    with trio.fail_after(LONGEST_S):
        while True:
            ids = [a.id async for a in system.agents() if a.id.startswith(ref.id) and a.id != ref.id]
            if len(ids) == size(fan) and all([(await (await system.get(id)).info()).waits for id in ids]):
                return ids
            await trio.sleep(0.02)


async def ended(ref: AgentRef) -> None:
    """Check one log: its end comes after the ends of all children, and is an abort."""
    events = [record.event async for record in ref.read()]
    ends = [i for i, event in enumerate(events) if isinstance(event, TurnEnd)]
    children = [i for i, event in enumerate(events) if isinstance(event, ChildEnded)]
    if len(ends) != 1 or any(i > ends[0] for i in children):
        raise AssertionError(f"the log of {ref.id} does not end after its children")
    end = events[ends[0]]
    if not isinstance(end, TurnEnd) or not isinstance(end.reason, Aborted):
        raise AssertionError(f"the log of {ref.id} ends with {end!r}")


async def cancelled(system: System, ref: AgentRef, fan: tuple[int, ...]) -> float:
    """Seconds from the cancel of a busy tree to its rest."""
    tasks, threads, running = trio.lowlevel.current_statistics().tasks_living, set(threading.enumerate()), programs()
    await ref.followup("0")
    ids = await busy(system, ref, fan)
    threads |= set(threading.enumerate())
    start = time.perf_counter()
    await ref.cancel("user")
    await ref.wait_idle()
    took = time.perf_counter() - start
    left = trio.lowlevel.current_statistics().tasks_living - tasks
    if left or programs() - running or set(threading.enumerate()) - threads:
        raise AssertionError(f"a cancelled tree left {left} tasks and the programs {programs() - running}")
    for id in (ref.id, *ids):
        await ended(await system.get(id))
    return took


async def measure(fan: tuple[int, ...], trees: int, folder: Path) -> Sample:
    """One sample: tree after tree."""
    root, latencies = family(fan), list[float]()
    async with System.open(folder, agents=[root]) as system:
        with Meter() as meter:
            for i in range(trees):
                latencies.append(await cancelled(system, await system.spawn(root, id=f"root-{i}"), fan))
        report = await verify(system.store)
        if not report.ok:
            raise AssertionError(str(report.problems))
        return meter.sample(latencies)


def run(fan: tuple[int, ...], trees: int) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(measure, fan, trees, Path(folder))


CASES = (Case("cancel a tree of 100", partial(run, FAN, TREES), "trees/s", short=False),)
