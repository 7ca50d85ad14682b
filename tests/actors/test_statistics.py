"""`system.statistics()`: every queue counted, the busiest agents shown, others by the beginning of their ids."""

from __future__ import annotations

from typing import Any

import trio
from helpers import make, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, Plugin, System, ToolContext, delegate, tool
from callboard.actors.statistics import BUSIEST, ActorStatistics
from callboard.actors.testing import Reply
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.testing import FaultyStore


def shown(system: System, id: str) -> ActorStatistics:
    """What is shown of one agent."""
    busiest: tuple[ActorStatistics, ...] = system.statistics(agents=id)["busiest"]
    (found,) = [each for each in busiest if each.id == id]
    return found


async def test_every_queue_is_counted(autojump_clock: MockClock) -> None:
    gate = trio.Event()

    class Slow(Plugin):
        async def on_event(self, ctx: Any, record: Any) -> None:
            if record.type == "step/start":
                await gate.wait()

    @tool(replay="safe", mode="parallel")
    async def wait(ctx: ToolContext[Any]) -> str:
        """Until the test says so."""
        await gate.wait()
        return "now"

    worker = Agent("worker", model=scripted(Reply.hang()), plugins=())
    calls = Reply.tools(("w", "wait", {}), ("c", "worker", {"task": "go"}))
    lead = make(scripted(calls, "done", "more"), tools=[wait, delegate(worker)])
    other = Agent("other", model=scripted(Reply.hang()), plugins=())
    async with System.open(":memory:", agents=[lead, other], plugins=[Slow()], model_slots=1, grace=0) as system:
        ref = await system.spawn(lead, id="a")
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await ref.followup("and then?")
        await ref.steer("quick")
        await ref.remind("later", after_s=3600)
        await (await system.spawn(other, id="b")).followup("hi")
        await wait_all_tasks_blocked()
        found = system.statistics()
        assert (found["agents"], found["running"], found["asleep"], found["bodies"]) == (3, 3, 0, 2)
        assert (found["pending"], found["schedule"], found["waits"], found["reviving"]) == (2, 1, 1, 0)
        assert found["models"] == {"scripted": {"streaming": 1, "queued": 1}}
        assert [slots["waiting"] for slots in found["model_slots"].values() if slots["waiting"]] == [1]
        assert found["observers"]["agents"] == 3 and found["observers"]["unseen"] > 3
        a = shown(system, "a")
        assert (a.status, a.turn, a.step, a.next_turn, a.next_step, a.bodies) == ("running", 1, 1, 1, 1, 2)
        assert a.unseen > 0 and a.waits == ("tool wait (w)", "child a/1.1.c")
        assert shown(system, "a/1.1.c").asked == 1, "its parent waits for the task"
        gate.set()


async def test_what_is_not_on_disk_and_who_waits_for_it() -> None:
    store = FaultyStore(MemoryStore())
    async with System.open(store, agents=[make(scripted("hello"))]) as system, trio.open_nursery() as nursery:
        ref = await system.spawn(system.definitions["demo"], id="a")
        store.hold()
        nursery.start_soon(ref.inject, "one")
        await wait_all_tasks_blocked()
        a = shown(system, "a")
        assert (a.uncommitted, a.committing, a.holds, a.waits) == (1, 1, 1, ("commit seq 1",))
        assert system.statistics()["uncommitted"] == 1
        store.release()
    assert a.status == "idle"


async def test_of_many_agents_the_busiest_are_shown_and_a_family_by_its_name() -> None:
    agent = make(scripted())
    async with System.open(":memory:", agents=[agent]) as system:
        for n in range(BUSIEST + 10):
            ref = await system.spawn(agent, id=f"a/{n:02}")
            for _ in range(n):
                await ref.inject("aside")
        busiest = system.statistics()["busiest"]
        assert [each.next_step for each in busiest] == list(range(BUSIEST + 9, 9, -1))
        assert [each.id for each in system.statistics(agents="a/0")["busiest"]] == [f"a/{n:02}" for n in range(10)]
        assert len(system.statistics(agents="")["busiest"]) == BUSIEST + 10
