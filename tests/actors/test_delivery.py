"""Replies go out: once they are on disk, in order for each chat, until the channel takes them (C191-C198, C268)."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, make, opened, order, say, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Channel, Plugin, Reject, System, ToolContext, tool
from callboard.actors.channels import MemoryChannel, lost_replies
from callboard.actors.seams import Next, SeamContext
from callboard.actors.testing import Reply, ScriptedModel
from callboard.actors.turns.respond import BLOCKED, EMPTY, FAILED
from callboard.actors.values import Delivery
from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import DeliveryFailed
from callboard.storage.messages import Image

ROUTE = {"channel": "irc", "chat": "#docs", "message": "7"}


def texts(entries: list[Delivery]) -> list[str]:
    return [entry.text for entry in entries]


async def test_c191_a_routed_turn_puts_its_reply_with_its_end_and_it_is_delivered() -> None:
    sent: list[Delivery] = []
    store = MemoryStore()

    async def deliver(entry: Delivery) -> None:
        assert await events(store, e.OutboxPut), "nothing is delivered before its entry is on disk"
        sent.append(entry)

    async with opened(make(scripted("hello")), store, channels={"irc": deliver}) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        await wait_all_tasks_blocked()
        assert await order(store) == ("put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed} out sent")
        (put,) = await events(store, e.OutboxPut)
        (entry,) = sent
        assert (entry.delivery, entry.route, entry.text, entry.turn) == (put.delivery, ROUTE, "hello", 1)
        assert (put.step, put.streamed, put.latency_ms >= 0) == (1, False, True)
        (end,) = await events(store, e.TurnEnd)
        assert end.delivery == "put"
        assert system.statistics()["channels"]["irc"]["sent"] == 1


class Refuses(Plugin):
    """Blocks every turn."""

    async def pre_step(self, ctx: SeamContext, boundary: Any, next: Next[Any, Any]) -> Any:
        return Reject("no")


@pytest.mark.parametrize(
    ("reply", "plugins", "said"),
    [
        (Reply.chunks([c.finish("stop")]), [], EMPTY),
        (Reply.fail("QUOTA"), [], FAILED),
        (Reply.text("never"), [Refuses()], BLOCKED),
    ],
    ids=["empty", "failed", "blocked"],
)
async def test_c192_a_turn_that_says_nothing_is_spoken_for(reply: Reply, plugins: list[Plugin], said: str) -> None:
    channel = MemoryChannel()
    async with opened(make(scripted(reply), plugins=plugins), channels={"irc": channel}) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        assert (await channel.reply(chat="#docs")).text == said
        await wait_all_tasks_blocked()
        assert (await order(system.store)).rpartition(" TE1")[2].split()[1:] == ["out", "sent"]
    assert len({EMPTY, FAILED, BLOCKED}) == 3


async def test_c192_a_turn_that_its_user_aborted_says_nothing() -> None:
    channel = MemoryChannel()
    async with opened(make(scripted(Reply.hang("half"))), channels={"irc": channel}) as (system, ref):
        await ref.followup("hi", route=ROUTE)
        await wait_all_tasks_blocked()
        await ref.cancel("user")
        await ref.wait_idle()
        (end,) = await events(system.store, e.TurnEnd)
        assert end.delivery == "none" and not await events(system.store, e.OutboxPut)
    assert channel.sent == []


async def test_c192_a_cancel_behind_the_last_word_says_nothing_and_the_end_does_not_pretend() -> None:
    class Regrets(Plugin):
        async def respond(self, ctx: SeamContext, text: str, next: Next[str, str | None]) -> str | None:
            await ctx.agent.cancel()
            return text

    async with opened(make(scripted("hm"), plugins=[Regrets()]), channels={"irc": MemoryChannel()}) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        assert (await order(system.store)).endswith("A SE TC1 TE1{aborted user}")
        (end,) = await events(system.store, e.TurnEnd)
        assert end.delivery == "none"


@tool
async def answers(ctx: ToolContext[Any], chat: str) -> str:
    """Answers a chat itself."""
    await ctx.reply("from the tool", route={"channel": "irc", "chat": chat} if chat else None)
    return "told"


async def test_c193_what_a_tool_answered_is_not_answered_again_and_history_does_not_pretend() -> None:
    channel = MemoryChannel()
    script = scripted(Reply.tools(("c", "answers", {"chat": ""})), "from the model")
    async with opened(make(script, tools=[answers]), channels={"irc": channel}) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        await wait_all_tasks_blocked()
        assert texts(channel.sent) == ["from the tool"] and channel.sent[0].route == ROUTE
        (end,) = await events(system.store, e.TurnEnd)
        assert end.delivery == "answered"
        assert [m.text for m in await ref.messages()] == ["hi", "", "told", "from the model"]


async def test_c193_a_tool_that_answered_elsewhere_has_not_answered_here() -> None:
    channel = MemoryChannel()
    script = scripted(Reply.tools(("c", "answers", {"chat": "#other"})), "from the model")
    async with opened(make(script, tools=[answers]), channels={"irc": channel}) as (_, ref):
        await say(ref, "hi", route=ROUTE)
        assert (await channel.reply(chat="#other")).text == "from the tool"
        assert (await channel.reply(chat="#docs")).text == "from the model"


@tool
async def paints(ctx: ToolContext[Any]) -> str:
    """Answers with a picture."""
    await ctx.reply([Image.from_bytes(b"pixels", "image/png")])
    return "painted"


async def test_a_picture_is_a_blob_in_the_log_and_bytes_for_the_channel() -> None:
    channel = MemoryChannel()
    script = scripted(Reply.tools(("c", "paints", {})), "look")
    async with opened(make(script, tools=[paints]), channels={"irc": channel}) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        (picture,) = (await channel.reply(chat="#docs")).content
        assert isinstance(picture, Image) and picture.data == b"pixels"
        (put,) = await events(system.store, e.OutboxPut)
        assert getattr(put.content[0], "data", b"") is None


async def test_c196_an_unrouted_turn_delivers_nothing() -> None:
    channel = MemoryChannel()
    async with opened(make(scripted("hello")), channels={"irc": channel}) as (system, ref):
        assert (await ref.ask("hi")).text == "hello"
        assert not await events(system.store, e.OutboxPut)
    assert channel.sent == []


class Says(Plugin):
    """Answers `respond` alone, or throws."""

    def __init__(self, text: str | Exception | None) -> None:
        self.text = text

    async def respond(self, ctx: SeamContext, text: str, next: Next[str, str | None]) -> str | None:
        if isinstance(self.text, Exception):
            raise self.text
        return self.text


@pytest.mark.parametrize(
    ("answer", "said", "delivery"),
    [(None, [], "suppressed"), (ValueError("no"), ["hello"], "put"), ("HELLO", ["HELLO"], "put")],
    ids=["none", "throws", "other"],
)
async def test_c268_respond_has_the_last_word(answer: Any, said: list[str], delivery: str) -> None:
    channel = MemoryChannel()
    async with opened(make(scripted("hello"), plugins=[Says(answer)]), channels={"irc": channel}) as (system, ref):
        await say(ref, "hi", route=ROUTE)
        await wait_all_tasks_blocked()
        (end,) = await events(system.store, e.TurnEnd)
        assert (texts(channel.sent), end.delivery) == (said, delivery)


# -- retries


class Flaky(Channel):
    """Takes what the test lets it take; notes when it was asked."""

    def __init__(self, refuse: dict[str, Any]) -> None:
        self.refuse, self.asked, self.sent = refuse, list[tuple[float, str]](), list[Delivery]()

    async def deliver(self, entry: Delivery) -> None:
        await trio.lowlevel.checkpoint()
        self.asked.append((trio.current_time(), entry.text))
        left = self.refuse.get(entry.text, 0)
        if isinstance(left, Exception):
            raise left
        if left:
            self.refuse[entry.text] = left - 1
            raise OSError("the line is down")
        self.sent.append(entry)


def route(chat: str, **more: str) -> dict[str, str]:
    return {"channel": "irc", "chat": chat, **more}


async def test_c198_a_retried_entry_is_not_overtaken_in_its_chat_and_delays_no_other(autojump_clock: MockClock) -> None:
    channel = Flaky({"one": 3})
    async with opened(make(scripted("one", "two", "other")), channels={"irc": channel}) as (system, ref):
        began = trio.current_time()
        await say(ref, "1", route=route("a"))
        await say(ref, "2", route=route("a", message="2"))
        await say(ref, "3", route=route("b"))
        await trio.sleep(30)
        assert [(round(when - began), text) for when, text in channel.asked] == [
            (0, "one"),
            (0, "other"),
            (1, "one"),
            (3, "one"),
            (7, "one"),
            (7, "two"),
        ]
        assert texts(channel.sent) == ["other", "one", "two"]
        sent = [event.delivery for event in await events(system.store, e.OutboxSent)]
        assert sent == [entry.delivery for entry in channel.sent]
        known = system.statistics()["channels"]["irc"]
        assert (known["sent"], known["retried"], known["waiting"]) == (3, 3, 0)
        assert known["last_failure"] == "UNKNOWN: OSError: the line is down"


async def test_c195_a_reply_that_fails_for_good_is_parked_and_the_next_turn_knows(autojump_clock: MockClock) -> None:
    channel = Flaky({"one": 99})
    channel.tries = 3
    model = scripted("one", "two", "three")
    async with opened(make(model), channels={"irc": channel}) as (system, ref):
        await say(ref, "1", route=route("a"))
        await say(ref, "2", route=route("a"))
        await trio.sleep(60)
        assert [text for _, text in channel.asked] == ["one", "one", "one", "two"]
        (lost,) = await events(system.store, e.OutboxFailed)
        assert lost.failure.message == "OSError: the line is down"
        state = system._runtime.registry.peek("a")  # pyright: ignore[reportPrivateUsage]
        assert state is not None
        (sentence,) = lost_replies(state.state)
        assert "channel irc, chat a: OSError: the line is down. It began: 'one'" in sentence
        await say(ref, "3", route=route("a"))
        told = model.requests[-1].messages[-1].text
        assert told == f"Replies of yours that did not arrive:\n{sentence}"


async def test_a_reply_that_is_refused_for_good_is_not_tried_again(autojump_clock: MockClock) -> None:
    channel = Flaky({"one": DeliveryFailed("too long", final=True)})
    async with opened(make(scripted("one", "two")), channels={"irc": channel}) as (system, ref):
        await say(ref, "1", route=route("a"))
        await say(ref, "2", route=route("a"))
        await trio.sleep(60)
        assert [text for _, text in channel.asked] == ["one", "two"]
        (lost,) = await events(system.store, e.OutboxFailed)
        assert (lost.failure.code, lost.failure.message) == ("REFUSED", "too long")


async def test_a_channel_that_says_when_to_come_again_is_obeyed_up_to_its_longest_pause(autojump_clock: MockClock) -> None:
    channel = Flaky({"one": DeliveryFailed("slow down", retry_after_s=20)})
    channel.tries = 2
    async with opened(make(scripted("one")), channels={"irc": channel}) as (_, ref):
        await say(ref, "1", route=route("a"))
        await trio.sleep(60)
        assert channel.asked[1][0] - channel.asked[0][0] == 20


async def test_a_channel_that_hangs_is_timed_out_and_delays_no_other_chat(autojump_clock: MockClock) -> None:
    sent: list[str] = []

    class Hangs(Channel):
        timeout_s, tries = 5, 2

        async def deliver(self, entry: Delivery) -> None:
            if entry.route["chat"] == "a":
                await trio.sleep_forever()
            sent.append(entry.text)

    async with opened(make(scripted("one", "two")), channels={"irc": Hangs()}) as (system, ref):
        await say(ref, "1", route=route("a"))
        await say(ref, "2", route=route("b"))
        assert sent == [] or sent == ["two"]
        await trio.sleep(30)
        assert sent == ["two"]
        (lost,) = await events(system.store, e.OutboxFailed)
        assert lost.failure.code == "TIMEOUT"


async def test_one_channel_that_fails_delays_no_other(autojump_clock: MockClock) -> None:
    bad, good = Flaky({"one": 99}), MemoryChannel()
    async with opened(make(scripted("one", "two")), channels={"irc": bad, "good": good}, grace=1) as (_, ref):
        await say(ref, "1", route=route("a"))
        began = trio.current_time()
        await say(ref, "2", route={"channel": "good", "chat": "a"})
        await good.reply(chat="a")
        assert trio.current_time() == began


@pytest.mark.parametrize("lane", [16, 1])
async def test_at_most_so_many_chats_are_served_side_by_side(lane: int, autojump_clock: MockClock) -> None:
    now, most = 0, 0

    class Slow(Channel):
        at_once = lane

        async def deliver(self, entry: Delivery) -> None:
            nonlocal now, most
            now += 1
            most = max(most, now)
            await trio.sleep(1)
            now -= 1

    store = MemoryStore()
    agent = make(ScriptedModel(lambda request: Reply.text("hello")))
    async with System.open(store, agents=[agent], channels={"irc": Slow()}) as system:
        for number in range(20):
            ref = await system.spawn(agent, id=f"a{number}")
            await ref.followup("hi", route=route(str(number)))
        await trio.sleep(60)
        assert most == lane
        assert system.statistics()["channels"]["irc"]["sent"] == 20
    await check(store)
