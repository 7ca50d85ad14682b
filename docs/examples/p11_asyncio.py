"""Agents in an asyncio program: its tools use the program's own pool, and nothing of trio is to be seen."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from callboard import Agent, ToolContext, tool
from callboard.net.aio import System  # the same surface; a trio thread behind it; no trio to learn


class Pool:
    """Stands for a pool of database connections: it works on the loop that made it, and on no other."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    async def fetch(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """The rows."""
        assert asyncio.get_running_loop() is self._loop
        await asyncio.sleep(0)
        return [{"order": 17, "customer": value, "state": "shipped"} for value in values]


class Deps:
    """What the tools need."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool


@tool(replay="safe", loop="asyncio")  # runs on the loop that opened the system (asyncpg, aiokafka, ...)
async def orders(ctx: ToolContext[Deps], customer: str) -> list[dict[str, Any]]:
    """The orders of a customer."""
    return await ctx.deps.pool.fetch("select ...", customer)


@tool(replay="safe")
def parse(path: str) -> str:  # a plain def: a worker thread
    """What a file says, shortened."""
    return json.dumps(Path(path).read_text(encoding="utf-8")[:100])


agent = Agent("desk", model="openai:gpt-5", system="Answer briefly.", tools=[orders, parse], deps=Deps)


async def main() -> None:
    """One question, shown while it is answered; or why it was not."""
    async with System.open("state", agents=[agent], deps=Deps(Pool())) as system:
        ref = await system.spawn(agent, id="c-1")
        async for d in ref.deltas(after=(await ref.followup("Where is my order?")).seq):
            if d.kind == "text":
                print(d.text, end="")
            if d.kind == "end":
                outcome = await ref.outcome(turn=d.turn)
                if not outcome.ok:
                    print(outcome, file=sys.stderr)
                break  # safe without aclosing()


if __name__ == "__main__":
    asyncio.run(main())
