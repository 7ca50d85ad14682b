"""Commands of agents that people reach through channels: they come along by themselves, and answer where they were asked."""

from __future__ import annotations

from typing import Any

import trio
from helpers import check, order, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, System, tool
from callboard.actors.channels import MemoryChannel
from callboard.actors.plugins import Commands, Permissions, chat_plugins
from callboard.actors.testing.scripted import Reply
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import DeliveryFailed


def helper(*replies: Any, **options: Any) -> Agent[Any, Any]:
    """An agent that names no plugins."""
    return Agent("helper", model=scripted(*replies), **options)


async def test_an_agent_of_a_channel_has_commands_and_compaction() -> None:
    store, desk = MemoryStore(), MemoryChannel(helper("hi"))
    async with System.open(store, channels={"desk": desk}) as system:
        await desk.say("/help", chat="1")
        assert "/compact" in (await desk.reply(chat="1")).text
        elsewhere = await system.spawn(helper("a prompt").replace(name="bare"), id="b")
        assert (await elsewhere.ask("/help")).text == "a prompt"
    await check(store)


async def test_a_list_of_plugins_is_what_it_says() -> None:
    store, desk = MemoryStore(), MemoryChannel(helper("a prompt", plugins=[]))
    async with System.open(store, channels={"desk": desk}):
        await desk.say("/help", chat="1")
        assert (await desk.reply(chat="1")).text == "a prompt"


async def test_a_control_command_is_answered_in_its_chat_while_the_turn_runs() -> None:
    store, go = MemoryStore(), trio.Event()
    desk = MemoryChannel(helper(Reply.wait(go, Reply.text("the answer"))))
    async with System.open(store, channels={"desk": desk}):
        await desk.say("go", chat="1", sender="ann")
        await wait_all_tasks_blocked()
        await desk.say("/status", chat="1", sender="ann")
        assert "waits for model" in (await desk.reply(chat="1")).text
        go.set()
        assert (await desk.reply(chat="1")).text == "the answer"
    await check(store)
    assert "cmd cmdres out" in await order(store, "desk:1")


async def test_c195_status_shows_replies_that_did_not_arrive() -> None:
    desk = MemoryChannel(helper("the answer"))
    async with System.open(MemoryStore(), channels={"desk": desk}) as system:
        desk.failing = DeliveryFailed("the room is gone", final=True)
        await desk.say("go", chat="1")
        ref = await system.get("desk:1")
        async for _ in ref.follow(types={"outbox/failed"}):
            break
        text = (await ref.ask("/status")).text
        assert "Replies: 0 under way, 1 failed" in text
        assert "channel desk, chat 1: the room is gone. It began: 'the answer'" in text


async def test_c165_c205_compact_summarises_by_the_plugin_of_the_box() -> None:
    replies = ["word " * 400 for _ in range(4)]
    async with System.open(":memory:", agents=[agent := helper(*replies, plugins=chat_plugins())]) as system:
        ref = await system.spawn(agent, id="a")
        assert (await ref.ask("/compact")).text == "There is nothing to summarise."
        assert [record async for record in ref.read(types={"surface/replace"})] == []
        for number in range(4):
            await ref.ask(f"{number} " + "long " * 300)
        before = (await ref.info()).context_tokens or 0
        assert (await ref.ask("/compact")).text == "A summary stands for what was said before."
        assert ((await ref.info()).context_tokens or 0) < before / 2
        assert (await ref.ask("/undo")).text.startswith("Taken back: 3 long")
        assert (await ref.ask("/undo")).text == "There is nothing to undo."
        assert len(await ref.messages()) == 1, "the summary stays"


async def test_c163_stop_ends_a_turn_that_waits_for_a_person() -> None:
    @tool
    async def pay() -> str:
        """Pay."""
        raise AssertionError("never reached")

    store = MemoryStore()
    agent = helper(Reply.tools(("c1", "pay", {})), tools=[pay], plugins=[Commands(), Permissions(ask=["pay"])])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("go")
        await wait_all_tasks_blocked()
        assert "waits for approval May a call pay" in (await ref.ask("/status")).text
        assert (await ref.ask("/stop")).text == "Stopped."
        await ref.wait_idle()
    await check(store)
    assert (await order(store)).endswith("cmd cmdres TC1 answered res(c1!ABORTED_BEFORE_DISPATCH) SE TE1{aborted user}")


def test_the_plugins_of_a_chat() -> None:
    assert [type(plugin).__name__ for plugin in chat_plugins()] == ["Retry", "Budget", "LoopGuard", "Commands", "Compaction"]
