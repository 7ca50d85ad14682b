"""The client's connection, which comes back: calls and streams see one service, however often its socket breaks.

A link owns one task. It keeps a connection up, tries again with growing pauses when it breaks, and reads; nobody else reads, and
it waits for nobody, so a reader who does nothing with a stream stops neither calls nor other streams. A call whose connection
broke before its answer came is sent again if repeating it does nothing (`Method.repeatable`); the others say `Disconnected`,
since only the caller can find out whether it was done.
"""

from __future__ import annotations

import math
from collections import deque
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import msgspec
import trio

from ..storage.errors import CallboardError, Disconnected, ServiceError, Unauthorized, UsageError
from .websocket import Closed, Dial, Socket
from .wire import methods as m
from .wire.client import Answered, ClientEnd, Failed, StreamEnded, decode_result
from .wire.closes import FAULT, NO_PROTOCOL, NORMAL, TOO_LONG

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
STEADY_S = 5.0
"""A connection that lasted so long was a good one: the next pause is short again."""
PING_EVERY_S, PING_S = 20.0, 20.0
CLOSE_S = 2.0
FINAL = {TOO_LONG: "a message was too long", NO_PROTOCOL: "the service did not understand what was sent"}
"""Closes after which sending the same again would end the same way."""


class Lost(Exception):
    """The connection broke; `final` says that what was under way must not be sent again, and why."""

    def __init__(self, final: str | None = None) -> None:
        super().__init__(final or "the connection broke")
        self.final = final


class Reply:
    """A call that waits for its answer."""

    def __init__(self) -> None:
        self.done = trio.Event()
        self.value: Answered | CallboardError | Lost = Lost()

    def settle(self, value: Answered | CallboardError | Lost) -> None:
        """The answer is there, or will not come."""
        self.value = value
        self.done.set()


class Feed:
    """What has arrived of a stream and was not yet taken; at most a window of pages."""

    def __init__(self, line: Line, number: int) -> None:
        self.line, self.number = line, number
        self.pages: deque[m.Page] = deque()
        self.taken = self.acknowledged = 0
        self.error: CallboardError | None = None
        self.lot = trio.lowlevel.ParkingLot()

    @property
    def lost(self) -> bool:
        """Whether nothing more will arrive, because the connection broke."""
        return self.line.over is not None

    async def next(self) -> m.Page | None:
        """The next page; None if the connection broke. Cancelled, it has taken nothing.

        Raises:
            CallboardError: the stream is over.
        """
        while not self.pages:
            if self.error is not None:
                raise self.error
            if self.lost:
                return None
            if self.acknowledged < self.taken:
                await self._acknowledge(self.taken)
                continue
            await self.lot.park()
        self.taken += 1
        return self.pages.popleft()

    async def _acknowledge(self, frames: int) -> None:
        try:
            await self.line.note("ack", m.Ack(stream=self.number, frames=frames))
        except Lost:
            return
        self.acknowledged = frames


class Line:
    """One connection of a link, from its hello to its end."""

    def __init__(self, socket: Socket) -> None:
        self.socket = socket
        self.end = ClientEnd()
        self.hello: m.Hello | None = None
        self.over: Lost | None = None
        self.since = trio.current_time()
        self._replies: dict[int, Reply] = {}
        self._feeds: WeakValueDictionary[int, Feed] = WeakValueDictionary()
        self._numbers = 0

    # -- out

    async def send(self, text: str) -> None:
        """Send a frame.

        Raises:
            Lost: the connection broke.
        """
        if self.over is not None:
            raise Lost(self.over.final)
        try:
            await self.socket.send(text)
        except Closed as error:
            raise Lost(FINAL.get(error.code)) from error

    async def note(self, name: str, params: m.Params) -> None:
        """Send a notification."""
        await self.send(self.end.note(name, params))

    async def call(self, method: str, params: m.Params) -> Any:
        """Send a request and wait for its result.

        Raises:
            CallboardError: what the service answered.
            Lost: the connection broke first.
        """
        id, text = self.end.call(method, params)
        self._check_size(method, text)
        reply = self._replies[id] = Reply()
        try:
            await self.send(text)
            await reply.done.wait()
        except trio.Cancelled:
            with trio.move_on_after(CLOSE_S, shield=True), suppress(Lost):  # lost: then nobody waits there, either
                await self.note("forget", m.Forget(id=id))
            raise
        finally:
            self._replies.pop(id, None)
        if isinstance(reply.value, Answered):
            return decode_result(method, reply.value.result)
        raise reply.value

    def _check_size(self, method: str, text: str) -> None:
        most = self.hello.max_message if self.hello is not None else math.inf
        if len(text) > most:
            raise UsageError(
                f"{method!r} makes a message of {len(text):,} characters, and this service takes {most:,}; send less"
            )

    def feed(self) -> Feed:
        """A new stream's place, under a number of its own."""
        self._numbers += 1
        feed = self._feeds[self._numbers] = Feed(self, self._numbers)
        return feed

    # -- in

    async def take(self, text: str | bytes) -> None:
        """Hand on what a frame says."""
        received = self.end.receive(text)
        match received:
            case Answered(id=id):
                self._settle(id, received)
            case Failed(id=id, error=error):
                self._settle(id, error)
            case m.Page(stream=number):
                await self._arrived(number, received)
            case StreamEnded(stream=number, error=error):
                feed = self._feeds.get(number)
                if feed is not None:
                    feed.error = error
                    feed.lot.unpark_all()
            case m.Hello():
                self.hello = received
            case _:
                pass

    def _settle(self, id: int | None, value: Answered | CallboardError) -> None:
        reply = None if id is None else self._replies.get(id)
        if reply is not None:
            reply.settle(value)

    async def _arrived(self, number: int, page: m.Page) -> None:
        feed = self._feeds.get(number)
        if feed is not None:
            feed.pages.append(page)
            feed.lot.unpark_all()
            return
        # Whoever read this stream has dropped it: a reader may break off without a word.
        await self.send(self.end.call("unfollow", m.OnStream(stream=number))[1])

    def end_with(self, lost: Lost) -> None:
        """The connection is over: everybody who waits on it hears so."""
        self.over = lost
        for reply in self._replies.values():
            reply.settle(Lost(lost.final))
        for feed in self._feeds.values():
            feed.lot.unpark_all()


