"""Channels that do what no channel should: raise what is no Exception, cancel what is not theirs, come late, be flooded."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
from helpers import check, events, make, notation, opened, records, say
from trio.testing import MockClock

from callboard.actors import Channel, Inbound, System
from callboard.actors.channels import MemoryChannel
from callboard.actors.limits import Limits
from callboard.actors.testing import Reply, ScriptedModel, trio_wall
from callboard.actors.values import Delivery
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import StoreFull
from callboard.storage.testing import FaultyStore

ROUTE = {"channel": "irc", "chat": "c"}
TALKS = make(ScriptedModel(lambda request: Reply.text(f"to {request.messages[-1].text}")))


class Once(Channel):
    """Does something odd at its first delivery, and takes the others."""

    timeout_s = 10

    def __init__(self, odd: Any) -> None:
        self.odd, self.asked, self.taken = odd, 0, list[str]()

    async def deliver(self, entry: Delivery) -> None:
        self.asked += 1
        if self.asked == 1:
            await self.odd()
        self.taken.append(entry.text)


async def exits() -> None:
    raise SystemExit(3)


async def exits_in_a_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(exits)


async def cancels_itself() -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await trio.sleep(1)
    raise OSError("cut")


async def cancels_who_called() -> None:
    above = trio.lowlevel.current_task().parent_nursery
    assert above is not None
    above.cancel_scope.cancel()
    await trio.sleep(1)


async def comes_late() -> None:
    with trio.CancelScope(shield=True):
        await trio.sleep(100)


async def fails_late() -> None:
    await comes_late()
    raise OSError("too late")


async def fails_as_it_is_cancelled() -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("not even closing works")


@pytest.mark.parametrize("exiting", [exits, exits_in_a_nursery])
async def test_c259_what_is_no_exception_closes_the_system_leaves_it_as_it_is_and_loses_no_reply(exiting: Any) -> None:
    store, again = MemoryStore(), MemoryChannel()
    with pytest.raises(SystemExit) as raised:
        async with System.open(store, agents=[TALKS], channels={"irc": Once(exiting)}) as system:
            await say(await system.spawn(TALKS, id="a"), "1", route=ROUTE)
            await trio.sleep_forever()
    assert raised.value.code == 3
    await check(store)
    async with System.open(store, agents=[TALKS], channels={"irc": again}):
        assert (await again.reply(chat="c")).text == "to 1"
    await check(store)


async def test_c259_the_run_of_a_channel_may_end_the_process_too() -> None:
    class Leaves(MemoryChannel):
        async def run(self, inbound: Inbound) -> None:
            inbound.ready()
            raise SystemExit("no more")

    with pytest.raises(SystemExit, match="no more"):
        async with System.open(MemoryStore(), channels={"irc": Leaves(TALKS)}):
            await trio.sleep_forever()


@pytest.mark.parametrize("odd", [cancels_itself, cancels_who_called, comes_late, fails_late, fails_as_it_is_cancelled])
async def test_an_odd_delivery_ends_no_lane_and_its_reply_arrives(odd: Any, autojump_clock: MockClock) -> None:
    channel = Once(odd)
    async with opened(TALKS, channels={"irc": channel}) as (system, ref):
        for text in "12":
            await say(ref, text, route=ROUTE)
            await trio.sleep(200)
        assert channel.taken == ["to 1", "to 2"]
        lane = system.statistics()["channels"]["irc"]
        assert (lane["sent"], lane["waiting"], lane["active"]) == (2, 0, 0)


async def test_what_a_delivery_throws_while_the_system_closes_is_logged_and_leaves_nothing_else(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A nursery inside it raises both: that it was cancelled, and that it failed."""

    async def odd() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fails_as_it_is_cancelled)
            await trio.sleep_forever()

    store = MemoryStore()
    with caplog.at_level(logging.ERROR):
        async with opened(TALKS, store, channels={"irc": Once(odd)}, grace=0) as (_, ref):
            await say(ref, "1", route=ROUTE)
            await trio.sleep(1)
    assert "a channel failed as it was cancelled" in caplog.text
    assert notation(await records(store)).endswith("TE1{completed} out")


async def test_a_flood_is_refused_past_the_limits_and_all_that_was_taken_is_answered(autojump_clock: MockClock) -> None:
    """Twenty chats, each with more than its inbox takes, while the channel delivers nothing."""
    store, channel = MemoryStore(), MemoryChannel(TALKS.replace(limits=Limits(pending=5)))
    channel.failing = OSError("down")
    taken = list[str]()

    async def floods(chat: str) -> None:
        async def sends(text: str) -> None:
            if await channel.say(text, chat=chat, id=text) is not None:
                taken.append(text)

        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(sends, f"{chat}-{n}")

    async with System.open(store, channels={"irc": channel}) as system:
        async with trio.open_nursery() as nursery:
            for n in range(20):
                nursery.start_soon(floods, f"chat{n}")
        known = system.statistics()["channels"]["irc"]
        assert known["accepted"] == len(taken) < 400 and known["refused"] == 400 - len(taken)
        channel.failing = None
        await trio.sleep(1000)
        assert system.statistics()["channels"]["irc"]["waiting"] == 0
    read = [event.message.text for n in range(20) for event in await events(store, e.UserMessage, f"irc:chat{n}")]
    assert sorted(read) == sorted(taken)
    assert {entry.text for entry in channel.sent} <= {f"to {text}" for text in taken}
    await check(store)


async def test_a_full_disk_behind_a_delivery_has_nothing_sent_twice(autojump_clock: MockClock) -> None:
    """The record that it was sent is tried until it is on disk; the channel is not asked again meanwhile."""
    store, taken = FaultyStore(MemoryStore()), list[str]()

    async def deliver(entry: Delivery) -> None:
        taken.append(entry.text)
        store.fail_next(StoreFull("the disk is full"), times=5)

    async with System.open(store, agents=[TALKS], channels={"irc": deliver}) as system:
        await say(await system.spawn(TALKS, id="a"), "1", route=ROUTE)
        await trio.sleep(3000)
        assert system.statistics()["channels"]["irc"]["waiting"] == 0
    assert taken == ["to 1"]
    assert notation(await records(store)).endswith("TE1{completed} out sent")
    await check(store)


@pytest.mark.parametrize("jump_s", [365 * 86_400, -365 * 86_400])
async def test_a_wall_clock_that_jumps_by_a_year_changes_no_pause(jump_s: int, autojump_clock: MockClock) -> None:
    wall, jumped, tried = trio_wall("2026-12-01T08:00Z"), list[int](), list[float]()

    async def deliver(entry: Delivery) -> None:
        tried.append(trio.current_time())
        jumped.append(jump_s)
        if len(tried) < 4:
            raise OSError("down")

    async with opened(TALKS, channels={"irc": deliver}, now=lambda: wall() + sum(jumped), idle_after=1) as (system, ref):
        await say(ref, "1", route=ROUTE)
        await trio.sleep(100)
        assert tried == [0, 1, 3, 7]
        times = [record.time for record in await records(system.store)]
        assert times == sorted(times)
