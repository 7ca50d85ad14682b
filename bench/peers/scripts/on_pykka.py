"""pykka: an actor, which is a thread, answers a message; nothing is durable, and there is no model, no stream, no tool of its
own."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pykka
from turns import CHUNKS, HELLO, TOOL_RESULT, USE_THE_TOOL, arguments, measure


class Tool(pykka.ThreadingActor):
    """The tool, an actor too."""

    def on_receive(self, message: Any) -> str:
        """Look something up."""
        return TOOL_RESULT


class Bench(pykka.ThreadingActor):
    """An actor with a history."""

    def __init__(self, tool: Any) -> None:
        super().__init__()
        self._history: list[str] = []
        self._tool = tool

    def on_receive(self, message: Any) -> str:
        """One turn."""
        self._history.append(message)
        if message == USE_THE_TOOL:
            self._history.append(self._tool.ask("?"))
        self._history.append("".join(chunk for chunk in CHUNKS))
        return self._history[-1]


async def main() -> None:
    """One sample."""
    _, agents, turns, with_tool = arguments()
    tool_actor, actors, loop = Tool.start(), dict[str, Any](), asyncio.get_running_loop()
    pool = ThreadPoolExecutor(max(agents, 8))

    async def turn(name: str, tool: bool) -> str:
        if name not in actors:
            actors[name] = Bench.start(tool_actor)
        return str(await loop.run_in_executor(pool, actors[name].ask, USE_THE_TOOL if tool else HELLO))

    await measure(turn, agents, turns, with_tool)
    pykka.ActorRegistry.stop_all()


asyncio.run(main())
