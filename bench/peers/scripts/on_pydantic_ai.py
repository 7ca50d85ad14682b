"""pydantic-ai with a streaming function for a model; histories are kept in a dictionary, nothing is durable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from turns import CHUNKS, HELLO, TOOL_RESULT, USE_THE_TOOL, arguments, measure


async def scripted(messages: Any, info: Any) -> AsyncIterator[Any]:
    """Twenty chunks; or a call, if it is asked for one."""
    last = messages[-1].parts[-1]
    if last.part_kind == "user-prompt" and last.content == USE_THE_TOOL:
        yield {0: DeltaToolCall(name="lookup", json_args='{"question": "?"}', tool_call_id=f"c{len(messages)}")}
        return
    for chunk in CHUNKS:
        yield chunk


agent = Agent(FunctionModel(stream_function=scripted))


@agent.tool_plain
def lookup(question: str) -> str:
    """Look something up."""
    return TOOL_RESULT


async def main() -> None:
    """One sample."""
    _, agents, turns, with_tool = arguments()
    histories: dict[str, Any] = {}

    async def turn(name: str, tool: bool) -> str:
        async with agent.run_stream(USE_THE_TOOL if tool else HELLO, message_history=histories.get(name)) as run:
            said = [text async for text in run.stream_text(delta=True, debounce_by=None)]
        histories[name] = run.all_messages()
        return "".join(said)

    await measure(turn, agents, turns, with_tool)


asyncio.run(main())
