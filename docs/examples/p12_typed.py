"""Types all the way: dependencies checked at open, results and answers that are structs, errors written for the model."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import trio

from callboard import Agent, System, ToolContext, ToolError, tool


class Hotel(msgspec.Struct):
    """What the tool answers with; the model reads it as JSON."""

    name: str
    price: int


class Database:
    """Stands for a real one."""

    async def hotels(self, city: str) -> list[Hotel]:
        """The hotels of a city; none if it is unknown."""
        return {"Bergen": [Hotel("Bryggen", 140)]}.get(city, [])


@dataclass
class Deps:
    """What the tools need of the world."""

    db: Database


class Trip(msgspec.Struct):
    """What the agent answers with; a turn completes only with one."""

    city: str
    nights: int


@tool(replay="safe")
async def hotels(ctx: ToolContext[Deps], city: str) -> list[Hotel]:
    """Hotels of a city."""
    rows = await ctx.deps.db.hotels(city)
    if not rows:
        raise ToolError(f"No hotels in {city!r}; try a bigger city nearby.")  # text for the model, no traceback
    return rows


planner: Agent[Deps, Trip] = Agent("planner", model="openai:gpt-5", tools=[hotels], output=Trip, deps=Deps)


async def main() -> None:
    """Ask once; a second run of this program reads the same answer from the store."""
    async with System.open("state", agents=[planner], deps=Deps(Database())) as system:  # deps of another class: TypeError
        ref = await system.spawn(planner, id="t")
        trip = (await ref.ask("Two nights in Bergen", message_id="first")).result()  # a Trip, known to mypy and pyright
        print(f"{trip.nights} nights in {trip.city}")


if __name__ == "__main__":
    trio.run(main)
