"""Replies over restarts, at a close, and of agents that are gone or asleep."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, make, notation, opened, order, records, say, scripted
from test_delivery import Flaky, route
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Answer, Channel, Plugin, System, ToolContext, tool
from callboard.actors.channels import MemoryChannel
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, trio_wall
from callboard.actors.values import Delivery
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Message


async def test_what_is_unsent_goes_out_after_a_restart_under_the_same_id() -> None:
    store, first, second = MemoryStore(), MemoryChannel(), MemoryChannel()
    first.failing = OSError("down")
    agent = make(scripted("one"))
    async with System.open(store, agents=[agent], channels={"irc": first}, grace=0) as system:
        await say(await system.spawn(agent, id="a"), "1", route=route("c"))
        idle = await system.spawn(agent, id="idle")
        await idle.inject("nothing to do")
    async with System.open(store, agents=[agent], channels={"irc": second}) as system:
        entry = await second.reply(chat="c")
        await wait_all_tasks_blocked()
        assert system.statistics()["opened"] == 1, "found by the index, and nobody else was opened"
    (put,) = await events(store, e.OutboxPut)
    (sent,) = await events(store, e.OutboxSent)
    assert entry.delivery == put.delivery == sent.delivery
    third = MemoryChannel()
    async with System.open(store, agents=[agent], channels={"irc": third}):
        await wait_all_tasks_blocked()
    assert third.sent == []
    await check(store)


async def test_a_reply_for_a_channel_that_is_not_there_waits_for_a_start_that_has_it() -> None:
    store, channel = MemoryStore(), MemoryChannel()
    agent = make(scripted("one"))
    async with System.open(store, agents=[agent], channels={"other": MemoryChannel()}) as system:
        await say(await system.spawn(agent, id="a"), "1", route=route("c"))
    async with System.open(store, agents=[agent]):
        await wait_all_tasks_blocked()
    async with System.open(store, agents=[agent], channels={"irc": channel}):
        assert (await channel.reply(chat="c")).text == "one"
    await check(store)


async def test_closing_gives_what_is_on_its_way_the_grace(autojump_clock: MockClock) -> None:
    store, sent = MemoryStore(), list[str]()
    agent = make(scripted("one"))

    async def deliver(entry: Delivery) -> None:
        await trio.sleep(5)
        sent.append(entry.text)

    async with System.open(store, agents=[agent], channels={"irc": deliver}, grace=10) as system:
        await (await system.spawn(agent, id="a")).followup("1", route=route("c"))
    assert sent == ["one"]
    assert notation(await records(store)).endswith("TE1{completed} out sent")


async def test_closing_does_not_wait_longer_for_a_delivery_than_its_grace(autojump_clock: MockClock) -> None:
    store, agent = MemoryStore(), make(scripted("one"))

    async def deliver(entry: Delivery) -> None:
        await trio.sleep(1000)

    async with System.open(store, agents=[agent], channels={"irc": deliver}, grace=3) as system:
        await say(await system.spawn(agent, id="a"), "1", route=route("c"))
        began = trio.current_time()
    assert trio.current_time() - began <= 6
    assert notation(await records(store)).endswith("TE1{completed} out")


async def test_a_reply_of_an_agent_that_was_deleted_is_dropped(autojump_clock: MockClock) -> None:
    channel = Flaky({"one": 2})
    async with opened(make(scripted("one")), channels={"irc": channel}) as (system, ref):
        await say(ref, "1", route=route("a"))
        await wait_all_tasks_blocked()
        await system.delete("a")
        await trio.sleep(60)
        assert len(channel.asked) == 1
        assert system.statistics()["channels"]["irc"]["waiting"] == 0


async def test_an_agent_that_comes_again_under_the_name_of_one_that_was_deleted_says_only_what_it_says(
    autojump_clock: MockClock,
) -> None:
    channel = Flaky({"one": 2})
    agent = make(scripted("one", "two"))
    async with opened(agent, channels={"irc": channel}) as (system, ref):
        await say(ref, "1", route=route("a"))
        await wait_all_tasks_blocked()
        await system.delete("a")
        await say(await system.spawn(agent, id="a"), "2", route=route("a"))
        await trio.sleep(60)
        assert [text for _, text in channel.asked] == ["one", "two"]
        assert (await order(system.store)).endswith("TE1{completed} out sent")


@pytest.mark.parametrize("left", [False, True], ids=["said here", "left by another process"])
async def test_a_reply_that_was_on_its_way_when_its_agent_was_deleted_and_made_again_is_not_sent_again(
    left: bool, autojump_clock: MockClock
) -> None:
    class Slow(Channel):
        def __init__(self) -> None:
            self.asked = list[str]()

        async def deliver(self, entry: Delivery) -> None:
            self.asked.append(entry.text)
            await trio.sleep(5)
            raise OSError("the line is down")

    store, channel, agent = MemoryStore(), Slow(), make(scripted("one", "two"))
    async with System.open(store, agents=[agent], channels={} if left else {"irc": channel}, grace=0) as system:
        await say(await system.spawn(agent, id="a"), "1", route=route("a"))
        image = store.copy()
    async with System.open(image, agents=[agent], channels={"irc": channel}, grace=0) as system:
        await wait_all_tasks_blocked()
        channel.asked.clear()
        await system.delete("a")
        await system.spawn(agent, id="a")
        await trio.sleep(40)
    assert channel.asked == []


async def test_what_it_says_then_has_ids_that_no_service_has_seen(autojump_clock: MockClock) -> None:
    class Hurries(Plugin):
        async def accept(self, ctx: SeamContext, message: Message, next: Next[Message, Any]) -> Any:
            return Answer("at once") if message.text == "/now" else await next(message)

    @tool
    async def tells(ctx: ToolContext[Any]) -> str:
        """Answers the chat itself."""
        await ctx.reply("from the tool")
        return "told"

    channel, script = MemoryChannel(), [Reply.tools(("c", "tells", {})), "never said", "two"] * 2
    agent = make(scripted(*script), tools=[tells], plugins=[Hurries()])
    async with opened(agent, channels={"irc": channel}, now=trio_wall("2026-12-01T08:00Z")) as (system, ref):
        for _ in range(2):
            await say(ref, "1", route=route("a"))
            await ref.followup("/now", message_id="/now", route=route("a"))
            await say(ref, "2", route=route("a"))
            await wait_all_tasks_blocked()
            await trio.sleep(1)
            await system.delete("a")
            ref = await system.spawn(agent, id="a")
    assert [entry.text for entry in channel.sent] == ["from the tool", "at once", "two"] * 2
    assert len({entry.delivery for entry in channel.sent}) == 6


async def test_a_system_that_is_cancelled_from_outside_waits_for_no_delivery(autojump_clock: MockClock) -> None:
    class Hangs(Channel):
        at_once, timeout_s = 1, 10_000

        async def deliver(self, entry: Delivery) -> None:
            await trio.sleep_forever()

    agent = make(scripted("one", "two"))
    began = trio.current_time()
    with trio.CancelScope() as scope:
        async with System.open(":memory:", agents=[agent], channels={"irc": Hangs()}, grace=1000) as system:
            ref = await system.spawn(agent, id="a")
            for chat in "ab":
                await say(ref, chat, route=route(chat))
            await wait_all_tasks_blocked()
            scope.cancel()
    assert trio.current_time() - began < 1000


async def test_an_idle_agent_is_opened_for_the_record_alone(autojump_clock: MockClock) -> None:
    channel = Flaky({"one": 5})
    async with opened(make(scripted("one")), channels={"irc": channel}, idle_after=2) as (system, ref):
        await say(ref, "1", route=route("a"))
        await trio.sleep(20)
        assert system.statistics()["agents"] == 0 and len(channel.asked) == 5
        await trio.sleep(30)
        assert (await order(system.store)).endswith("TE1{completed} out sent")
        assert system.statistics()["agents"] == 0
