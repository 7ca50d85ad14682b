"""Listings are plain iterators: who breaks off leaves nothing behind, and nobody is left out or listed twice."""

from __future__ import annotations

from callboard import Agent, System

AGENT = Agent("a", model="m:x", plugins=[])


async def test_breaking_off_leaves_nothing_open() -> None:
    async with System.open(":memory:", agents=[AGENT]) as system:
        for number in range(3):
            await system.spawn(AGENT, id=f"t{number}")
        async for agent in system.agents():
            assert agent.id == "t0"
            break
        async for _ in system.approvals():
            break


async def test_every_page_is_listed_once_in_order_and_the_end_stays_the_end() -> None:
    async with System.open(":memory:", agents=[AGENT]) as system:
        ids = [f"t{number:03}" for number in range(205)]
        for id in ids:
            await system.spawn(AGENT, id=id)
        listing = system.agents("t")
        assert [agent.id async for agent in listing] == ids
        assert [agent.id async for agent in listing] == []
        assert [agent.id async for agent in system.agents("t", after="t200")] == ids[201:]
