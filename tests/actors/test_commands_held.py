"""What a stop holds: commands let none of it run, and it goes with the conversation that it was meant for."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, make, opened, order, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, Plugin, System
from callboard.actors.answers import Boundary
from callboard.actors.plugins import Commands
from callboard.actors.seams import SeamContext
from callboard.actors.testing import Reply, trio_wall
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import InputDropped


def talker(*replies: Any, **options: Any) -> Agent[Any, Any]:
    """An agent with commands."""
    return make(scripted(*replies), plugins=[Commands()], **options)


async def answer(ref: Any, text: str) -> str:
    """What a command says."""
    return str((await ref.ask(text)).text)


async def stopped(ref: Any) -> None:
    """A turn that was stopped, with a prompt and a steer behind it."""
    await ref.followup("first", message_id="first")
    await wait_all_tasks_blocked()
    await ref.followup("then this", message_id="prompt")
    await ref.steer("and another thing", message_id="steer")
    assert "2 messages wait" in await answer(ref, "/stop")
    await ref.wait_idle()


@pytest.mark.parametrize("text", ["/history", "/help", "/model", "/nonsense", "/compact now"])
async def test_a_command_lets_nothing_run_that_a_stop_has_held(text: str) -> None:
    model, store = scripted(Reply.hang("I think"), "two", "three"), MemoryStore()
    agent = make(model, plugins=[Commands()])
    async with opened(agent, store) as (_, ref):
        await stopped(ref)
        await answer(ref, text)
        await ref.wait_idle()
        assert [(item.id, item.parked) for item in await ref.pending()] == [("steer", True), ("prompt", True)]
    async with System.open(store, agents=[agent]) as system:
        assert system.report.woken == [] and len(model.requests) == 1
        await answer(await system.get("a"), "now go on")
    assert [message.text for message in model.requests[2].messages][-5:] == [
        "I think",
        "and another thing",
        "then this",
        "two",
        "now go on",
    ]
    await check(store)


@pytest.mark.parametrize(
    ("text", "said"),
    [("/new", "A new conversation begins. Dropped: 2 that waited."), ("/undo", "Taken back: first (and 2 that waited)")],
)
async def test_what_a_stop_has_held_goes_with_the_conversation_it_was_meant_for(text: str, said: str) -> None:
    model, store = scripted(Reply.hang("I think"), "two"), MemoryStore()
    async with opened(make(model, plugins=[Commands()]), store) as (_, ref):
        await stopped(ref)
        assert await answer(ref, text) == said
        await ref.wait_idle()
        assert await ref.pending() == () and len(model.requests) == 1
        with pytest.raises(InputDropped):
            await ref.outcome("prompt")
        assert "cmd cmdres drop(and another thing,then this){withdrawn} cut" in await order(store)
        await answer(ref, "second")
        assert await answer(ref, text) in ("A new conversation begins.", "Taken back: second")
    assert [message.text for message in model.requests[1].messages] == ["second"]
    await check(store)


async def test_with_nothing_read_undo_takes_back_what_waits() -> None:
    class Waits(Plugin):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Any) -> Any:
            await trio.sleep_forever()

    async with opened(talker("one").replace(plugins=[Commands(), Waits()])) as (_, ref):
        await ref.followup("first", message_id="first")
        await wait_all_tasks_blocked()
        await ref.cancel(keep_inbox=True)
        await ref.wait_idle()
        assert await answer(ref, "/undo") == "There is nothing to undo. Dropped: 1 that waited."
        assert await ref.pending() == ()


async def test_a_reminder_that_is_held_outlives_a_new_conversation(autojump_clock: Any) -> None:
    async with opened(talker(Reply.hang("I think")), now=trio_wall("2026-12-01T08:00Z")) as (_, ref):
        await ref.followup("first")
        await wait_all_tasks_blocked(0.1)
        await ref.remind("Call mum.", after_s=1, id="t")
        await trio.sleep(2)
        await answer(ref, "/stop")
        assert await answer(ref, "/new") == "A new conversation begins."
        assert [item.id for item in await ref.pending()] == ["t"]
