"""Program p05 of the public API, as a user would write it: a tool alone, an agent with a script, a kill after every commit."""

from __future__ import annotations

from callboard import Agent, System, ToolContext, tool
from callboard.actors.testing import Reply, ScriptedModel, every_crash, tool_context
from callboard.storage.messages import Request
from callboard.storage.store import Store
from callboard.storage.verify import verify

# -- what stands in `myapp` there


class FakeDb:
    """The weather, without a network."""

    async def weather(self, city: str) -> str:
        return "rain"


@tool(replay="safe")
async def lookup(ctx: ToolContext[FakeDb], city: str) -> str:
    """Today's weather in a city."""
    return await ctx.deps.weather(city)


planner: Agent[FakeDb, str] = Agent("planner", model="openai:gpt-5", system="You plan trips.", tools=[lookup], deps=FakeDb)


def by_question(request: Request) -> Reply:
    """Looks the city up once, then advises."""
    if request.messages[-1].results:
        return Reply.text("Take a coat")
    return Reply.tools(("c1", "lookup", {"city": "Oslo"}))


# -- the program


async def test_tool_alone() -> None:
    assert await lookup(tool_context(deps=FakeDb()), "Oslo") == "rain"  # the decorated tool is still the function


async def test_asks_the_model_once_with_the_result() -> None:
    model = ScriptedModel([Reply.tools(("c1", "lookup", {"city": "Oslo"})), Reply.text("Take a coat")])
    async with System.open(":memory:", agents=[planner], models={"*": model}, deps=FakeDb()) as system:
        ref = await system.spawn(planner, id="t")
        outcome = await ref.ask("Oslo?")
        assert outcome.result() == "Take a coat"
        first, second = model.requests
        assert first.messages[-1].text == "Oslo?" and [t.name for t in first.tools] == ["lookup"]
        assert second.messages[-1].results == {"c1": "rain"}
        assert [r.type async for r in ref.read()][-2:] == ["step/end", "turn/end"]
        model.assert_used_up()
        assert (await verify(system.store)).ok


async def test_survives_a_kill_after_every_commit() -> None:
    async def scenario(store: Store) -> str:  # must be re-runnable: ids make it so
        models = {"*": ScriptedModel(by_question)}
        async with System.open(store, agents=[planner], models=models, deps=FakeDb()) as system:
            ref = await system.spawn(planner, id="t")
            return (await ref.ask("Oslo?", message_id="m1")).text

    crashes = [crash async for crash in every_crash(scenario)]
    for crash in crashes:  # .commit .lost_records .result ; reopens, re-runs, verifies
        assert crash.result == "Take a coat", crash
    assert len(crashes) == 4, crashes  # spawn; input and request; answer, result (`safe`) and second request; answer and end
