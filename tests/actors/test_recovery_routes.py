"""Crashes of a turn that answers a chat: each reply is put once, under an id of its own (C193, C269)."""

from __future__ import annotations

from typing import Any

import trio
from crashing import image, live, restart
from helpers import make, notation, scripted

from callboard.actors.ref import AgentRef
from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import ToolContext, tool
from callboard.storage import events as e
from callboard.storage.records import Record

ROUTE = {"channel": "irc", "chat": "#docs"}


async def replies(ctx: ToolContext[Any]) -> str:
    """Answers the chat itself."""
    await ctx.reply("I am on it")
    return "told"


def said(log: list[Record]) -> list[tuple[str, str]]:
    """What the chat is told, with the id it is told under."""
    puts = [record.event for record in log if isinstance(record.event, e.OutboxPut)]
    return [(put.delivery, "".join(getattr(block, "text", "") for block in put.content)) for put in puts]


def texts(log: list[Record]) -> list[str]:
    """What the chat is told."""
    return [text for _, text in said(log)]


async def send(ref: AgentRef[Any]) -> None:
    await ref.followup("hi", message_id="hi", route=ROUTE)


async def test_c193_a_tool_that_answered_the_chat_has_answered_it_for_ever() -> None:
    answers = tool(name="answers", replay="safe")(replies)
    life = await live(make(scripted(Reply.tools(("c", "answers", {})), "and so on"), tools=[answers]), send)
    assert notation(life.records).endswith("A call(c) out res(c) SE SS1.2 Q1 C* A SE TE1{completed}")
    for end in life.ends:
        model = scripted(*([Reply.tools(("c", "answers", {}))] if end < life.upto("A") else []), "and so on")
        after = await restart(make(model, tools=[answers]), await image(life.records, end))
        if len(after.records) > 1:
            assert texts(after.records) == texts(life.records), notation(after.records, end)
            if end >= life.upto("TS1"):  # a turn that was not on disk has sent nothing, and another has other ids
                assert said(after.records) == said(life.records)
            last = after.records[-1].event
            assert isinstance(last, e.TurnEnd) and last.delivery == "answered"


async def test_c269_two_answers_of_one_turn_have_two_ids() -> None:
    there = trio.Event()

    async def both(ref: AgentRef[Any]) -> None:
        await ref.followup("one", message_id="one", route=ROUTE)
        await ref.steer("two", message_id="two", route=ROUTE)
        there.set()

    life = await live(make(scripted(Reply.wait(there, Reply.text("first")), "second")), both)
    assert notation(life.records).endswith("A SE out claim(two) SS1.2 U(two) Q1 C* A SE TE1{completed} out")
    for end in life.ends:
        if end >= life.upto("put[s](two)"):
            model = scripted(*(["first"] if end < life.upto("A") else []), "second")
            after = await restart(make(model), await image(life.records, end))
            assert said(after.records) == said(life.records), notation(after.records, end)
            assert len({delivery for delivery, _ in said(after.records)}) == 2
