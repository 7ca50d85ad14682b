"""The initiator: each agent's tasks see that agent, and nothing of who started them."""

from __future__ import annotations

import contextvars

import trio
from trio.testing import wait_all_tasks_blocked

from callboard.actors.initiator import current_initiator, start_fresh

leak: contextvars.ContextVar[str] = contextvars.ContextVar("leak", default="nothing")


async def test_c189_two_agents_at_once_each_see_themselves() -> None:
    seen: list[tuple[str, str | None]] = []

    async def work(agent: str, gate: trio.Event) -> None:
        seen.append((agent, current_initiator()))
        await gate.wait()
        seen.append((agent, current_initiator()))

    gate = trio.Event()
    async with trio.open_nursery() as nursery:
        start_fresh(nursery, work, "a", gate, initiator="a")
        start_fresh(nursery, work, "b", gate, initiator="b")
        await wait_all_tasks_blocked()
        gate.set()
    assert len(seen) == 4
    assert all(agent == initiator for agent, initiator in seen)
    assert current_initiator() is None


async def test_c189_a_task_started_by_an_agents_work_carries_nothing_of_it() -> None:
    seen: list[tuple[str | None, str]] = []

    async def other() -> None:
        seen.append((current_initiator(), leak.get()))

    async def first(nursery: trio.Nursery) -> None:
        leak.set("a secret of the first")
        start_fresh(nursery, other, initiator="b")
        start_fresh(nursery, other, initiator=None)

    async with trio.open_nursery() as nursery:
        start_fresh(nursery, first, nursery, initiator="a")
    assert sorted(seen, key=str) == [("b", "nothing"), (None, "nothing")]


async def test_a_task_started_inside_stays_with_its_agent() -> None:
    seen: list[str | None] = []

    async def inner() -> None:
        seen.append(current_initiator())

    async def outer() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(inner)

    async with trio.open_nursery() as nursery:
        start_fresh(nursery, outer, initiator="a", name="driver of a")
    assert seen == ["a"]
