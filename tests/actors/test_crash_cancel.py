"""A tree that is cancelled, killed behind every commit: whatever was written by then, the next start ends all of it, once."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import records
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, Boundary, Enter, Plugin, Reject, System, delegate
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel, every_crash
from callboard.storage import events as e
from callboard.storage.messages import Request
from callboard.storage.store import Store


def asks(*calls: str) -> Any:
    """A model that makes these calls first, whoever asks it again, and then hangs."""

    def says(request: Request) -> Reply:
        if any(message.results for message in request.messages):
            return Reply.hang("waiting")
        return Reply.tools(*((f"c{n}", name, {"task": f"task {n}"}) for n, name in enumerate(calls, 1)))

    return ScriptedModel(says)


class Hangs(Plugin):
    """Never lets a task enter."""

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject]) -> Enter | Reject:
        await trio.sleep_forever()
        return await next(boundary)


def family(*, background: bool, unclaimed: bool) -> Agent[Any, Any]:
    """A parent of two workers, of whom each has a leaf that hangs: in its answer, or with its task still in the inbox."""
    hangs = ScriptedModel(lambda request: Reply.hang("deep"))
    leaf = Agent("leaf", model=hangs, plugins=[Hangs()] if unclaimed else ())
    worker = Agent("worker", model=asks("leaf"), tools=[delegate(leaf)], plugins=())
    return Agent("lead", model=asks("worker", "worker"), tools=[delegate(worker, background=background)], plugins=())


async def logs(store: Store) -> dict[str, list[Any]]:
    """The events of every agent."""
    return {head.agent: [r.event for r in await records(store, head.agent)] for head in await store.agents()}


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("unclaimed", [False, True])
async def test_c213_a_cancelled_tree_ends_once_whatever_kills_it(background: bool, unclaimed: bool) -> None:
    async def scenario(store: Store) -> None:
        lead = family(background=background, unclaimed=unclaimed)
        async with System.open(store, agents=[lead], grace=0) as system:
            ref = await system.spawn(lead, id="a")
            await ref.followup("go", message_id="m")
            await wait_all_tasks_blocked()
            await ref.cancel()
            with trio.fail_after(60):
                for id in [summary.id async for summary in system.agents()]:
                    await (await system.get(id)).wait_idle()

    crashes = 0
    async for crash in every_crash(scenario):
        crashes += 1
        found = await logs(crash.store)
        born = [event.child for log in found.values() for event in log if isinstance(event, e.ChildSpawned)]
        died = [event.child for log in found.values() for event in log if isinstance(event, e.ChildEnded)]
        assert sorted(born) == sorted(died) == sorted(agent for agent in found if agent != "a"), crash
        assert len(set(died)) == len(died), crash
        for agent, log in found.items():
            starts = sum(isinstance(event, e.TurnStart) for event in log)
            ends = [event.reason for event in log if isinstance(event, e.TurnEnd)]
            assert starts == len(ends) <= 1, (agent, crash)
            assert all(isinstance(reason, e.Aborted) for reason in ends), (agent, crash)
    assert crashes > 5
