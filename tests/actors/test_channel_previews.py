"""Answers that are shown while they stream (C194): by edits, throttled, and never said twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from crashing import image, live
from helpers import check, events, make, order, scripted
from test_channels import chatting
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Plugin, System, ToolContext, tool
from callboard.actors.channels import MemoryChannel
from callboard.actors.plugins import Retry
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel, every_crash
from callboard.actors.turns.respond import FAILED
from callboard.storage import Store
from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Chunk, Failure, Request, TextBlock, ToolCallBlock


class Slowly(Plugin):
    """A pause between any two chunks of a stream, in seconds."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s

    async def stream(self, ctx: SeamContext, request: Request, next: Any, /) -> AsyncIterator[Chunk]:
        async for chunk in next(request):
            yield chunk
            await trio.sleep(self.pause_s)


def slowly(pause_s: float = 0.3) -> dict[str, Any]:
    return {"plugins": [Slowly(pause_s)]}


async def test_c194_a_streamed_answer_is_edited_as_it_grows_and_not_sent_again(autojump_clock: MockClock) -> None:
    script = scripted(Reply.text("abcdefghij", parts=10))
    async with chatting(script, agent=slowly(), edits=True) as (_, channel, store):
        await channel.say("hi", message="1")
        await trio.sleep(20)
        (put,) = await events(store, e.OutboxPut, "irc:chat")
        assert put.streamed
        ids, shown = {delivery for delivery, _ in channel.edited}, [text for _, text in channel.edited]
        assert ids == {put.delivery}, "the preview and the answer are one message"
        assert shown[-1] == "abcdefghij" and shown == sorted(shown, key=len)
        assert 3 <= len(shown) <= 6, f"3.6 seconds of stream, an edit in each at most, and the last: {shown}"
        assert channel.sent == []
        assert (await order(store, "irc:chat")).endswith("TE1{completed} out sent")


async def test_c194_streamed_then_an_error_the_error_is_a_message_of_its_own(autojump_clock: MockClock) -> None:
    broken = Reply.chunks([*(c.text_delta(0, text) for text in "abc"), c.finish("error", failure=Failure("QUOTA", "no more"))])
    async with chatting(scripted(broken), agent=slowly(1), edits=True) as (_, channel, store):
        await channel.say("hi")
        entry = await channel.reply()
        assert (entry.text, entry.streamed) == (FAILED, False)
        assert channel.edited and entry.delivery not in {delivery for delivery, _ in channel.edited}
        await wait_all_tasks_blocked()
        assert (await order(store, "irc:chat")).endswith("TE1{error} out sent")


async def test_a_failed_attempt_is_forgotten_and_the_next_one_shown_in_its_place(autojump_clock: MockClock) -> None:
    broken = Reply.chunks([c.text_delta(0, "wrong"), c.finish("error", failure=Failure("SERVER", "once more"))])
    options = {"plugins": [Slowly(1.5), Retry(first_s=0.1)]}
    async with chatting(scripted(broken, Reply.text("right", parts=5)), agent=options, edits=True) as (_, channel, _store):
        await channel.say("hi")
        await trio.sleep(60)
        assert [text for _, text in channel.edited][:3] == ["wrong", "r", "ri"]
        assert channel.edited[-1][1] == "right" and len(channel.shown) == 1 and channel.sent == []


async def test_the_last_edit_that_fails_is_made_up_for_by_a_delivery(autojump_clock: MockClock) -> None:
    class NoEdits(MemoryChannel):
        async def edit(self, entry: Any, text: str) -> None:
            await super().edit(entry, text)
            raise OSError("too many edits")

    channel, store = NoEdits(make(scripted(Reply.text("abc", parts=3)), **slowly(1)), edits=True), MemoryStore()
    async with System.open(store, channels={"irc": channel}) as system:
        await channel.say("hi")
        entry = await channel.reply()
        assert (entry.text, entry.streamed) == ("abc", True)
        assert {entry.delivery} == {delivery for delivery, _ in channel.edited}
        await wait_all_tasks_blocked()
        assert system.statistics()["channels"]["irc"]["sent"] == 1
    await check(store)


def calls_chunks(name: str) -> list[Chunk]:
    return [c.block_start(1, ToolCallBlock("c", name, "")), c.tool_call_delta(1, arguments="{}"), c.block_end(1)]


async def test_text_beside_a_call_is_shown_whole_while_the_tool_works_and_then_replaced(autojump_clock: MockClock) -> None:
    @tool
    async def works(ctx: ToolContext[Any]) -> str:
        """Works, and tells somebody else."""
        await ctx.reply("psst", route={"channel": "irc", "chat": "other"})
        await trio.sleep(100)
        return "done"

    looks: list[Chunk] = [c.block_start(0, TextBlock("")), *(c.text_delta(0, letter) for letter in "I look"), c.block_end(0)]
    calls = Reply.chunks([*looks, *calls_chunks("works"), c.finish("tool-calls")])
    script = scripted(calls, Reply.text("found", parts=5))
    async with chatting(script, agent={"tools": [works], **slowly(0.2)}, edits=True) as (_, channel, store):
        channel.edit_every_s = 60
        await channel.say("hi")
        await trio.sleep(50)
        assert list(channel.shown.values()) == ["I look"]
        await trio.sleep(100)
        assert list(channel.shown.values()) == ["found"], "one message, whatever a tool has said elsewhere meanwhile"
        assert [entry.text for entry in channel.sent] == ["psst"]
        assert [put.delivery for put in await events(store, e.OutboxPut, "irc:chat")][1:] == list(channel.shown)


