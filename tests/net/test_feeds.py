"""Sharing of pages: one follower leads, the others take what it reads or are woken, and nobody misses or doubles a record."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from trio_websocket import WebSocketConnection, open_websocket_url
from wired import make, said, scripted, serving

from callboard import System
from callboard.actors.testing.scripted import Reply
from callboard.net import Server, ServiceLimits, serve
from callboard.net.feeds import FeedPage, Feeds, Place
from callboard.net.stream import Stream
from callboard.net.websocket import AT_ONCE, Socket, text_frame
from callboard.net.wire.methods import Follow
from callboard.storage.errors import AgentDeleted
from callboard.storage.events import Note

NOWHERE: Any = None
"""The socket of a stream that only makes frames."""


class Taker(Place):
    """A follower that takes what it is offered, or not."""

    def __init__(self, seq: int = -1, *, takes: bool = True) -> None:
        super().__init__(seq)
        self.takes, self.got = takes, list[str]()

    def offer(self, page: FeedPage) -> bool:
        if self.takes:
            self.got.append(page.records)
            self.seq = page.upto
        return self.takes


async def follow(feeds: Feeds, ref: Any, place: Taker) -> None:
    source = ref.source()
    while True:
        page = await feeds.after(ref, source, place, None)
        place.got.append(page.records)
        place.seq = page.upto


def seqs(place: Taker) -> list[int]:
    return [record["seq"] for page in place.got for record in json.loads(f"[{page}]")]


async def write(system: System, count: int = 1, size: int = 1) -> None:
    actor = await system._runtime.registry.actor("a")  # pyright: ignore[reportPrivateUsage]
    for _ in range(count):
        actor.log.append(Note(kind="n", data="x" * size))
    await actor.log.commit()


async def test_one_leads_and_the_others_are_not_woken(autojump_clock: object, nursery: trio.Nursery) -> None:
    async with serving(make(scripted())) as (system, _, _):
        ref = await system.spawn(system.definitions["demo"], id="a")
        feeds = Feeds(system.store, page_bytes=1000)
        places = [Taker(takes=number % 10 != 3) for number in range(200)]
        async with trio.open_nursery() as inner:
            for place in places:
                inner.start_soon(follow, feeds, ref, place)
            for _ in range(20):
                await wait_all_tasks_blocked()
                await write(system, 3)
            await wait_all_tasks_blocked()
            assert all(seqs(place) == list(range(61)) for place in places)
            assert feeds.encoded == 61
            inner.cancel_scope.cancel()
        assert not feeds._hubs, "nothing is kept of those who have left"  # pyright: ignore[reportPrivateUsage]


async def test_when_leaders_leave_others_lead(autojump_clock: object) -> None:
    """Followers come, stop and go at random, in the middle of whatever is under way."""
    chance = random.Random(7)
    async with serving(make(scripted())) as (system, _, _):
        ref = await system.spawn(system.definitions["demo"], id="a")
        feeds = Feeds(system.store, page_bytes=200)
        staying = [Taker(takes=chance.random() < 0.5) for _ in range(20)]
        async with trio.open_nursery() as inner:
            for place in staying:
                inner.start_soon(follow, feeds, ref, place)
            for _ in range(150):
                inner.start_soon(_come_and_go, feeds, ref, chance)
                if chance.random() < 0.5:
                    await write(system, chance.randrange(1, 4))
                for _ in range(chance.randrange(4)):
                    await trio.lowlevel.checkpoint()
            await write(system)
            await wait_all_tasks_blocked()
            head = ref.source().last()
            assert all(seqs(place) == list(range(head + 1)) for place in staying)
            inner.cancel_scope.cancel()


async def _come_and_go(feeds: Feeds, ref: Any, chance: random.Random) -> None:
    place = Taker(takes=chance.random() < 0.5)
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow, feeds, ref, place)
            for _ in range(chance.randrange(30)):
                await trio.lowlevel.checkpoint()
            scope.cancel()
    assert seqs(place) == list(range(len(seqs(place))))


async def test_what_ends_the_leader_ends_all(autojump_clock: object) -> None:
    async with serving(make(scripted())) as (system, _, _):
        ref = await system.spawn(system.definitions["demo"], id="a")
        feeds, errors = Feeds(system.store, page_bytes=1000), list[str]()

        async def until_error() -> None:
            try:
                await follow(feeds, ref, Taker(0))
            except AgentDeleted as error:
                errors.append(type(error).__name__)

        with trio.fail_after(30):
            async with trio.open_nursery() as inner:
                for _ in range(30):
                    inner.start_soon(until_error)
                await wait_all_tasks_blocked()
                await system.delete("a")
                await system.spawn(system.definitions["demo"], id="a")
                await write(system)
        assert errors == ["AgentDeleted"] * 30, "nobody goes on with another agent of that id"


async def test_what_is_kept_is_bounded_with_the_frames_that_are_made_of_it(autojump_clock: object) -> None:
    """Small pages, of which the frames take more room than the records."""
    async with serving(make(scripted())) as (system, _, _):
        ref = await system.spawn(system.definitions["demo"], id="a")
        feeds, room = Feeds(system.store, page_bytes=1), 50_000
        feeds._room = room  # pyright: ignore[reportPrivateUsage]
        await write(system, 200, size=100)
        source, place = ref.source(), Taker()
        while source.last() > place.seq:
            page = await feeds.after(ref, source, place, None)
            place.seq = page.upto
            for number in range(16):
                Stream(NOWHERE, Follow(agent="a", stream=number), source, place.seq)._frame(page)  # pyright: ignore[reportPrivateUsage]
        kept = list(feeds._pages.values())  # pyright: ignore[reportPrivateUsage]
        taken = sum(sys.getsizeof(page.records) + sum(map(sys.getsizeof, page.frames.values())) for page in kept)
        assert 10 < len(kept) < 200 and room / 3 < taken < feeds.statistics()["bytes"] <= room
        assert all(len(page.frames) == 2 for page in kept)


# -- over sockets


@asynccontextmanager
async def following(server: Server, **params: Any) -> AsyncGenerator[WebSocketConnection]:
    async with open_websocket_url(server.url, subprotocols=["callboard.v1"]) as connection:
        await said(connection)
        call = {"jsonrpc": "2.0", "id": 1, "method": "follow", "params": {"agent": "a", "stream": 1, **params}}
        await connection.send_message(json.dumps(call))
        yield connection


async def records(connection: WebSocketConnection, upto: int) -> list[int]:
    """The seqs that arrive, as far as `upto`."""
    seen: list[int] = []
    while not seen or seen[-1] < upto:
        seen += [record["seq"] for record in (await said(connection)).get("params", {}).get("records", ())]
    return seen


async def test_c229_sockets_take_frames_at_once_and_miss_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = list[int]()
    send_now = Socket.send_now

    def counted(self: Socket, frame: bytes) -> bool:
        taken = send_now(self, frame)
        at_once.append(taken)
        return taken

    monkeypatch.setattr(Socket, "send_now", counted)
    model = scripted(Reply.text("x" * 60, parts=60))
    async with System.open(":memory:", agents=[make(model)]) as system, trio.open_nursery() as nursery:
        server: Server = await nursery.start(partial(serve, system))
        ref = await system.spawn(system.definitions["demo"], id="a")
        seen: list[list[int]] = []

        async def one(number: int) -> None:
            async with following(server, window=4 if number % 5 == 0 else None) as connection:
                ready.append(number)
                seen.append(await acknowledged(connection) if number % 5 == 0 else await all_of(connection))

        async def all_of(connection: WebSocketConnection) -> list[int]:
            found: list[int] = []
            while not found or found[-1] < last:
                found += [record["seq"] for record in (await said(connection)).get("params", {}).get("records", ())]
            return found

        async def acknowledged(connection: WebSocketConnection) -> list[int]:
            found, frames = list[int](), 0
            while not found or found[-1] < last:
                page = (await said(connection)).get("params")
                if page is not None:
                    frames += 1
                    found += [record["seq"] for record in page["records"]]
                    ack = {"jsonrpc": "2.0", "method": "ack", "params": {"stream": 1, "frames": frames}}
                    await connection.send_message(json.dumps(ack))
            return found

        ready, last = list[int](), 10**9
        async with trio.open_nursery() as readers:
            for number in range(25):
                readers.start_soon(one, number)
            while len(ready) < 25:  # noqa: ASYNC110 (they come over sockets)
                await trio.sleep(0.01)
            outcome = await ref.ask("hi")
            last = outcome.seq + 30
            for _ in range(30):
                await wait_all_tasks_blocked(0.005)
                await write(system)
        assert seen == [list(range(last + 1))] * 25
        assert sum(at_once) > 100, "frames need no task to be woken"
        nursery.cancel_scope.cancel()


async def test_a_socket_that_is_behind_takes_nothing_at_once() -> None:
    async with System.open(":memory:", agents=[make(scripted())]) as system, trio.open_nursery() as nursery:
        server: Server = await nursery.start(partial(serve, system, limits=ServiceLimits(slow_s=60)))
        await system.spawn(system.definitions["demo"], id="a")
        async with following(server) as slow:
            for _ in range(400):
                await write(system, 5, 6000)
            assert await records(slow, upto=2000) == list(range(2001))
        nursery.cancel_scope.cancel()


def test_a_frame_has_the_length_of_its_text() -> None:
    for size, head in ((5, b"\x81\x05"), (126, b"\x81\x7e\x00\x7e"), (70_000, b"\x81\x7f" + (70_000).to_bytes(8, "big"))):
        assert text_frame(b"x" * size) == head + b"x" * size
    assert AT_ONCE < 16_384
