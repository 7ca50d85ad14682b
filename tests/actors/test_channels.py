"""People write, agents answer: which agent, which turn, and where each answer goes (C182-C185, C197, C269)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from helpers import check, events, make, order, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Answer, Plugin, System, ToolContext, tool
from callboard.actors.channels import MemoryChannel
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel, every_crash, trio_wall
from callboard.actors.values import Delivery
from callboard.storage import Store
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore


@asynccontextmanager
async def chatting(
    model: ScriptedModel, *, agent: dict[str, Any] | None = None, edits: bool = False, **options: Any
) -> AsyncGenerator[tuple[System, MemoryChannel, MemoryStore]]:
    """A system whose agents are reached by a channel `irc` alone; all is verified when it has closed."""
    store, channel = MemoryStore(), MemoryChannel(make(model, **(agent or {})), edits=edits)
    async with System.open(store, channels={"irc": channel}, **options) as system:
        yield system, channel, store
    await check(store)


async def test_c185_a_chat_has_an_agent_of_its_own_opened_on_its_first_message() -> None:
    async with chatting(ScriptedModel(lambda request: Reply.text(f"to {request.messages[-1].text}"))) as (system, channel, store):
        for chat, thread in (("#a", None), ("b:c", None), ("#a", "t")):
            receipt = await channel.say(f"hi {chat}", chat=chat, id="m1", **({"thread": thread} if thread else {}))
            assert receipt is not None and receipt.message_id == "m1"
        assert (await channel.reply(chat="b:c")).text == "to hi b:c"
        assert (await channel.reply(chat="#a")).route == {"channel": "irc", "chat": "#a"}
        assert (await channel.reply(chat="#a")).route == {"channel": "irc", "chat": "#a", "thread": "t"}
        assert [agent.id async for agent in system.agents()] == ["irc:#a", "irc::#a:t", "irc:b:c"]
        (put,) = await events(store, e.InboxPut, "irc:#a")
        assert (put.lane, put.route) == ("next-turn", e.Route(channel="irc", chat="#a"))


async def test_a_message_that_comes_twice_is_taken_once() -> None:
    async with chatting(scripted("one")) as (_, channel, store):
        first = await channel.say("hi", id="m1")
        assert await channel.say("hi", id="m1") == first
        await channel.reply()
        assert await channel.say("hi", id="m1") == first
        await wait_all_tasks_blocked()
        assert len(await events(store, e.TurnEnd, "irc:chat")) == 1


async def test_c182_a_message_during_tools_is_read_before_the_next_call_and_its_answer_goes_to_it() -> None:
    there, go = trio.Event(), trio.Event()

    @tool
    async def waits() -> str:
        """Waits."""
        there.set()
        await go.wait()
        return "done"

    script = scripted(Reply.tools(("c", "waits", {})), "both")
    async with chatting(script, agent={"tools": [waits]}) as (_, channel, store):
        await channel.say("one", message="1", id="one", sender="ann")
        await there.wait()
        await channel.say("two", message="2", id="two", sender="bob")
        go.set()
        entry = await channel.reply()
        assert (entry.text, entry.route["message"]) == ("both", "2")
        assert await order(store, "irc:chat") == (
            "put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 C* A call(c) put[s](two) res(c) SE"
            " claim(two) SS1.2 U(two) Q1 C* A SE TE1{completed} out sent"
        )


async def test_c269_two_quick_questions_are_both_answered_each_where_it_was_asked() -> None:
    there, go = trio.Event(), trio.Event()
    script = scripted(Reply.wait(go, Reply.text("first")), "second")
    async with chatting(script) as (_, channel, store):
        await channel.say("one", message="1", id="one")
        await wait_all_tasks_blocked()
        await channel.say("two", message="2", id="two")
        go.set()
        first, second = await channel.reply(), await channel.reply()
        assert [(e.text, e.route["message"]) for e in (first, second)] == [("first", "1"), ("second", "2")]
        await wait_all_tasks_blocked()
        log = await order(store, "irc:chat")
        assert log.startswith("put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 put[s](two) C* A SE out claim(two)")
        rest = log.partition(" out claim(two) ")[2].replace("sent ", "", 1)
        assert rest == "SS1.2 U(two) Q1 C* A SE TE1{completed} out sent"
    assert not there.is_set()


async def test_c197_a_reply_to_an_older_message_goes_there_and_not_to_the_newest() -> None:
    go = trio.Event()
    script = scripted(Reply.wait(go, Reply.text("old")), "new")
    agent = make(script)

    class OneAgent(MemoryChannel):
        def session(self, route: Any, sender: str | None) -> str:
            return f"person:{sender}"

    channel, store = OneAgent(agent), MemoryStore()
    async with System.open(store, channels={"irc": channel}) as system:
        await channel.say("one", chat="a", thread="old", message="1", sender="ann", id="m1")
        await wait_all_tasks_blocked()
        await channel.say("two", chat="a", thread="new", message="2", sender="ann", id="m2")
        go.set()
        old, new = await channel.reply(chat="a"), await channel.reply(chat="a")
        assert (old.text, old.route["thread"], old.route["message"]) == ("old", "old", "1")
        assert (new.text, new.route["thread"], new.route["message"]) == ("new", "new", "2")
        assert [agent.id async for agent in system.agents()] == ["person:ann"]
        puts = await events(store, e.InboxPut, "person:ann")
        assert [put.lane for put in puts] == ["next-turn", "next-turn"], "another place is another turn"
        assert [put.message.id for put in puts] == ["irc::a:old:m1", "irc::a:new:m2"], "ids are unique in one chat alone"
    await check(store)


async def test_c183_messages_at_once_keep_their_order_routes_and_senders() -> None:
    go = trio.Event()
    script = scripted(Reply.wait(go, Reply.text("first")), "all")
    async with chatting(script) as (_, channel, store):
        await channel.say("0", message="0")
        await wait_all_tasks_blocked()
        for number in range(1, 6):
            await channel.say(str(number), message=str(number), sender=f"s{number}", id=str(number))
        go.set()
        await channel.reply()
        assert (await channel.reply()).route["message"] == "5"
        claims = await events(store, e.InboxClaim, "irc:chat")
        assert claims[1].ids == ("1", "2", "3", "4", "5")
        puts = await events(store, e.InboxPut, "irc:chat")
        assert [(put.sender, put.route.message) for put in puts[1:] if put.route] == [(f"s{n}", f"{n}") for n in range(1, 6)]


async def test_a_message_does_not_overtake_a_prompt_that_waits() -> None:
    go = trio.Event()
    script = scripted(Reply.wait(go, Reply.text("one")), "two", "three")
    async with chatting(script) as (system, channel, store):
        await channel.say("1", id="1")
        await wait_all_tasks_blocked()
        await (await system.get("irc:chat")).followup("2", message_id="2", route={"channel": "irc", "chat": "chat"})
        await channel.say("3", id="3")
        go.set()
        assert [(await channel.reply()).text for _ in range(3)] == ["one", "two", "three"]
        claims = await events(store, e.InboxClaim, "irc:chat")
        assert [claim.ids for claim in claims] == [("1",), ("2",), ("3",)]


async def test_a_slash_command_is_never_steered_into_the_model() -> None:
    go = trio.Event()

    class Help(Plugin):
        async def command(self, ctx: SeamContext, command: Any, next: Next[Any, Any]) -> Any:
            return Answer("help!")

    script = scripted(Reply.wait(go, Reply.text("one")))
    async with chatting(script, agent={"plugins": [Help()]}) as (_, channel, _store):
        await channel.say("1")
        await wait_all_tasks_blocked()
        await channel.say(" /help")
        go.set()
        assert [(await channel.reply()).text for _ in range(2)] == ["one", "help!"]


@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_comes_when_a_turn_is_over_is_a_prompt(cancelled: bool) -> None:
    script = scripted(Reply.hang("half") if cancelled else "one", "two")
    async with chatting(script) as (system, channel, store):
        await channel.say("1")
        await wait_all_tasks_blocked()
        if cancelled:
            await (await system.get("irc:chat")).cancel("user")
        await channel.say("2")
        while "two" not in [entry.text for entry in channel.sent]:
            await channel.reply()
        puts = await events(store, e.InboxPut, "irc:chat")
        assert [put.lane for put in puts] == ["next-turn", "next-turn"]


@tool
async def whose(ctx: ToolContext[Any]) -> str:
    """Says who asked, and where."""
    return f"{ctx.sender} at {ctx.route.message if ctx.route else None}"


async def test_a_tool_knows_who_sent_the_message_it_works_for_also_one_that_was_steered_in() -> None:
    go = trio.Event()
    script = scripted(Reply.wait(go, Reply.text("x")), Reply.tools(("c", "whose", {})), "y", Reply.tools(("d", "whose", {})), "z")
    async with chatting(script, agent={"tools": [whose]}) as (_, channel, store):
        await channel.say("1", sender="ann", message="1")
        await wait_all_tasks_blocked()
        await channel.say("2", sender="bob", message="2")
        go.set()
        for _ in range(2):
            await channel.reply()
        await channel.say("3", sender="cat", message="3")
        await channel.reply()
        results = await events(store, e.ToolResult, "irc:chat")
        assert [getattr(result.content[0], "text", "") for result in results] == ["bob at 2", "cat at 3"]


# -- the second question after a tool has answered the first


@tool
async def answers(ctx: ToolContext[Any]) -> str:
    """Answers the chat itself."""
    await ctx.reply("from the tool")
    return "told"


async def test_a_tool_that_answered_one_question_has_not_answered_the_next() -> None:
    there, go = trio.Event(), trio.Event()

    @tool
    async def waits(ctx: ToolContext[Any]) -> str:
        """Answers, and waits."""
        await ctx.reply("from the tool")
        there.set()
        await go.wait()
        return "told"

    script = scripted(Reply.tools(("c", "waits", {})), "to the second")
    async with chatting(script, agent={"tools": [waits]}) as (_, channel, _store):
        await channel.say("1", message="1")
        await there.wait()
        await channel.say("2", message="2")
        go.set()
        first, second = await channel.reply(), await channel.reply()
        assert [(e.text, e.route["message"]) for e in (first, second)] == [("from the tool", "1"), ("to the second", "2")]


async def test_a_reminders_answer_goes_to_the_chat_that_asked_for_it(autojump_clock: MockClock) -> None:
    @tool(replay="safe")
    async def remind_me(ctx: ToolContext[Any], text: str, minutes: int) -> str:
        """Reminds."""
        await ctx.agent.remind(text, after_s=60 * minutes, route=ctx.route)
        return "set"

    script = scripted(Reply.tools(("c", "remind_me", {"text": "tea", "minutes": 5})), "I will", "elsewhere", "tea is ready")
    agent = {"tools": [remind_me]}
    async with chatting(script, agent=agent, now=trio_wall("2026-12-01T08:00Z")) as (_, channel, _store):
        await channel.say("remind me", chat="a", message="1")
        assert (await channel.reply(chat="a")).text == "I will"
        await channel.say("hi", chat="b")
        assert (await channel.reply(chat="b")).text == "elsewhere"
        began = trio.current_time()
        entry = await channel.reply(chat="a")
        assert (entry.text, entry.route["message"]) == ("tea is ready", "1")
        assert 299 <= trio.current_time() - began <= 330


# -- kills


async def test_c269_c191_killed_anywhere_each_answer_arrives_and_what_comes_twice_has_one_id() -> None:
    world: list[tuple[str, str, str]] = []
    """What the chat was told, over all lives: delivery, text, message that it answers."""

    async def scenario(store: Store) -> list[tuple[str, str, str]]:
        told: list[tuple[str, str, str]] = []
        channel = MemoryChannel(make(ScriptedModel(answer)))

        async def deliver(entry: Delivery) -> None:
            told.append((entry.delivery, entry.text, entry.route["message"]))
            world.append(told[-1])
            await MemoryChannel.deliver(channel, entry)

        channel.deliver = deliver  # type: ignore[method-assign]
        async with System.open(store, channels={"irc": channel}) as system:
            await channel.say("one", message="1", id="one")
            await channel.say("two", message="2", id="two")
            await (await system.get("irc:chat")).wait_idle()
        return told

    def answer(request: Any) -> Reply:
        return Reply.text(f"to {request.messages[-1].text}")

    kills = 0
    async for crash in every_crash(scenario):
        kills += 1
        puts = await events(crash.store, e.OutboxPut, "irc:chat")
        sent = await events(crash.store, e.OutboxSent, "irc:chat")
        assert [put.delivery for put in puts] == [event.delivery for event in sent], crash
        assert [put.route.message for put in puts] == ["1", "2"], crash
        arrived = {delivery for delivery, _, _ in world}
        assert {put.delivery for put in puts} <= arrived, crash
        texts = {delivery: text for delivery, text, _ in world}
        assert all((delivery, text) in texts.items() for delivery, text, _ in world), "one id, one text"
        world.clear()
    assert kills > 4
