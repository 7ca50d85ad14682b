"""Load and faults together: commits that fail under many agents, deletions in between, and a store that is slow to close.

What is asked is always the same: nobody waits for ever, the store is sound after it, and every agent comes back.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, cast

import pytest
import trio
import trio.testing
from helpers import check, make

from callboard import Agent, System, delegate
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import CallboardError, CommitFailed, StoreFull
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Request
from callboard.storage.store import Results, Unit


class Failing(MemoryStore):
    """Every nth commit fails, by turns for want of space and otherwise."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every, self.count = every, 0

    async def commit(self, units: Sequence[Unit]) -> Results:
        self.count += 1
        await trio.lowlevel.checkpoint()
        if self.every and self.count % self.every == 0:
            raise StoreFull("no space left") if self.count % 2 else CommitFailed("the disk said no")
        return await super().commit(units)


def parent() -> Agent[Any, Any]:
    """An agent that delegates once in each turn."""

    def answer(request: Request) -> Reply:
        return Reply.text("over") if request.messages[-1].role == "tool" else Reply.tools(("c1", "leaf", {"task": "do it"}))

    leaf = Agent("leaf", model=ScriptedModel(lambda request: Reply.text("done")), plugins=())
    return make(ScriptedModel(answer), tools=[delegate(leaf)])


@pytest.mark.parametrize("every", [2, 3, 7])
async def test_c013_commits_that_fail_under_load_leave_nobody_waiting(every: int, autojump_clock: Any) -> None:
    store, agent, rng = Failing(every), parent(), random.Random(every)

    async def use(system: System) -> None:
        for _ in range(12):
            try:
                ref = await system.spawn(agent, id=f"a{rng.randrange(8)}")
                match rng.randrange(5):
                    case 0:
                        await ref.followup("hi")
                    case 1:
                        await ref.cancel(keep_inbox=rng.random() < 0.5)
                    case 2:
                        await system.delete(ref.id)
                    case _:
                        await ref.ask("hi", timeout=5, on_cancel="cancel")
            except CallboardError:
                continue  # every one of them is a failure with a name; what counts is that none hangs

    with trio.fail_after(600):
        async with System.open(store, agents=[agent], grace=1) as system, trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(use, system)
    await check(store)
    store.every = 0
    with trio.fail_after(600):
        async with System.open(store, agents=[agent]) as system:
            assert not system.report.failed
            async for each in system.agents():
                await (await system.get(each.id)).wait_idle()
            assert (await (await system.spawn(agent, id="new")).ask("hi")).ok
    await check(store)


async def test_a_suspect_whose_log_fails_while_it_waits_for_its_turn_comes_back(autojump_clock: Any) -> None:
    agent = make(ScriptedModel(lambda request: Reply.hang()))
    async with System.open(MemoryStore(), agents=[agent], grace=0) as system:
        refs = [await system.spawn(agent, id=id) for id in ("a", "b")]
        for ref in refs:
            await ref.followup("hi")
        registry = cast("Any", system)._runtime.registry
        for _ in range(4):  # from the third time on, both turns are suspects, and one waits for the other
            await trio.testing.wait_all_tasks_blocked()
            for actor in registry:
                actor.log.poison(CommitFailed("the disk said no"))
            for ref in refs:
                await system.get(ref.id)
        await trio.testing.wait_all_tasks_blocked()
        waiting = registry.peek("b")
        assert waiting.turn is None and waiting.position.resumes >= 2
        waiting.log.poison(CommitFailed("the disk said no"))
        with trio.fail_after(5):
            await system.get("b")


async def test_a_child_that_outlived_its_parent_is_not_taken_for_the_next_parents_child() -> None:
    store, agent = MemoryStore(), parent()
    async with System.open(store, agents=[agent]) as system:
        assert (await (await system.spawn(agent, id="a")).ask("hi")).ok
        await system.delete("a", tree=False)
        ref = await system.spawn(agent, id="a")
        assert (await ref.ask("hi")).ok
        assert "is taken by an agent that is not a child" in (await ref.messages())[2].results["c1"]
    await check(store)
