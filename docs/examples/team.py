"""A desk that writes: a planner with workers, an editor who sends work back, and a supervisor whose restarts stand in the log.

    python docs/examples/team.py "the coffee house"

Three things here are not left to a prompt. A worker cannot finish before the editor has accepted: it hands in by a tool, and the
tool asks the editor. A worker that fails is tried again without the planner's knowledge. And every message has an id, so that the
program may be killed at any moment and run again: work that is done is read from the logs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Callable

import msgspec
import trio

from callboard import Agent, Limits, System, ToolContext, delegate, tool
from callboard.storage import Store
from callboard.storage import events as e

EDITOR = "editor"


class Verdict(msgspec.Struct):
    """What the editor says of a draft."""

    accepted: bool
    notes: str = ""


@tool(replay="safe")  # run again after a crash, it asks under the same id: the editor answers once
async def hand_in(ctx: ToolContext, draft: str) -> str:
    """Hand in a draft. It is accepted, or comes back with notes: revise it then and hand it in again."""
    verdict: Verdict = (await ctx.ask(EDITOR, draft, timeout=600)).result()
    return "accepted" if verdict.accepted else f"sent back: {verdict.notes}"


editor = Agent(
    "editor",
    model="anthropic:claude",
    system="You edit a book; you remember what you have read. Accept only what is exact and new.",
    output=Verdict,
)
writer = Agent(
    "writer",
    model="openai:gpt-5-mini",
    system="Write one section. Hand it in until it is accepted; then answer with the accepted text and nothing else.",
    tools=[hand_in],
)
planner = Agent(
    "planner",
    model="openai:gpt-5",
    system="Split the topic into sections, give each to a writer, all at once; put together what comes back.",
    tools=[delegate(writer, restarts=(3, 60))],  # a writer that fails is put to work again, three times in a minute
    limits=Limits(children=20, depth=2, parallel=5),
)


async def write(topic: str, store: str | Store = "state", now: Callable[[], float] = time.time) -> tuple[str, list[str]]:
    """The text on a topic, and what happened on the way. Run it again after a kill: it goes on."""
    async with System.open(store, agents=[planner, writer, editor], now=now) as system:
        await system.spawn(editor, id=EDITOR)
        desk = await system.spawn(planner, id=f"desk/{topic}")
        outcome = await desk.ask(topic, message_id="go", timeout=1800)
        return outcome.result(), [line async for line in story(system, desk.id)]


async def story(system: System, desk: str) -> AsyncIterator[str]:
    """What happened at a desk, from the logs alone."""
    async for agent in system.agents(prefix=desk):
        ref = await system.get(agent.id)
        async for record in ref.read(types={"inbox/put", "tool/result", "turn/end"}):
            match record.event:
                case e.InboxPut(restarts=str()):
                    yield f"{agent.id}: the supervisor puts the task again"
                case e.ToolResult(content=[block, *_]) if str(getattr(block, "text", "")).startswith("sent back"):
                    yield f"{agent.id}: {getattr(block, 'text', '')}"
                case e.TurnEnd(turn=turn, reason=reason):
                    yield f"{agent.id}: turn {turn} {e.kind_of(reason)}"
                case _:
                    pass  # all that went as it should


if __name__ == "__main__":
    text, happened = trio.run(write, sys.argv[1] if len(sys.argv) > 1 else "the coffee house")
    print(text, *happened, sep="\n")