class Link:
    """Connections to one service, one after the other."""

    def __init__(self, dial: Dial, *, patience: float | None) -> None:
        self._dial, self._patience = dial, math.inf if patience is None else patience
        self._line: Line | None = None
        self._changed = trio.lowlevel.ParkingLot()
        self._failed: CallboardError | None = None
        self._closing = False
        self.connections = 0

    # -- what clients call

    async def line(self) -> Line:
        """The connection, as soon as there is one.

        Raises:
            Disconnected: there is none for longer than the link's patience.
            Unauthorized: the token is not accepted any more.
        """
        with trio.move_on_after(self._patience):
            while self._line is None:
                if self._failed is not None:
                    raise self._failed
                await self._changed.park()
            return self._line
        raise Disconnected(f"the service has not been there for {self._patience:g} s; it is still being looked for")

    async def call(self, method: str, params: m.Params) -> Any:
        """The result of a method, over as many connections as it takes.

        Raises:
            CallboardError: what the service answered.
            Disconnected: the connection broke, and the call may not be repeated; or there is none.
        """
        while True:
            line = await self.line()
            try:
                return await line.call(method, params)
            except Lost as lost:
                if lost.final is not None:
                    raise _closed(method, lost) from lost
                if not m.METHODS[method].repeatable:
                    text = f"the connection broke before the answer to {method!r} came; look whether it was done, and call again"
                    raise Disconnected(text) from lost

    async def follow(self, params: m.Follow) -> tuple[Feed, int]:
        """Open a stream (`params.stream` is chosen here), and the seq behind which it begins."""
        while True:
            line = await self.line()
            feed = line.feed()
            try:
                opened = await line.call("follow", msgspec.structs.replace(params, stream=feed.number))
            except Lost as lost:
                if lost.final is not None:
                    raise _closed("follow", lost) from lost
                continue
            return feed, opened.after

    async def close(self) -> None:
        """Close the connection; the task ends."""
        self._closing = True
        self._failed = UsageError("this client is closed: connect again")
        if self._line is not None:
            await self._line.socket.close(NORMAL, "", within=CLOSE_S)

    # -- the task

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Keep a connection up; started once there is the first.

        Raises:
            Disconnected, Unauthorized: there is no first one.
        """
        pause, started = FIRST_PAUSE_S, False
        while not self._closing:
            begun = trio.current_time()
            try:
                async with self._dial() as socket:
                    if not started:
                        task_status.started()
                    started = True
                    await self._serve(socket)
            except ServiceError as error:
                if not started:
                    raise
                if isinstance(error, Unauthorized):
                    self._fail(error)
                    return
            if self._closing:
                return
            steady = trio.current_time() - begun >= STEADY_S
            pause = FIRST_PAUSE_S if steady else min(2 * pause, LONGEST_PAUSE_S)
            await trio.sleep(pause)

    async def _serve(self, socket: Socket) -> None:
        line, lost = Line(socket), Lost()
        self.connections += 1
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_alive, socket)
                lost = await self._read(line)
                nursery.cancel_scope.cancel()
        finally:
            self._line = None
            line.end_with(lost)

    async def _read(self, line: Line) -> Lost:
        """Read until the connection is over, and say how. It is up from its hello on."""
        try:
            while True:
                await line.take(await line.socket.receive())
                if self._line is None and line.hello is not None:
                    self._line = line
                    self._changed.unpark_all()
        except Closed as closed:
            return Lost(FINAL.get(closed.code))
        except Lost as lost:
            return lost
        except ServiceError as error:
            await line.socket.close(1002, "not this protocol", within=CLOSE_S)
            return Lost(error.message)

    async def _keep_alive(self, socket: Socket) -> None:
        while True:
            await trio.sleep(PING_EVERY_S)
            try:
                with trio.move_on_after(PING_S) as scope:
                    await socket.ping()
            except Closed:
                return
            if scope.cancelled_caught:
                await socket.close(FAULT, "no answer to a ping", within=CLOSE_S)
                return

    def _fail(self, error: CallboardError) -> None:
        self._failed = error
        self._changed.unpark_all()


def _closed(method: str, lost: Lost) -> ServiceError:
    return ServiceError(f"the service closed the connection at {method!r}: {lost.final}")
