"""An agent whose definition is not here cannot run here; what it did can be read, followed and shown all the same."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from callboard import Agent, System
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import AgentNotFound, DefinitionMissing, Store
from callboard.storage.engines.memory import MemoryStore


def make(*script: Reply) -> Agent:
    return Agent("demo", model=ScriptedModel(list(script)), plugins=[])


async def has_talked() -> Store:
    """A store in which `a` has had one turn and has a reminder."""
    store = MemoryStore()
    agent = make(Reply.text("hi"))
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a", labels={"user": "ann"})
        await ref.ask("hello")
        await ref.remind("tea", after_s=3600, id="tea")
    return store


async def test_what_it_did_can_be_read() -> None:
    store = await has_talked()
    async with System.open(store) as system:
        with pytest.raises(DefinitionMissing):
            await system.get("a")
        ref = await system.look("a")
        assert [message.text for message in await ref.messages()] == ["hello", "hi"]
        info = await ref.info()
        assert (info.definition, info.turn, info.labels, info.status) == ("demo", 1, {"user": "ann"}, "idle")
        assert ("definition", "demo") in [(wait.kind, wait.what) for wait in info.waits]
        assert [timer.id for timer in await ref.timers()] == ["tea"] and await ref.pending() == ()
        async for delta in ref.deltas():
            assert delta.kind == "end" or delta.text == "hi"
            if delta.kind == "end":
                break


async def test_nothing_can_be_sent_to_it() -> None:
    async with System.open(await has_talked()) as system:
        ref = await system.look("a")
        with pytest.raises(DefinitionMissing, match="is a 'demo'"):
            await ref.ask("hello?")
        with pytest.raises(AgentNotFound):
            await system.look("b")


async def test_a_follower_waits_for_the_definition_as_for_the_next_record() -> None:
    async with System.open(await has_talked()) as system, trio.open_nursery() as nursery:
        ref = await system.look("a")
        seen: list[str] = []

        async def follow() -> None:
            async for record in ref.follow(types={"turn/end"}):
                seen.append(record.type)
                if len(seen) == 2:
                    return

        nursery.start_soon(follow)
        await trio.testing.wait_all_tasks_blocked()
        assert seen == ["turn/end"]
        system.define(make(Reply.text("again")))
        await ref.ask("and now?")
    assert seen == ["turn/end", "turn/end"]
