"""Commands and crashes: a kill between run and effect leaves both or none, and what was said reaches the route."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from crashing import Life, crashed, live
from helpers import check, events, history, make, notation, order, records, scripted
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from callboard.actors.agent import Agent
from callboard.actors.plugins import CommandContext, Commands, command
from callboard.actors.system import System
from callboard.actors.testing import ScriptedModel, every_crash
from callboard.actors.testing.scripted import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Request
from callboard.storage.store import Store

ROUTE = {"channel": "desk", "chat": "1"}
TURN = "TS{0} claim({1}) cmd cmdres"


def echo(request: Request) -> Any:
    """A model that can be asked again by whoever runs the scenario again."""
    return Reply.text(f"heard {request.messages[-1].text}")


def talker(*more: Any) -> Agent[Any, Any]:
    """An agent with commands whose model hears everything."""
    return make(ScriptedModel(echo), plugins=[Commands(*more)])


async def say(store: Store, *texts: str, agent: Agent[Any, Any] | None = None, models: Any = None) -> list[str]:
    """What an agent answers to these texts, each under its own id."""
    definition = agent or talker()
    async with System.open(store, agents=[definition], models=models) as system:
        ref = await system.spawn(definition, id="a")
        return [(await ref.ask(text, message_id=text, route=ROUTE)).text for text in texts]


async def test_new_and_its_rewrite_are_one_append_wherever_the_kill() -> None:
    async def scenario(store: Store) -> list[str]:
        return await say(store, "first", "/new", "second")

    async for crash in every_crash(scenario):
        assert crash.result == ["heard first", "A new conversation begins.", "heard second"], crash
        log = await order(crash.store)
        assert log.count("cmd cmdres cut") == 1, crash
        assert len(await events(crash.store, e.OutboxPut)) == 3, crash
        (_, second) = await events(crash.store, e.UserMessage)
        assert second.message.text == "second"


async def test_undo_takes_back_once() -> None:
    async def scenario(store: Store) -> list[str]:
        return await say(store, "first", "second", "/undo", "/history")

    async for crash in every_crash(scenario):
        assert crash.result[2:] == ["Taken back: second", "You: first\n\nAgent: heard first"], crash


async def test_what_waited_is_taken_back_with_the_view_wherever_the_kill() -> None:
    async def scenario(store: Store) -> list[str]:
        async with System.open(store, agents=[definition := talker()]) as system:
            ref = await system.spawn(definition, id="a")
            await ref.ask("first", message_id="first")
            await ref.followup("held", message_id="held")
            await ref.cancel(keep_inbox=True)
            said = (await ref.ask("/undo", message_id="undo")).text
            return [said, *(item.id for item in await ref.pending())]

    async for crash in every_crash(scenario):
        drops = [record.event for record in await records(crash.store) if isinstance(record.event, e.InboxDrop)]
        cuts = await events(crash.store, e.SurfaceReplace)
        assert len(cuts) == 1, crash
        assert crash.result[1:] == [], crash
        assert len(drops) == int("1 that waited" in crash.result[0]), crash


async def test_fork_makes_one_copy() -> None:
    async def scenario(store: Store) -> list[str]:
        return await say(store, "first", "/fork")

    seen = set[str]()
    async for crash in every_crash(scenario):
        heads = [head.agent for head in await crash.store.agents()]
        assert len(heads) == 2, crash
        seen.add(crash.result[1])
        assert crash.result[1] == f"The copy is {heads[1]}.", crash
    assert len(seen) == 1


async def test_the_model_that_was_chosen_outlives_every_kill() -> None:
    other = ScriptedModel(lambda request: Reply.text("other"), provider="acme")

    async def scenario(store: Store) -> list[str]:
        return await say(store, "first", "/model acme:large", "second", models={"acme:large": other})

    async for crash in every_crash(scenario):
        assert crash.result == ["heard first", "From the next turn on acme:large answers.", "other"], crash


async def test_c163_c267_stop_and_its_cancel_are_one_append_wherever_the_kill() -> None:
    async def scenario(store: Store) -> tuple[str, list[str]]:
        agent = make(scripted(Reply.hang("so"), Reply.hang("so")), plugins=[Commands()])
        async with System.open(store, agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            await ref.followup("go", message_id="go", route=ROUTE)
            await ref.followup("B", message_id="B")
            await wait_all_tasks_blocked()
            said = (await ref.ask("/stop", message_id="stop", route=ROUTE)).text
            await ref.wait_idle()
            return said, [item.id for item in await ref.pending() if item.parked]

    async for crash in every_crash(scenario):
        said, parked = crash.result
        assert said == "Stopped. 1 message waits, and runs before your next one.", crash
        assert parked == ["B"], crash
        log = await order(crash.store)
        assert log.count("cmd cmdres out TC1") == 1, crash
        assert log.count("cmd ") == 1, crash
        assert "TE1{aborted user}" in log, crash


async def test_c267_a_control_command_of_ones_own_shows_one_effect_key_wherever_the_kill() -> None:
    keys: list[str] = []

    @command("/pay", control=True)
    async def pay(ctx: CommandContext) -> str:
        """Pay, as a service does that knows its idempotency keys."""
        if ctx.effect_key not in keys:
            keys.append(ctx.effect_key)
        return f"paid {len(keys)}"

    async def scenario(store: Store) -> list[str]:
        return await say(store, "/pay", agent=talker(pay))

    async for crash in every_crash(scenario):
        assert crash.result == ["paid 1"], crash
        assert await order(crash.store) == "cmd cmdres out", crash


async def lived() -> Life:
    """A routed `/help`, and a prompt behind it."""

    async def act(ref: Any) -> None:
        await ref.followup("/help", message_id="h", route=ROUTE)
        await ref.followup("go", message_id="go", route=ROUTE)

    return await live(talker(), act)


async def test_the_answer_of_a_command_reaches_the_route_although_the_kill_fell_before_the_end() -> None:
    life = await lived()
    added = await crashed(life.records, life.upto("cmdres"), talker())
    assert added == "TR1 TE1{completed} out"


@pytest.mark.parametrize("mode", ["continue", "end"])
async def test_every_cut_between_two_appends_is_recovered(mode: Any) -> None:
    life = await lived()
    for end in life.ends:
        added = await crashed(life.records, end, talker().replace(recovery=mode))
        whole = " ".join([_upto(life, end), added])
        assert whole.count("TE1{") == ("put" in whole), whole
        assert whole.count("cmdres") <= 1
        if mode == "continue":
            assert whole.count("cmdres") == 1 or "put[t](/help)" not in whole, whole
            assert whole.count("out") == sum(put in whole for put in ("put[t](/help)", "put[t](go)")), whole


def _upto(life: Life, end: int) -> str:
    return notation([record for record in life.records if record.seq <= end])


async def test_what_a_command_forgot_stays_forgotten() -> None:
    store = MemoryStore()
    await say(store, "first", "/new")
    async with System.open(store, agents=[talker()]) as system:
        assert await history(await system.get("a")) == []
    await check(store)


SAID = ["hello", "again", "/new", "/undo", "/history", "/fork", "/zzz", "/model default", "/stop", "/compact"]


@settings(deadline=None, derandomize=True, database=None, phases=[Phase.generate], max_examples=12)
@given(st.lists(st.sampled_from(SAID), min_size=2, max_size=5))
def test_any_conversation_is_the_same_wherever_the_kill(said: list[str]) -> None:
    async def scenario(store: Store) -> tuple[list[str], list[str]]:
        agent = talker()
        async with System.open(store, agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            heard = [(await ref.ask(text, message_id=str(n), route=ROUTE)).text for n, text in enumerate(said)]
            return heard, await history(ref)

    async def crashes() -> None:
        plain = await scenario(MemoryStore())
        async for crash in every_crash(scenario):
            assert crash.result == plain, crash
            outs = await events(crash.store, e.OutboxPut)
            assert len({out.delivery for out in outs}) == len(outs) == len(said), crash
            runs = [run.id for run in await events(crash.store, e.CommandRun)]
            assert sorted(runs) == [str(n) for n, text in enumerate(said) if text.startswith("/")], crash
            assert len(await crash.store.agents()) == 1 + said.count("/fork"), crash

    trio.run(crashes)
