"""What strangers may send, and how a channel that fails or ends goes on."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import make, scripted
from test_channels import chatting
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, Channel, Inbound, Plugin, Reject, System, handoff
from callboard.actors.channels import MemoryChannel
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel
from callboard.actors.values import Delivery
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import UsageError

# -- what strangers can send


@pytest.mark.parametrize(
    ("content", "message_id", "chat"),
    [
        ("", None, "chat"),
        ("  \n", None, "chat"),
        ("x" * 2_000_000, None, "chat"),
        ("hi", "m" * 500, "chat"),
        ("hi", "\ud800", "chat"),
        ("hi", None, "\udfff"),
        ("hi", None, "c" * 481),
        ("hi", "", "chat"),
    ],
    ids=["empty", "blank", "huge", "long id", "surrogate id", "surrogate chat", "long chat", "no id"],
)
async def test_what_cannot_be_kept_is_refused_and_the_channel_lives_on(content: str, message_id: str | None, chat: str) -> None:
    async with chatting(scripted("fine")) as (system, channel, _):
        assert await channel.say(content, chat=chat, id=message_id) is None
        await channel.say("hi")
        assert (await channel.reply()).text == "fine"
        known = system.statistics()["channels"]["irc"]
        assert (known["refused"], known["accepted"], known["crashes"]) == (1, 1, 0)


async def test_what_a_plugin_refuses_is_refused() -> None:
    class Bouncer(Plugin):
        async def accept(self, ctx: SeamContext, message: Any, next: Next[Any, Any]) -> Any:
            return Reject("not today") if message.text == "spam" else await next(message)

    async with chatting(scripted("fine"), agent={"plugins": [Bouncer()]}) as (_, channel, _store):
        assert await channel.say("spam") is None
        await channel.say("hi")
        assert (await channel.reply()).text == "fine"


async def test_a_chat_with_a_very_long_name_has_an_agent_too() -> None:
    async with chatting(ScriptedModel(lambda request: Reply.text("fine"))) as (_, channel, _store):
        for end in "ab":
            await channel.say("hi", chat="c" * 470 + end)
            assert (await channel.reply(chat="c" * 470 + end)).text == "fine"


async def test_a_route_that_is_none_is_the_channels_own_mistake() -> None:
    caught: list[BaseException] = []

    class Wrong(MemoryChannel):
        async def run(self, inbound: Inbound) -> None:
            for route in ({}, {"chat": ""}, {"chat": "a", "room": "b"}):
                try:
                    await inbound.put("hi", route=route)
                except UsageError as error:
                    caught.append(error)
            await super().run(inbound)

    async with System.open(":memory:", channels={"irc": Wrong(make(scripted()))}):
        await wait_all_tasks_blocked()
    assert str(caught[0]) == "channel 'irc': the route {} names no chat: route={'chat': ...}"
    assert len(caught) == 3


async def test_a_channel_without_an_agent_only_sends() -> None:
    async with System.open(":memory:", channels={"irc": (channel := MemoryChannel())}):
        with pytest.raises(UsageError, match="has no agent"):
            await channel.say("hi")


# -- agents that change


async def test_a_definition_that_is_replaced_is_that_of_new_chats_too() -> None:
    async with chatting(scripted("old")) as (system, channel, _store):
        await channel.say("hi", chat="a")
        assert (await channel.reply(chat="a")).text == "old"
        system.define(make(ScriptedModel(lambda request: Reply.text("new"))))
        for chat in ("a", "b"):
            await channel.say("hi", chat=chat)
            assert (await channel.reply(chat=chat)).text == "new"


async def test_a_chat_whose_agent_was_handed_on_goes_on_with_it() -> None:
    specialist = Agent("specialist", model=scripted("I take over", "still me"), plugins=())
    script = scripted(Reply.tools(("c", "handoff_to_specialist", {})))
    async with chatting(script, agent={"tools": [handoff(specialist)]}) as (_, channel, _store):
        await channel.say("1")
        assert (await channel.reply()).text == "I take over"
        await channel.say("2")
        assert (await channel.reply()).text == "still me"


async def test_one_chat_whose_agent_nobody_knows_stops_no_other() -> None:
    store = MemoryStore()
    async with System.open(store, channels={"irc": (first := MemoryChannel(make(scripted("old"), name="renamed")))}):
        await first.say("hi", chat="a")
        await first.reply(chat="a")
    channel = MemoryChannel(make(scripted("new")))
    async with System.open(store, channels={"irc": channel}) as system:
        assert await channel.say("hi", chat="a") is not None
        await channel.say("hi", chat="b")
        assert (await channel.reply(chat="b")).text == "new"
        assert system.statistics()["channels"]["irc"]["crashes"] == 0
        assert "'irc:a' is a 'renamed'" in str(system.report.failed["irc:a"])


# -- a channel's run


async def test_a_channel_that_fails_or_ends_is_started_again_and_reported(autojump_clock: MockClock) -> None:
    starts: list[float] = []
    sent: list[str] = []

    class Unsteady(Channel):
        def __init__(self, agent: Agent[Any, Any]) -> None:
            self.agent = agent

        async def run(self, inbound: Inbound) -> None:
            starts.append(trio.current_time())
            if len(starts) < 3:
                raise OSError("no network")
            inbound.ready()
            await inbound.put("hi", route={"chat": "a"}, message_id=f"m{len(starts)}")
            await trio.sleep(0.5 if len(starts) == 3 else 1e6)

        async def deliver(self, entry: Delivery) -> None:
            sent.append(entry.text)

    model = ScriptedModel(lambda request: Reply.text(f"reply {sum(m.role == 'user' for m in request.messages)}"))
    async with System.open(":memory:", channels={"irc": Unsteady(make(model))}, grace=0) as system:
        began = trio.current_time()
        await trio.sleep(60)
        assert [round(at - began, 1) for at in starts] == [0, 1, 3, 7.5]
        assert system.report.channels == {"irc": "its run returned"}
        assert system.statistics()["channels"]["irc"]["crashes"] == 3
        assert sent == ["reply 1", "reply 2"]


async def test_nothing_is_sent_before_the_channel_is_ready(autojump_clock: MockClock) -> None:
    sent: list[float] = []

    class Slow(Channel):
        async def run(self, inbound: Inbound) -> None:
            await trio.sleep(100)
            inbound.ready()
            await trio.sleep_forever()

        async def deliver(self, entry: Delivery) -> None:
            sent.append(trio.current_time())

    agent = make(scripted("one"))
    async with System.open(":memory:", agents=[agent], channels={"irc": Slow()}) as system:
        began = trio.current_time()
        await (await system.spawn(agent, id="a")).followup("hi", route={"channel": "irc", "chat": "c"})
        await trio.sleep(99)
        assert sent == []
        await trio.sleep(2)
        assert sent == [began + 100]


@pytest.mark.parametrize(
    ("channels", "text"),
    [
        ({"": MemoryChannel()}, "name a channel by a text"),
        ({"irc": MemoryChannel}, "is the class MemoryChannel; give an object"),
        ({"irc": 5}, "give a Channel, or an async function of one entry"),
        ({"irc": Channel()}, "has no deliver"),
        ({"irc": (twice := MemoryChannel()), "other": twice}, "give each name an object of its own"),
    ],
)
async def test_channels_are_checked_when_the_system_opens(channels: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        async with System.open(":memory:", channels=channels):
            pass


@pytest.mark.parametrize(("option", "value"), [("tries", 0), ("first_s", -1), ("timeout_s", "5"), ("at_once", True)])
async def test_options_of_a_channel_are_checked(option: str, value: Any) -> None:
    channel = MemoryChannel()
    setattr(channel, option, value)
    with pytest.raises(UsageError, match=f"has {option}="):
        async with System.open(":memory:", channels={"irc": channel}):
            pass
