"""The application that `p05_tests.py` tests: an agent that plans trips, with a tool that asks a weather service."""

from __future__ import annotations

from typing import Protocol

from callboard import Agent, ToolContext, tool


class Weather(Protocol):
    """What the tool needs of the world; a test has its own."""

    async def today(self, city: str) -> str:
        """The weather in one word."""
        ...


@tool(replay="safe")
async def lookup(ctx: ToolContext[Weather], city: str) -> str:
    """Today's weather in a city."""
    return await ctx.deps.today(city)


planner = Agent("planner", model="openai:gpt-5", system="You plan trips.", tools=[lookup])
