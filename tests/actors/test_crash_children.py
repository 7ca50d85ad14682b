"""Two logs, one crash: a parent that waits for a child, killed behind every commit, comes to the same answer."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from helpers import order, records

from callboard.actors.agent import Agent
from callboard.actors.delegation import delegate
from callboard.actors.system import System
from callboard.actors.testing import Reply, ScriptedModel, every_crash
from callboard.actors.tools import ToolContext, tool
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Request
from callboard.storage.store import Store

looked: Counter[str] = Counter()


@tool(replay="safe")
async def look(ctx: ToolContext[Any], what: str) -> str:
    """Look it up."""
    looked[what] += 1
    return f"{what} is fine"


def reader_says(request: Request) -> Reply:
    """Looks once, then tells."""
    results = request.messages[-1].results
    return Reply.text(results["look"]) if results else Reply.tools(("look", "look", {"what": request.messages[0].text}))


def lead_says(*tasks: str, name: str = "reader") -> Any:
    """Delegates all tasks at once, then tells what came of them."""

    def says(request: Request) -> Reply:
        results = [text for message in request.messages for text in message.results.values()]
        if results:
            return Reply.text("; ".join(results))
        return Reply.tools(*((task, name, {"task": task}) for task in tasks))

    return says


READER = Agent("reader", model="reader:demo", tools=[look], plugins=())
LEAD = Agent("lead", model="lead:demo", tools=[delegate(READER)], plugins=())


def models(*tasks: str) -> dict[str, Any]:
    """One script for each kind of agent."""
    return {
        "reader": ScriptedModel(reader_says, provider="reader"),
        "lead": ScriptedModel(lead_says(*tasks), provider="lead"),
    }


@pytest.mark.parametrize("tasks", [("roof",), ("roof", "wall", "door")])
async def test_c215_a_parent_that_waits_for_children_survives_every_crash(tasks: tuple[str, ...]) -> None:
    async def scenario(store: Store) -> str:
        async with System.open(store, agents=[LEAD], models=models(*tasks)) as system:
            ref = await system.spawn(LEAD, id="a")
            return (await ref.ask("the house", message_id="m")).text

    crashes = 0
    async for crash in every_crash(scenario):
        crashes += 1
        assert crash.result == "; ".join(f"{task} is fine" for task in tasks), crash
        await _whole_family(crash.store, tasks)
    assert crashes > 5


async def _whole_family(store: Store, tasks: tuple[str, ...]) -> None:
    """One child for each task, which ran it once and ended once."""
    heads = [head for head in await store.agents() if head.agent != "a"]
    assert len(heads) == len(tasks)
    assert not any(head.summary.attention for head in await store.agents())
    parent = [record.event for record in await records(store)]
    for kind in (e.ChildSpawned, e.ChildEnded):
        assert sorted(event.child for event in parent if isinstance(event, kind)) == sorted(head.agent for head in heads)
    assert all(e.kind_of(event.reason) == "completed" for event in parent if isinstance(event, e.ChildEnded))
    for head in heads:
        child = [record.event for record in await records(store, head.agent)]
        put = [event.message for event in child if isinstance(event, e.InboxPut)]
        claimed = [id for event in child if isinstance(event, e.InboxClaim) for id in event.ids]
        assert put[0].text in tasks and claimed == [message.id for message in put]
        assert sum(isinstance(event, e.TurnEnd) for event in child) == 1


async def test_c206_the_order_of_a_delegation_without_a_crash() -> None:
    store = MemoryStore()
    async with System.open(store, agents=[LEAD], models=models("roof")) as system:
        await (await system.spawn(LEAD, id="a")).ask("the house", message_id="m")
    assert await order(store) == (
        "put[t](the house) TS1 claim(the house) SS1.1 U(the house) H{initial} X Q1 C* A "
        "call(roof) born died{completed} res(roof) SE SS1.2 Q1 C* A SE TE1{completed}"
    )


async def test_c211_a_child_in_the_background_reports_once() -> None:
    async def scenario(store: Store) -> list[str]:
        lead = LEAD.replace(tools=[delegate(READER, background=True)])
        script = {**models("roof"), "lead": ScriptedModel(_background_lead, provider="lead")}
        async with System.open(store, agents=[lead], models=script) as system:
            ref = await system.spawn(lead, id="a")
            await ref.ask("the house", message_id="m")
            for id in [child async for child in system.agents()]:
                await (await system.get(id.id)).wait_idle()
            await ref.wait_idle()
            return [message.text for message in await ref.messages() if message.role == "user"]

    async for crash in every_crash(scenario):
        assert crash.result == ["the house", "roof is fine"], crash
        assert sum(isinstance(r.event, e.ChildEnded) for r in await records(crash.store)) == 1


def _background_lead(request: Request) -> Reply:
    texts = [message.text for message in request.messages]
    if request.messages[-1].results or "roof is fine" in texts:
        return Reply.text("heard")
    return Reply.tools(("roof", "reader", {"task": "roof"}))


async def test_c273_mail_from_a_body_that_runs_again_arrives_once() -> None:
    @tool(replay="safe")
    async def tell(ctx: ToolContext[Any]) -> str:
        """Write to the reader, twice."""
        await ctx.send("r", "roof")
        await ctx.send("r", "wall")
        return "told"

    lead = LEAD.replace(tools=[tell])

    def says(request: Request) -> Reply:
        return Reply.text("done") if request.messages[-1].results else Reply.tools(("c", "tell", {}))

    async def scenario(store: Store) -> list[str]:
        script = {
            "lead": ScriptedModel(says, provider="lead"),
            "reader": ScriptedModel(lambda r: Reply.text("ok"), provider="reader"),
        }
        async with System.open(store, agents=[lead, READER], models=script) as system:
            reader = await system.spawn(READER, id="r")
            ref = await system.spawn(lead, id="a")
            await ref.ask("go", message_id="m")
            await reader.wait_idle()
            return [message.text for message in await reader.messages() if message.role == "user"]

    async for crash in every_crash(scenario):
        assert crash.result == ["roof", "wall"], crash
        assert sum(isinstance(r.event, e.MailSent) for r in await records(crash.store)) == 2
