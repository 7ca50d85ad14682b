"""A year of chat: one agent, 20,000 turns, every third with a tool, under a small window with compaction on.

What has to stay as it is from the first thousand turns to the last: memory, the size of requests, and what a turn costs. The
model counts every request by a tokenizer of its own, which the agent does not know and has to learn from its reports, and refuses
one that does not fit its window; more than a few refusals in a year fail the case, and so does a log that does not verify. *last
to first* is the CPU of the last twentieth of the turns (a thousand of 20,000) for each second of the first.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import msgspec
import trio

from callboard import Agent, System, tool
from callboard.actors import Model, ModelError, Prepared
from callboard.actors.plugins import Compaction, Retry
from callboard.storage import Store, chunks, open_store, verify
from callboard.storage.messages import Chunk, Message, Request

from .case import Case
from .measure import Meter, Sample, folder_bytes, resident_mb

WINDOW = 8_000
PARTS = 20
"""So many parts of the year are compared."""
REFUSED = 5
"""So many requests may be refused as too long until the agent has learned how its model counts."""
ANSWER = "That is a good question. It depends on the weather, on the season, and on how much time there is. " * 4
NOTES = "Rain in the morning, wind from the west, twelve degrees, clearing up towards the evening. " * 8


@tool(replay="safe")
async def notes(day: int) -> str:
    """Read the notes of a day."""
    return f"Day {day}: {NOTES}"


def counted(message: Message) -> int:
    """Tokens of a message as this model has them: dearer than anybody would guess."""
    texts = [message.text, *(call.arguments for call in message.calls)]
    return 6 + sum(len(text.encode()) for text in texts) * 2 // 5


class Talker(Model):
    """Answers; asks for the notes first if the question ends with a number that three divides."""

    provider, name = "bench", "talker"

    def __init__(self) -> None:
        self.largest, self.refused, self.requests = 0, 0, 0

    def prepare(self, request: Request) -> Prepared:
        """Say how much fits."""
        return Prepared(request, context_window=WINDOW)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Count, refuse what does not fit, and answer the rest."""
        size = sum(map(counted, request.messages)) + 200
        self.requests += 1
        if size > WINDOW:
            self.refused += 1
            raise ModelError("CONTEXT_OVERFLOW", f"{size} tokens do not fit into {WINDOW}")
        self.largest = max(self.largest, size)
        last = request.messages[-1]
        number = int(last.text.rpartition(" ")[2]) if last.role == "user" else 1
        if number % 3 == 0:
            yield chunks.block_start(0, "tool-call")
            yield chunks.tool_call_delta(0, id="call", name="notes", arguments=f'{{"day": {number}}}')
            yield chunks.block_end(0)
            yield chunks.usage(input=size, output=20)
            yield chunks.finish("tool-calls")
            return
        yield chunks.block_start(0, "text")
        for at in range(0, len(ANSWER), 40):
            yield chunks.text_delta(0, ANSWER[at : at + 40])
        yield chunks.block_end(0)
        yield chunks.usage(input=size, output=len(ANSWER) // 4)
        yield chunks.finish("stop")


async def talk(system: System, agent: Agent, turns: int) -> tuple[list[float], list[float], list[float]]:
    """All turns: what each took, what each twentieth of them cost in CPU, and what memory the process had after it."""
    ref = await system.spawn(agent, id="year")
    latencies: list[float] = []
    costs: list[float] = []
    memory: list[float] = []
    for part in range(PARTS):
        began = time.process_time()
        for number in range(part * turns // PARTS + 1, (part + 1) * turns // PARTS + 1):
            start = time.perf_counter()
            outcome = await ref.ask(f"What should I do today, and what comes after that? It is day {number}")
            latencies.append(time.perf_counter() - start)
            if outcome.text != ANSWER:
                raise AssertionError(f"turn {number} gave {outcome!r}")
        costs.append(time.process_time() - began)
        memory.append(resident_mb())
    return latencies, costs, memory


async def live(turns: int, store: Store) -> Sample:
    """The year, and then every request of it rebuilt."""
    model = Talker()
    agent = Agent("bench", model=model, system="Be brief.", tools=[notes], plugins=[Retry(), Compaction()])
    with Meter() as meter:
        async with System.open(store, agents=[agent]) as system:
            latencies, costs, memory = await talk(system, agent, turns)
    sample = meter.sample(latencies)
    report = await verify(store)
    if not report.ok or report.requests != model.requests:
        raise AssertionError(f"{report.requests} of {model.requests} requests rebuilt: {report.problems[:3]}")
    if model.refused > REFUSED:
        raise AssertionError(f"{model.refused} requests did not fit into the window")
    grown = memory[-1] - memory[0]
    return msgspec.structs.replace(sample, last_to_first=costs[-1] / costs[0], largest=model.largest, grown_mb=grown)


async def measure(turns: int, folder: Path) -> Sample:
    """One sample, on disk."""
    async with open_store(folder) as store:
        sample = await live(turns, store)
    return msgspec.structs.replace(sample, file_bytes=folder_bytes(folder) / turns)


def run(turns: int) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(measure, turns, Path(folder))


CASES = (
    Case("year of chat x2,000", partial(run, 2_000)),
    Case("year of chat x20,000", partial(run, 20_000), short=False),
)
