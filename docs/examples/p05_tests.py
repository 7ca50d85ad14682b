"""How to test an application: a tool alone, an agent with a scripted model, a reminder, and a kill after every commit."""

from __future__ import annotations

from myapp import lookup, planner
from trio.testing import MockClock

from callboard import System
from callboard.actors.testing import Reply, ScriptedModel, every_crash, tool_context, trio_wall
from callboard.storage import Request, Store, verify


class FakeWeather:
    """It rains."""

    async def today(self, city: str) -> str:
        """The weather in one word."""
        return "rain"


def by_question(request: Request) -> Reply:
    """Looks the city up, and advises when it has read the result."""
    if request.messages[-1].results:
        return Reply.text("Take a coat")
    return Reply.tools(("c1", "lookup", {"city": "Oslo"}))


async def test_tool_alone() -> None:
    """The decorated tool is still the function."""
    assert await lookup(tool_context(deps=FakeWeather()), "Oslo") == "rain"


async def test_asks_the_model_once_with_the_result() -> None:
    """What the model was sent, what came out, and what the log says."""
    model = ScriptedModel([Reply.tools(("c1", "lookup", {"city": "Oslo"})), Reply.text("Take a coat")])
    async with System.open(":memory:", agents=[planner], models={"*": model}, deps=FakeWeather()) as system:
        ref = await system.spawn(planner, id="t")
        outcome = await ref.ask("Oslo?")
        assert outcome.result() == "Take a coat"
        first, second = model.requests
        assert first.messages[-1].text == "Oslo?" and [t.name for t in first.tools] == ["lookup"]
        assert second.messages[-1].results == {"c1": "rain"}
        assert [r.type async for r in ref.read()][-2:] == ["step/end", "turn/end"]
        model.assert_used_up()
        assert (await verify(system.store)).ok


async def test_reminder(autojump_clock: MockClock) -> None:
    """Under pytest-trio's clock an hour takes no time; reminders go by the wall clock, which is tied to it."""
    model = ScriptedModel([Reply.text("ok"), Reply.text("tea!")])
    wall = trio_wall("2026-12-01T08:00Z")
    async with System.open(":memory:", agents=[planner], models={"*": model}, deps=FakeWeather(), now=wall) as system:
        ref = await system.spawn(planner, id="t")
        await ref.remind("tea", after_s=3600)
        assert (await ref.outcome(turn=1)).text == "ok"


async def test_survives_a_kill_after_every_commit() -> None:
    """The scenario is run, killed behind each commit, and run again over what was left."""

    async def scenario(store: Store) -> str:  # must be re-runnable: the ids it chooses make it so
        models = {"*": ScriptedModel(by_question)}
        async with System.open(store, agents=[planner], models=models, deps=FakeWeather()) as system:
            ref = await system.spawn(planner, id="t")
            return (await ref.ask("Oslo?", message_id="m1")).text

    async for crash in every_crash(scenario):  # .commit .lost_records .result; reopened, run again and verified
        assert crash.result == "Take a coat", crash
