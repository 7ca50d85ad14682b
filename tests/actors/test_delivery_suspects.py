"""Replies whose sending ends the process: tried a few times, one at a time, and parked; those beside them go out (C179, C195)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from helpers import check, events, make, opened, say, scripted
from test_delivery import Flaky, route
from trio.testing import MockClock

from callboard.actors import Agent, Channel, Limits, System, ToolContext, tool
from callboard.actors.channels import MemoryChannel, lost_replies
from callboard.actors.testing import Reply, ScriptedModel, every_crash
from callboard.actors.values import Delivery
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.store import Store


class Deadly(Channel):
    """Sends one thing at a time in a second each, and dies of `poison` at once; what is on disk then is `image`."""

    def __init__(self, store: MemoryStore) -> None:
        self.store, self.died = store, trio.Event()
        self.image: MemoryStore | None = None
        self.begun, self.sent = list[str](), list[str]()

    async def deliver(self, entry: Delivery) -> None:
        self.begun.append(entry.text)
        if entry.text == "poison" and self.image is None:
            self.image = self.store.copy()
            self.died.set()
        await trio.sleep(1)
        self.sent.append(entry.text)


async def life(store: MemoryStore, agent: Agent[Any, Any], says: Sequence[str] = ()) -> tuple[MemoryStore, Deadly]:
    """A process that says things in chats of their own, until a delivery ends it or a minute is over; and what is left then."""
    channel = Deadly(store)
    with trio.CancelScope() as scope:
        async with System.open(store, agents=[agent], channels={"irc": channel}) as system:
            for chat in says:
                await say(await system.spawn(agent, id=f"irc:{chat}"), chat, route=route(chat))
            with trio.move_on_after(60):
                await channel.died.wait()
            scope.cancel()
    return channel.image or store, channel


async def test_a_reply_that_ends_the_process_each_time_is_parked_and_those_beside_it_arrive(autojump_clock: MockClock) -> None:
    agent = make(scripted("poison", "one", "two", "behind"))
    store = MemoryStore()
    async with System.open(store, agents=[agent]) as system:  # without the channel: nothing goes before all is said
        for number, chat in enumerate("abca"):
            await say(await system.spawn(agent, id=f"irc:{chat}"), str(number), route=route(chat))
    begun, sent = list[str](), list[str]()
    for _ in range(12):
        store, channel = await life(store, agent)
        begun, sent = begun + channel.begun, sent + channel.sent
        if not channel.died.is_set():
            break
    assert begun.count("poison") == 6, "as often as turns are taken up: Limits.recoveries"
    assert sorted(sent) == ["behind", "one", "two"], "in the end, and nothing twice"
    (lost,) = await events(store, e.OutboxFailed, "irc:a")
    assert lost.failure.code == "RECOVERIES"
    assert lost.failure.message == "the process ended 6 times while it was sent (Limits.recoveries=5)"
    for chat in "bc":
        assert not await events(store, e.OutboxFailed, f"irc:{chat}")
    await check(store)


async def test_what_was_said_in_the_process_that_it_ends_is_not_counted_there(autojump_clock: MockClock) -> None:
    agent = make(scripted("poison", "after"), limits=Limits(recoveries=0))
    store, channel = await life(MemoryStore(), agent, ["a"])
    assert channel.died.is_set() and not await events(store, e.Note, "irc:a")
    store, channel = await life(store, agent)
    assert channel.died.is_set(), "one more try, for a kill between a send and its record is no fault of the reply"
    store, channel = await life(store, agent)
    assert not channel.begun
    async with System.open(store, agents=[agent], channels={"irc": MemoryChannel()}) as system:
        actor = await system._runtime.registry.actor("irc:a")  # pyright: ignore[reportPrivateUsage]
        (sentence,) = lost_replies(actor.state)
        assert "the process ended once while it was sent" in sentence and "'poison'" in sentence
    await check(store)


@pytest.mark.parametrize("grace", [0, 5])
async def test_starts_and_closes_count_for_nothing(grace: float, autojump_clock: MockClock) -> None:
    store, agent = MemoryStore(), make(scripted("one"))

    class Down(Channel):
        timeout_s = 20

        async def deliver(self, entry: Delivery) -> None:
            await trio.sleep(10)
            raise OSError("the line is down")

    for number in range(8):
        async with System.open(store, agents=[agent], channels={"irc": Down()}, grace=grace) as system:
            if number == 0:
                await say(await system.spawn(agent, id="irc:a"), "1", route=route("a"))
            await trio.sleep(0 if number % 2 else 12)  # closed in the middle of a try, or behind one
    counts: list[Any] = [note.data["ends"] for note in await events(store, e.Note, "irc:a")]
    assert counts and counts[1::2] == [0] * (len(counts) // 2) and set(counts) == {0, 1}
    channel = MemoryChannel()
    async with System.open(store, agents=[agent], channels={"irc": channel}):
        assert (await channel.reply(chat="a")).text == "one"
    await check(store)


async def test_a_kill_behind_any_commit_of_a_reply_that_fails_before_it_is_taken_loses_and_parks_nothing(
    autojump_clock: MockClock,
) -> None:
    async def scenario(store: Store) -> None:
        channel = Flaky({"one": 2, "two": 1})
        channel.first_s = 0.1
        async with System.open(store, agents=[agent], channels={"irc": channel}) as system:
            ref = await system.spawn(agent, id="irc:a")
            for text in ("1", "2"):
                await ref.followup(text, message_id=text, route=route("a"))
            await ref.wait_idle()
            await trio.sleep(30)  # of a clock that jumps: more than all pauses
            assert system.statistics()["channels"]["irc"]["waiting"] == 0

    agent = make(ScriptedModel(lambda request: Reply.text("one" if request.messages[-1].text == "1" else "two")))
    counts = list[int]()
    async for crash in every_crash(scenario):
        assert len(await events(crash.store, e.OutboxSent, "irc:a")) == len(await events(crash.store, e.OutboxPut, "irc:a")) == 2
        assert not await events(crash.store, e.OutboxFailed, "irc:a"), crash
        notes: list[Any] = [note.data for note in await events(crash.store, e.Note, "irc:a")]
        counts += [note["ends"] for note in notes]
    assert set(counts) == {0, 1}, "one death, counted once at most"


async def test_a_channel_that_leaves_the_process_is_counted_too(autojump_clock: MockClock) -> None:
    store, agent, tried = MemoryStore(), make(scripted("one")), 0

    async def leaves(entry: Delivery) -> None:
        nonlocal tried
        tried += 1
        raise SystemExit("no more")

    async with System.open(store, agents=[agent]) as system:
        await say(await system.spawn(agent, id="irc:a"), "1", route=route("a"))
    for _ in range(6):
        with pytest.raises(SystemExit):
            async with System.open(store, agents=[agent], channels={"irc": leaves}):
                await trio.sleep(10)
    async with System.open(store, agents=[agent], channels={"irc": leaves}):
        await trio.sleep(10)
    (lost,) = await events(store, e.OutboxFailed, "irc:a")
    assert (tried, lost.failure.code) == (6, "RECOVERIES")
    await check(store)


@tool
async def counts(ctx: ToolContext[Any]) -> str:
    """Writes what it should not."""
    ctx.note("callboard/delivery", {"delivery": "x", "ends": 9})
    return "done"


async def test_nobody_else_may_count() -> None:
    agent = make(scripted(Reply.tools(("c", "counts", {})), "no"), tools=[counts])
    async with opened(agent) as (system, ref):
        await say(ref, "hi")
        (result,) = await events(system.store, e.ToolResult)
        assert result.error and "the runtime's own count of tries" in str(result.content)
