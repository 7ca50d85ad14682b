"""autogen-core: an agent of its single-threaded runtime answers a message; nothing is durable, no model abstraction is in the
way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from autogen_core import AgentId, MessageContext, RoutedAgent, SingleThreadedAgentRuntime, message_handler
from turns import CHUNKS, HELLO, TOOL_RESULT, USE_THE_TOOL, arguments, measure


@dataclass
class Question:
    """What the user said."""

    text: str


@dataclass
class Lookup:
    """A call of the tool."""

    question: str


@dataclass
class Answer:
    """What came of either."""

    text: str


async def scripted(history: list[str]) -> AsyncIterator[str | None]:
    """Twenty chunks; or None for a call, if it is asked for one."""
    if history[-1] == USE_THE_TOOL:
        yield None
        return
    for chunk in CHUNKS:
        yield chunk


class Bench(RoutedAgent):
    """An agent with a history."""

    def __init__(self) -> None:
        super().__init__("bench")
        self._history: list[str] = []

    @message_handler
    async def ask(self, message: Question, ctx: MessageContext) -> Answer:
        """One turn."""
        self._history.append(message.text)
        while True:
            said = [chunk async for chunk in scripted(self._history)]
            if None not in said:
                self._history.append("".join(chunk for chunk in said if chunk is not None))
                return Answer(self._history[-1])
            result = await self.send_message(Lookup("?"), AgentId("tool", "0"))
            self._history.append(result.text)


class Tool(RoutedAgent):
    """The tool, an agent too."""

    def __init__(self) -> None:
        super().__init__("tool")

    @message_handler
    async def look_up(self, message: Lookup, ctx: MessageContext) -> Answer:
        """Look something up."""
        return Answer(TOOL_RESULT)


async def main() -> None:
    """One sample."""
    _, agents, turns, with_tool = arguments()
    runtime = SingleThreadedAgentRuntime()
    await Bench.register(runtime, "bench", Bench)
    await Tool.register(runtime, "tool", Tool)
    runtime.start()

    async def turn(name: str, tool: bool) -> str:
        answer = await runtime.send_message(Question(USE_THE_TOOL if tool else HELLO), AgentId("bench", name))
        return str(answer.text)

    await measure(turn, agents, turns, with_tool)
    await runtime.stop_when_idle()


asyncio.run(main())
