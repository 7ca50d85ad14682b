"""What comes in by a channel for an agent whose definition is missing is kept, and answered when the definition is there."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from helpers import check, events, make, records
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, Plugin, Reject, System
from callboard.actors.channels import MemoryChannel
from callboard.actors.plugins import Commands, Redact
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel, every_crash
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import CommitFailed, StoreFull
from callboard.storage.messages import Request
from callboard.storage.store import Store
from callboard.storage.testing import FaultyStore

CHAT = "irc:a"


def heard(request: Request) -> Reply:
    """Says what it has heard so far."""
    return Reply.text(" ".join(message.text for message in request.messages if message.role == "user"))


def named(name: str, **options: Any) -> Agent[Any, Any]:
    """An agent that hears everything."""
    return make(ScriptedModel(heard), name=name).replace(**options)


OLD = named("old")


async def begun(store: Store) -> None:
    """A chat with an agent of the old name."""
    async with System.open(store, channels={"irc": (channel := MemoryChannel(OLD))}) as system:
        await channel.say("1", chat="a", id="1")
        await (await system.get(CHAT)).wait_idle()


async def test_a_message_is_kept_and_answered_when_the_definition_comes(autojump_clock: MockClock) -> None:
    await begun(store := MemoryStore())
    async with System.open(store, channels={"irc": (channel := MemoryChannel(named("new")))}) as system:
        assert system.report.ok
        for id in ("2", "3", "2"):
            assert await channel.say(id, chat="a", id=id) is not None
        assert list(system.report.failed) == [CHAT]
        assert system.statistics()["channels"]["irc"]["accepted"] == 2
        await trio.sleep(100)
        assert len(await events(store, e.TurnStart, CHAT)) == 1
        system.define(OLD)
        assert (await channel.reply(chat="a")).text == "1 2"
        assert (await channel.reply(chat="a")).text == "1 2 3"
        assert system.report.ok and system.report.later == [CHAT]
    await check(store)


async def test_it_is_kept_over_every_kill() -> None:
    async def scenario(store: Store) -> list[str]:
        await begun(store)
        async with System.open(store, channels={"irc": (channel := MemoryChannel(named("new")))}):
            await channel.say("2", chat="a", id="2")
            await channel.say("3", chat="a", id="3")
        async with System.open(store, channels={"irc": MemoryChannel(OLD)}) as system:
            await (ref := await system.get(CHAT)).wait_idle()
            return [message.text for message in await ref.messages() if message.role == "assistant"]

    async for crash in every_crash(scenario):
        assert crash.result == ["1", "1 2", "1 2 3"], crash
        assert [put.message.text for put in await events(crash.store, e.InboxPut, CHAT)] == ["1", "2", "3"], crash


async def test_the_channels_own_definition_says_what_may_be_kept() -> None:
    class Bouncer(Plugin):
        async def accept(self, ctx: SeamContext, message: Any, next: Next[Any, Any]) -> Any:
            return Reject("not today") if message.text == "spam" else await next(message)

    await begun(store := MemoryStore())
    desk = MemoryChannel(named("new", plugins=[Bouncer(), Redact([r"\d{4}"])]))
    async with System.open(store, channels={"irc": desk}) as system:
        assert await desk.say("spam", chat="a") is None
        assert await desk.say("x" * 2_000_000, chat="a") is None
        assert await desk.say("my pin is 1234", chat="a") is not None
        assert system.statistics()["channels"]["irc"]["refused"] == 2
    assert (await events(store, e.InboxPut, CHAT))[-1].message.text == "my pin is [redacted]"
    assert b"1234" not in b"".join(str(record).encode() for record in await records(store, CHAT))


async def test_a_command_is_recorded_and_its_answer_waits() -> None:
    await begun(store := MemoryStore())
    async with System.open(store, channels={"irc": (desk := MemoryChannel(named("new", plugins=[Commands()])))}) as system:
        assert await desk.say("/stop", chat="a", id="s") is not None
        await wait_all_tasks_blocked()
        assert desk.sent == []
        system.define(OLD)
        assert (await desk.reply(chat="a")).text == "Nothing runs."
    await check(store)


async def test_a_definition_that_comes_in_the_middle_loses_and_doubles_nothing(autojump_clock: MockClock) -> None:
    class Slow(Plugin):
        async def accept(self, ctx: SeamContext, message: Any, next: Next[Any, Any]) -> Any:
            await trio.sleep(1)
            return await next(message)

    await begun(store := MemoryStore())
    async with System.open(store, channels={"irc": (desk := MemoryChannel(named("new", plugins=[Slow()])))}) as system:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(desk.say, "2", chat="a"))
            nursery.start_soon(partial(desk.say, "3", chat="a"))
            await wait_all_tasks_blocked()
            system.define(OLD)
            assert (await system.get(CHAT)).id == CHAT
            assert await (await system.get(CHAT)).pending() == ()
        assert {(await desk.reply(chat="a")).text for _ in range(2)} <= {"1 2", "1 3", "1 2 3", "1 3 2"}
    assert sorted(put.message.text for put in await events(store, e.InboxPut, CHAT)) == ["1", "2", "3"]
    await check(store)


async def test_what_could_not_be_written_is_not_acknowledged() -> None:
    await begun(inner := MemoryStore())
    store = FaultyStore(inner)
    async with System.open(store, channels={"irc": (desk := MemoryChannel(named("new")))}):
        store.fail_next(StoreFull("the disk is full; free some space"))
        with pytest.raises(CommitFailed):
            await desk.say("2", chat="a", id="2")
        assert await desk.say("2", chat="a", id="2") is not None
    assert [put.message.text for put in await events(inner, e.InboxPut, CHAT)] == ["1", "2"]
