"""C266: what `accept` refuses, throws at, rewrites and never sees; and what becomes of a `command` seam that throws."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from helpers import check, events, make, opened, order, say, scripted

from callboard.actors import Agent, Plugin, Reject, System, ToolContext, delegate, tool
from callboard.actors.answers import Command
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import InputRefused
from callboard.storage.messages import Message, TextBlock


class Door(Plugin):
    """Decides by the text, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked = list[str]()

    async def accept(self, ctx: SeamContext, message: Message, next: Next[Message, Any]) -> Any:
        self.asked.append(message.text)
        if message.text == "refuse":
            return Reject("not today")
        if message.text == "throw":
            raise LookupError("no such door")
        if message.text == "soft":
            message = msgspec.structs.replace(message, content=(TextBlock("LOUD"),))
        return await next(message)


@pytest.mark.parametrize("way", ["followup", "steer", "inject", "ask"])
@pytest.mark.parametrize(("text", "why"), [("refuse", "not today"), ("throw", "no such door")])
async def test_c266_what_is_refused_at_the_door_leaves_nothing_behind(way: str, text: str, why: str) -> None:
    async with opened(make(scripted(), plugins=[Door()])) as (system, ref):
        with pytest.raises(InputRefused, match=why):
            await getattr(ref, way)(text)
        await ref.wait_idle()
        assert await order(system.store) == ""


async def test_c266_a_rewrite_is_what_is_put() -> None:
    async with opened(make(scripted("heard"), plugins=[Door()])) as (system, ref):
        await say(ref, "soft")
        (put,) = await events(system.store, e.InboxPut)
        assert (put.message.id, put.message.text) == ("soft", "LOUD")


async def test_c266_nobody_is_asked_for_mail_and_for_ends_of_children() -> None:
    @tool
    async def writes(ctx: ToolContext[Any]) -> str:
        """Writes to itself and to another."""
        await ctx.send("b", "refuse")
        await ctx.send(ctx.agent, "refuse")
        return "written"

    door, store = Door(), MemoryStore()
    worker = Agent("worker", model=scripted("done"), plugins=[door])
    calls = Reply.tools(("c1", "worker", {"task": "throw"}), ("c2", "writes", {}))
    lead = make(scripted(calls, "one", "two", "three", "four"), tools=[delegate(worker, background=True), writes], plugins=[door])
    async with System.open(store, agents=[lead, worker]) as system:
        other = await system.spawn(worker.replace(name="other", model=scripted("mail")), id="b")
        ref = await system.spawn(lead, id="a")
        await say(ref, "go")
        await other.wait_idle()
    assert door.asked == ["go"]
    texts = [put.message.text for put in await events(store, e.InboxPut)]
    assert texts[0] == "go" and "refuse" in texts and len(texts) == 3, "the mail, and the end of the child"
    await check(store)


async def test_c266_a_command_seam_that_throws_is_answered() -> None:
    class Broken(Plugin):
        async def command(self, ctx: SeamContext, command: Command, next: Next[Command, Any]) -> Any:
            raise LookupError("no such table")

    async with opened(make(scripted("alive"), plugins=[Broken()])) as (system, ref):
        assert (await ref.ask("/look", message_id="/look")).text == "The command failed: LookupError: no such table"
        assert await order(system.store) == "put[t](/look) TS1 claim(/look) cmd cmdres{error} TE1{completed}"
        assert (await ref.ask("hello")).text == "alive"


async def test_a_message_that_a_plugin_makes_anew_keeps_its_id() -> None:
    class Anew(Plugin):
        async def accept(self, ctx: SeamContext, message: Message, next: Next[Message, Any]) -> Any:
            return await next(Message("another", "user", message.content))

    agent = make(scripted("one", "two")).replace(plugins=[Anew()])
    async with opened(agent) as (_, ref):
        with trio.fail_after(10):
            assert (await ref.ask("hi")).text == "one"
            assert (await ref.ask("there", message_id="m")).text == "two"
            assert (await ref.ask("there", message_id="m")).text == "two"
            assert (await ref.outcome("m")).text == "two"
