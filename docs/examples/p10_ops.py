"""Running it: why an agent waits, what another prompt would have said, one customer's data, a backup, new code."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import trio

from callboard import Agent, System
from callboard.actors import AgentRef, compare_runs
from callboard.storage import backup, export_log, open_store

planner = Agent("planner", model="openai:gpt-5", system="You plan trips.")
better = planner.replace(system="You plan trips. Never propose a night train.")


async def why(ref: AgentRef[str]) -> None:
    """What it waits for. From a shell: `callboard why state trip-42`."""
    info = await ref.info()  # .status .turn .step .pending .usage .labels .definition .waits
    print(f"{info.id} is {info.status}, turn {info.turn}, {info.pending} pending, {info.usage.total} tokens")
    for wait in info.waits:  # approval | model | model-slot | tool | child | ask | retry | commit | timer | definition
        print(wait.kind, wait.what, wait.since, wait.until)


async def what_if(ref: AgentRef[str], turn: int) -> AgentRef[str]:
    """Fork before the bad answer and run the same input under another prompt."""
    alt = await ref.fork(turn=turn, id=f"{ref.id}-alt", agent=better, rerun=True)
    print(await ref.outcome(turn=turn), await alt.outcome(turn=turn), sep="\n")
    print(await compare_runs(ref, alt))
    return alt


async def hand_over(system: System, customer: str, to: Path) -> None:
    """A customer's data: a file for each agent, and then nothing of it here."""
    async for agent in system.agents(labels={"customer": customer}):
        async with await trio.open_file(to / f"{quote(agent.id, safe='')}.jsonl", "wb") as file:
            await export_log(system.store, agent.id, file)  # the log; blobs by reference
        await system.delete(agent.id)  # with its children; forks keep what they share, mail in others' inboxes stays


async def save(to: str) -> None:
    """A live backup, from any process: `callboard backup state backup/today`."""
    async with open_store("state", readonly=True) as store:
        await backup(store, to)


async def main() -> None:
    """A day of operations."""
    async with System.open("state", agents=[planner]) as system:
        ref = await system.spawn(planner, id="trip-42", labels={"customer": "acme"})
        await ref.ask("Three days in Oslo", message_id="m1")
        await ref.ask("How do I get there?", message_id="m2")
        await ref.remind("Ask whether the tickets came", after_s=86_400, id="tickets")
        await why(ref)
        await what_if(ref, turn=2)
        system.define(better)  # live: from each agent's next boundary
        await save("backup")
        await hand_over(system, "acme", Path("."))
        print([agent.id async for agent in system.agents()])


if __name__ == "__main__":
    trio.run(main)