@tool
async def answers(ctx: ToolContext[Any]) -> str:
    """Answers the chat itself."""
    await ctx.reply("from the tool")
    return "told"


async def test_nothing_is_shown_of_what_will_not_be_said(autojump_clock: MockClock) -> None:
    class Censor(Plugin):
        async def respond(self, ctx: SeamContext, text: str, next: Next[str, str | None]) -> str | None:
            return None

    censored = {"plugins": [Slowly(1.5), Censor()]}
    async with chatting(scripted(Reply.text("abc", parts=3)), agent=censored, edits=True) as (_, channel, _store):
        await channel.say("hi")
        await trio.sleep(60)
        assert channel.edited == [] and channel.sent == []
    script = scripted(Reply.tools(("c", "answers", {})), Reply.text("abc", parts=3))
    async with chatting(script, agent={"tools": [answers], **slowly(1.5)}, edits=True) as (_, channel, _store):
        await channel.say("hi")
        await trio.sleep(60)
        assert channel.edited == [] and [entry.text for entry in channel.sent] == ["from the tool"]


async def test_where_a_reply_waits_for_another_try_nothing_is_edited_before_it(autojump_clock: MockClock) -> None:
    async with chatting(scripted("one", Reply.text("two", parts=3)), agent=slowly(1.5), edits=True) as (_, channel, store):
        channel.failing = OSError("down")
        await channel.say("1")
        await trio.sleep(10)
        await channel.say("2")
        await trio.sleep(4)
        channel.failing = None
        await trio.sleep(60)
        said = [text for _, text in channel.edited] + [entry.text for entry in channel.sent]
        assert set(said) == {"one", "two"}, "no part of the second was shown while the first waited"
        sent = [event.delivery for event in await events(store, e.OutboxSent, "irc:chat")]
        assert sent == [put.delivery for put in await events(store, e.OutboxPut, "irc:chat")]


async def test_two_answers_of_one_turn_are_two_messages(autojump_clock: MockClock) -> None:
    script = scripted(Reply.text("first", parts=5), Reply.text("second", parts=6))
    async with chatting(script, agent=slowly(1), edits=True) as (_, channel, store):
        await channel.say("1", message="1")
        await trio.sleep(2)
        await channel.say("2", message="2")
        await trio.sleep(60)
        puts = await events(store, e.OutboxPut, "irc:chat")
        assert [channel.shown[put.delivery] for put in puts] == ["first", "second"]
        assert [put.streamed for put in puts] == [True, True] and channel.sent == []


async def test_a_turn_that_waits_for_a_person_keeps_no_task_and_no_follower(autojump_clock: MockClock) -> None:
    @tool(approval="May I?")
    async def pays() -> str:
        """Pays."""
        return "paid"

    script = scripted(Reply.tools(("c", "pays", {}), text="I ask"))
    async with chatting(script, agent={"tools": [pays], **slowly(1)}, edits=True) as (system, channel, _store):
        await channel.say("1")
        await trio.sleep(60)
        assert list(channel.shown.values()) == ["I ask"]
        actor = system._runtime.registry.peek("irc:chat")  # pyright: ignore[reportPrivateUsage]
        assert actor is None or actor.log.followers == 0
        await (await system.get("irc:chat")).cancel("user")


async def test_c194_killed_anywhere_the_chat_has_the_whole_answer_once() -> None:
    worlds: list[MemoryChannel] = []

    async def scenario(store: Store) -> None:
        channel = MemoryChannel(make(ScriptedModel(lambda request: Reply.text("abcdef", parts=6))), edits=True)
        channel.edit_every_s = 0
        worlds.append(channel)
        async with System.open(store, channels={"irc": channel}) as system:
            await channel.say("hi", id="m")
            await (await system.get("irc:chat")).wait_idle()

    async for crash in every_crash(scenario):
        (put,) = await events(crash.store, e.OutboxPut, "irc:chat")
        assert len(await events(crash.store, e.OutboxSent, "irc:chat")) == 1, crash
        whole = [text for world in worlds for delivery, text in world.edited if delivery == put.delivery and text == "abcdef"]
        whole += [entry.text for world in worlds for entry in world.sent if entry.delivery == put.delivery]
        assert whole, crash
        before = {delivery for delivery, _ in worlds[0].edited}
        assert put.streamed or not before, f"what was shown before the kill is known to have been: {crash}"
        assert {delivery for world in worlds for delivery, _ in world.edited} <= {put.delivery}, crash
        worlds.clear()


async def test_what_the_process_before_may_have_shown_is_edited_and_not_sent() -> None:
    route = {"channel": "irc", "chat": "chat"}
    life = await live(make(scripted("whole")), lambda ref: ref.followup("hi", route=route))
    for edits in (True, False):
        store = await image(life.records, life.upto("A"))
        channel = MemoryChannel(make(scripted()), edits=edits)
        async with System.open(store, channels={"irc": channel}) as system:
            await (await system.get("a")).wait_idle()
            await wait_all_tasks_blocked()
            (put,) = await events(store, e.OutboxPut)
            assert put.streamed is edits
            assert list(channel.shown.values()) == ["whole"] * edits
            assert [entry.text for entry in channel.sent] == ["whole"] * (not edits)
        await check(store)


@pytest.mark.parametrize("edits", [True, False])
async def test_who_cannot_edit_is_sent_the_answer(edits: bool, autojump_clock: MockClock) -> None:
    async with chatting(scripted(Reply.text("abc", parts=3)), agent=slowly(), edits=edits) as (_, channel, _store):
        await channel.say("hi")
        await trio.sleep(10)
        assert bool(channel.edited) is edits and bool(channel.sent) is not edits
