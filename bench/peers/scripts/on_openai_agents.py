"""openai-agents: Runner.run_streamed with a scripted model; `sqlite` keeps a session for each agent in a file, `memory` keeps
none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.models.interface import Model
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)
from turns import ANSWER, CHUNKS, HELLO, TOOL_RESULT, USE_THE_TOOL, arguments, folder, measure

set_tracing_disabled(True)


class Scripted(Model):
    """Twenty chunks; or a call, if it is asked for one."""

    calls = 0

    async def get_response(self, *given: Any, **options: Any) -> Any:
        """Nobody asks for a whole answer here."""
        raise AssertionError("every run is streamed")

    async def stream_response(self, system: Any, given: Any, *rest: Any, **options: Any) -> AsyncIterator[Any]:
        """The events of one response."""
        self.calls += 1
        last = given if isinstance(given, str) else given[-1]
        item: Any
        if (last if isinstance(last, str) else last.get("content")) == USE_THE_TOOL:
            item = ResponseFunctionToolCall(
                type="function_call",
                name="lookup",
                arguments='{"question": "?"}',
                call_id=f"c{self.calls}",
                id=f"f{self.calls}",
            )
        else:
            for number, chunk in enumerate(CHUNKS):
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta",
                    delta=chunk,
                    content_index=0,
                    item_id="m",
                    output_index=0,
                    sequence_number=number,
                    logprobs=[],
                )
            text = ResponseOutputText(type="output_text", text=ANSWER, annotations=[])
            item = ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[text])
        response = Response(
            id=f"r{self.calls}",
            created_at=0,
            model="scripted",
            object="response",
            output=[item],
            tool_choice="none",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(type="response.completed", sequence_number=99, response=response)


@function_tool
def lookup(question: str) -> str:
    """Look something up."""
    return TOOL_RESULT


async def main() -> None:
    """One sample."""
    memory, agents, turns, with_tool = arguments()
    disk = folder() if memory == "sqlite" else None
    agent = Agent(name="bench", model=Scripted(), tools=[lookup])
    sessions: dict[str, SQLiteSession] = {}

    async def turn(name: str, tool: bool) -> str:
        if disk is not None and name not in sessions:
            sessions[name] = SQLiteSession(name, disk / "sessions.sqlite")
        running = Runner.run_streamed(agent, USE_THE_TOOL if tool else HELLO, session=sessions.get(name))
        said: list[str] = []
        async for event in running.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                said.append(event.data.delta)
        return "".join(said)

    await measure(turn, agents, turns, with_tool, disk=disk)
    for session in sessions.values():
        session.close()


asyncio.run(main())
