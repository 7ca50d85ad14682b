"""Slash commands between other messages of a chat: each answered where it was typed, and nothing overtaken."""

from __future__ import annotations

import trio
from helpers import check, events, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, System
from callboard.actors.channels import MemoryChannel
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore


async def test_c162_c163_a_control_command_is_answered_in_the_chat_while_a_turn_runs() -> None:
    go = trio.Event()
    script = scripted(Reply.wait(go, Reply.text("the answer")), Reply.hang("half"))
    store, channel = MemoryStore(), MemoryChannel(Agent("helper", model=script))
    async with System.open(store, channels={"irc": channel}) as system:
        await channel.say("question", message="1")
        await wait_all_tasks_blocked()
        await channel.say("/status", message="2", id="status")
        status = await channel.reply()
        assert status.route["message"] == "2" and status.text != "the answer"
        await channel.say("/status", message="2", id="status")
        go.set()
        answer = await channel.reply()
        assert (answer.text, answer.route["message"]) == ("the answer", "1"), "the command has not taken its place"
        await channel.say("another", message="3")
        await wait_all_tasks_blocked()
        await channel.say("/stop", message="4")
        assert (await channel.reply()).route["message"] == "4"
        await (await system.get("irc:chat")).wait_idle()
        await wait_all_tasks_blocked()
        ends = await events(store, e.TurnEnd, "irc:chat")
        assert [end.reason.kind for end in ends] == ["completed", "aborted"]
        assert len(channel.sent) == 3, "who stopped it is told that once, and nothing else"
    await check(store)


async def test_c164_any_other_command_waits_for_its_own_turn_and_messages_behind_it_do_not_overtake_it() -> None:
    go = trio.Event()
    script = scripted(Reply.wait(go, Reply.text("one")), "two")
    store, channel = MemoryStore(), MemoryChannel(Agent("helper", model=script))
    async with System.open(store, channels={"irc": channel}):
        await channel.say("first", message="1")
        await wait_all_tasks_blocked()
        await channel.say("/help", message="2")
        await channel.say("second", message="3")
        go.set()
        replies = [await channel.reply() for _ in range(3)]
        assert [entry.route["message"] for entry in replies] == ["1", "2", "3"]
        assert (replies[0].text, replies[2].text) == ("one", "two")
    await check(store)
