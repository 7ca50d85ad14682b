"""A team, led in two ways: by a model that delegates, or by code whose ids make it durable. Kill either and run it again."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
import trio

from callboard import Agent, Limits, System, delegate, tool
from callboard.storage import Store


class Finding(msgspec.Struct):
    """What a worker comes back with."""

    claim: str
    sources: list[str]


class Review(msgspec.Struct):
    """What the reviewer says of a finding."""

    verdict: str  # "accept" | "again"
    notes: str = ""


@tool(replay="safe")
async def search(words: str) -> list[str]:
    """Addresses of pages about these words."""
    return [f"https://example.org/{'-'.join(words.lower().split())}"]


@tool(replay="safe")
async def fetch(address: str) -> str:
    """The text of a page."""
    return f"All about {address.rpartition('/')[2].replace('-', ' ')}."


worker = Agent("worker", model="openai:gpt-5-mini", system="Research one question.", tools=[search, fetch], output=Finding)
reviewer = Agent("reviewer", model="anthropic:claude", system="Be strict.", output=Review)
planner = Agent(
    "planner",
    model="openai:gpt-5",
    system="Split the topic into 5 questions; delegate them all at once; ask the reviewer; send weak ones back.",
    tools=[delegate(worker, restarts=(3, 60)), delegate(reviewer)],  # a worker that fails is tried again, 3 times in a minute
    limits=Limits(children=20, depth=2, parallel=5),
)


async def by_model(topic: str, store: str | Store = "state", now: Callable[[], float] = time.time) -> str:
    """The model leads: one ask. Run again after a kill, it re-attaches."""
    async with System.open(store, agents=[planner, worker, reviewer], now=now) as system:
        ref = await system.spawn(planner, id=f"topic/{topic}")
        return (await ref.ask(topic, message_id="go", timeout=1800)).result()


async def by_code(topic: str, questions: list[str], store: str | Store = "state") -> list[Finding]:
    """Code leads, durable because every id is chosen: run it again and finished work is read, not redone."""
    async with System.open(store, agents=[worker, reviewer]) as system:
        done: dict[int, Finding] = {}

        async def one(i: int, question: str) -> None:
            w = await system.spawn(worker, id=f"{topic}/w{i}", labels={"topic": topic})
            r = await system.spawn(reviewer, id=f"{topic}/r{i}", labels={"topic": topic})
            text = question
            for n in range(3):
                found = (await w.ask(text, message_id=f"try{n}")).result()
                review = (await r.ask(msgspec.json.encode(found).decode(), message_id=f"try{n}")).result()
                done[i] = found
                if review.verdict == "accept":
                    return
                text = f"Again, please: {review.notes}"  # goes into the same worker: it remembers

        async with trio.open_nursery() as nursery:
            for i, question in enumerate(questions):
                nursery.start_soon(one, i, question)
        return [done[i] for i in sorted(done)]


if __name__ == "__main__":
    print(trio.run(by_model, "coffee"))
    for finding in trio.run(by_code, "tea", ["Where does it grow?", "Who drinks it?"]):
        print(finding.claim, *finding.sources)
