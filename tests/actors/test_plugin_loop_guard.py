"""C135: the boxed `LoopGuard` tells a model that runs in circles, and then stops it."""

from __future__ import annotations

from typing import Any

import pytest
from crashing import image, live
from helpers import events, history, make, notation, opened, order, records, say, scripted

from callboard.actors import Deny, Plugin, tool
from callboard.actors.answers import ToolCall, Verdict
from callboard.actors.plugins import LoopGuard
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import events as e
from callboard.storage.errors import UsageError

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X"
NOTE = "You have called look 4 times alike, with the same result. Do something else."


@tool(mode="parallel", replay="safe")
async def look(where: str = "") -> str:
    """Look."""
    return "nothing"


def circling(*arguments: Any, tool: str = "look", same_ids: bool = False) -> ScriptedModel:
    """A model that makes these calls, one in each step."""
    return scripted(*(Reply.tools((f"c{1 if same_ids else n}", tool, a)) for n, a in enumerate(arguments, 1)), "done")


def guarded(model: ScriptedModel, *more: Plugin, **options: Any) -> Any:
    """An agent with a guard."""
    return make(model, tools=[look], plugins=[LoopGuard(**options), *more])


async def end(store: Any) -> str:
    """How the last turn ended."""
    reason = (await events(store, e.TurnEnd))[-1].reason
    return reason.limit if isinstance(reason, e.Limited) else reason.kind


@pytest.mark.parametrize("same_ids", [False, True])
async def test_c135_the_fourth_time_there_is_a_note_and_the_fifth_ends_the_turn(same_ids: bool) -> None:
    async with opened(guarded(circling(*[{}] * 9, same_ids=same_ids))) as (system, ref):
        await say(ref, "hi")
        ids = ["c1"] * 5 if same_ids else [f"c{n}" for n in range(1, 6)]
        steps = [f"Q1 C* A call({id}) res({id})" for id in ids]
        assert await order(system.store) == (
            f"{OPEN} {steps[0]} SE SS1.2 {steps[1]} SE SS1.3 {steps[2]} SE SS1.4 {steps[3]} put[s]({NOTE}) SE "
            f"claim({NOTE}) SS1.5 U({NOTE}) {steps[4]} SE TE1{{limit}}"
        )
        assert await end(system.store) == "loop"


async def test_c135_the_turn_ends_after_all_results_of_the_batch() -> None:
    batch = Reply.tools(*((f"c{n}", "look", "{}") for n in range(1, 8)))
    async with opened(guarded(scripted(batch, "done"))) as (system, ref):
        await say(ref, "hi")
        results = await events(system.store, e.ToolResult)
        assert len(results) == 7
        assert [r.error for r in results[:6]] == [None] * 6
        assert await end(system.store) == "loop"
        assert len([r for r in await records(system.store) if r.type == "step/start"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [{"where": str(n)} for n in range(8)],
        [{}, {"where": "a"}] * 3,
    ],
    ids=["all different", "three of each"],
)
async def test_c135_calls_that_differ_are_no_loop(arguments: Any) -> None:
    async with opened(guarded(circling(*arguments))) as (system, ref):
        await say(ref, "hi")
        assert await end(system.store) == "completed"
        assert not any("alike" in line for line in await history(ref))


async def test_c135_results_that_differ_are_no_loop() -> None:
    seen: list[int] = []

    @tool(name="look")
    async def counts() -> str:
        """Count."""
        seen.append(1)
        return str(len(seen))

    async with opened(make(circling(*[{}] * 8), tools=[counts], plugins=[LoopGuard()])) as (system, ref):
        await say(ref, "hi")
        assert await end(system.store) == "completed"


async def test_c135_blanks_and_order_make_no_other_call() -> None:
    texts = ['{"where":"a"}', '{"where": "a"}', ' {"where":"a"} ', '{"where" :"a"}', '{"where":"a" }']
    async with opened(guarded(circling(*texts))) as (system, ref):
        await say(ref, "hi")
        assert await end(system.store) == "loop"


async def test_c135_another_turn_begins_anew() -> None:
    model = scripted(*([Reply.tools(("c1", "look", {}))] * 3 + [Reply.text("done")]) * 3)
    async with opened(guarded(model)) as (system, ref):
        for text in ("one", "two", "three"):
            await say(ref, text)
            assert await end(system.store) == "completed"


class Denies(Plugin):
    """Nothing may run."""

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        return Deny("no")


@pytest.mark.parametrize(
    ("tool_name", "arguments", "plugins"),
    [("lok", {}, ()), ("look", {"wrong": 1}, ()), ("look", "{no json", ()), ("look", {}, (Denies(),))],
    ids=["unknown", "does not fit", "no json", "denied"],
)
async def test_c135_calls_that_reach_no_body_are_counted_too(tool_name: str, arguments: Any, plugins: Any) -> None:
    async with opened(guarded(circling(*[arguments] * 9, tool=tool_name), *plugins)) as (system, ref):
        await say(ref, "hi")
        assert await end(system.store) == "loop"
        assert len(await events(system.store, e.ToolResult)) == 5
        users = [event.message.text for event in await events(system.store, e.UserMessage)]
        assert users == ["hi", NOTE.replace("look", tool_name)]


@pytest.mark.parametrize("place", ["A", "call(c3)", "res(c3)", "SE"])
async def test_c135_a_restart_forgets_no_repetition(place: str) -> None:
    async def hi(ref: Any) -> None:
        await say(ref, "hi")

    first = await live(guarded(circling(*[{}] * 9)), hi)
    cut = first.upto(place, 3 if place in ("A", "SE") else 1)
    store = await image(first.records, cut)
    rest = scripted(*(Reply.tools((f"c{n}", "look", {})) for n in range(4, 9)))
    async with opened(guarded(rest), store) as (_, ref):
        await ref.wait_idle()
        assert await end(store) == "loop"
        assert len(await events(store, e.ToolResult)) == 5
        assert notation(await records(store)).count(f"put[s]({NOTE})") == 1


async def test_c135_how_often_can_be_said() -> None:
    async with opened(guarded(circling(*[{}] * 9), repeats=2)) as (system, ref):
        await say(ref, "hi")
        assert len(await events(system.store, e.ToolResult)) == 3
    with pytest.raises(UsageError, match="repeats=1"):
        LoopGuard(repeats=1)
