"""One agent with one tool, asked once from a plain script."""

from __future__ import annotations

from callboard import Agent, run_sync, tool


@tool(replay="safe")
async def weather(city: str) -> str:
    """Today's weather in a city."""
    return f"sunny in {city}"


agent = Agent("hello", model="openai:gpt-5", system="Be brief.", tools=[weather])

if __name__ == "__main__":
    print(run_sync(agent, "What should I wear in Oslo?").result())  # in memory; store="state", id="me" makes it durable
