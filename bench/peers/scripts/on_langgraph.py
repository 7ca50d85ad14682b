"""LangGraph: its model-and-tools loop with a checkpointer; `sqlite` is the async saver with durability="sync"."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from turns import ANSWER, CHUNKS, HELLO, TOOL_RESULT, USE_THE_TOOL, Turn, arguments, folder, measure


class Scripted(BaseChatModel):
    """Twenty chunks; or a call, if it is asked for one."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=AIMessage(ANSWER))])

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        if messages[-1].content == USE_THE_TOOL:
            call = {"name": "lookup", "args": '{"question": "?"}', "id": f"c{len(messages)}", "index": 0}
            yield ChatGenerationChunk(message=AIMessageChunk("", tool_call_chunks=[call]))
            return
        for chunk in CHUNKS:
            yield ChatGenerationChunk(message=AIMessageChunk(chunk))


@tool
def lookup(question: str) -> str:
    """Look something up."""
    return TOOL_RESULT


def graph(saver: Any) -> Any:
    """The loop."""
    model = Scripted()

    async def ask(state: Any) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    building = StateGraph(MessagesState)
    building.add_node("model", ask)
    building.add_node("tools", ToolNode([lookup]))
    building.add_edge(START, "model")
    building.add_conditional_edges("model", tools_condition)
    building.add_edge("tools", "model")
    return building.compile(checkpointer=saver)


def turns_of(compiled: Any) -> Turn:
    """A turn is one run of the graph in the agent's thread."""

    async def turn(agent: str, tool: bool) -> str:
        given = {"messages": [("user", USE_THE_TOOL if tool else HELLO)]}
        options = {"configurable": {"thread_id": agent}}
        said: list[str] = []
        async for message, _ in compiled.astream(given, options, stream_mode="messages", durability="sync"):
            if message.type.startswith("AIMessage"):
                said.append(message.content)
        return "".join(said)

    return turn


async def main() -> None:
    """One sample."""
    memory, agents, turns, tool = arguments()
    if memory == "memory":
        await measure(turns_of(graph(InMemorySaver())), agents, turns, tool)
        return
    disk = folder()
    async with AsyncSqliteSaver.from_conn_string(str(disk / "checkpoints.sqlite")) as saver:
        await measure(turns_of(graph(saver)), agents, turns, tool, disk=disk)


asyncio.run(main())
