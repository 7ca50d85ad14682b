"""One connection of the service: a task that always reads, a task for each call, and a task for each stream.

The reader never waits for the work it starts, so a ping that goes unanswered means that the other side is gone and nothing else.
Sends wait for the other side to read; a stream that waits holds one page and its place in the log, nothing more. What ends a
connection ends all its tasks; calls that the client wanted cancelled with it are told so first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from ..actors.ref import AgentRef
from ..storage.errors import CallboardError, ServiceError
from .access import Grant
from .handlers import HANDLERS, Caller, Desk
from .limits import ServiceLimits
from .stream import Stream
from .websocket import Closed, Socket
from .wire import methods as m
from .wire.closes import FAULT, GOING_AWAY, NO_PROTOCOL, NORMAL, NOT_READING, TOO_LONG
from .wire.frames import Id
from .wire.server import Call, Malformed, Note, ServerEnd

_log = logging.getLogger("callboard.service")


class Running(Caller):
    """A call that waits for its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.scope = trio.CancelScope()


class Connection:
    """The service's side of one connection, after its handshake."""

    def __init__(self, socket: Socket, desk: Desk, limits: ServiceLimits, *, leaving: Callable[[], bool] = lambda: False) -> None:
        self._socket, self._desk, self._limits, self._leaving = socket, desk, limits, leaving
        self._end = ServerEnd(max_message=limits.message_bytes)
        self._calls: dict[Id, Running] = {}
        self._streams: dict[int, Stream] = {}
        self._pouring = 0
        """Tasks of streams: those that are opening, are open, or were closed and have not noticed yet."""
        self._sent_away = False
        self._piecemeal = (-1, 0.0)
        """The message that is coming in pieces, by its number, and since when."""
        self._nursery: trio.Nursery

    @property
    def grant(self) -> Grant:
        """What its token allows."""
        return self._desk.grant

    @property
    def streams(self) -> int:
        """How many streams are open."""
        return len(self._streams)

    async def run(self, version: str) -> None:
        """Serve until it is closed by either side."""
        grant = self.grant
        hello = m.Hello(version, list(grant.scopes), grant.prefix, self._limits.message_bytes)
        async with trio.open_nursery() as self._nursery:
            self._nursery.start_soon(self._keep_alive)
            self._nursery.start_soon(self._watch_slowness)
            try:
                await self._socket.send(self._end.hello(hello))
                await self._read()
            except Closed:
                pass
            finally:
                for running in self._calls.values():
                    running.gone = True
                # Sends are shielded; only a closed socket lets them go.
                await self.close(NORMAL, "")
                with trio.CancelScope(shield=True):
                    await self._socket.cut()
            self._nursery.cancel_scope.cancel()

    async def close(self, code: int, reason: str) -> None:
        """Close it; the reader sees that and ends the rest."""
        await self._socket.close(code, reason, within=self._limits.close_s)

    # -- reading

    async def _read(self) -> None:
        while True:
            refused = self._take(self._end.receive(await self._socket.receive()))
            if refused is not None:
                await self._socket.send(refused.reply)
                if refused.close:
                    await self.close(NO_PROTOCOL, "too many frames in a row that are not of this protocol")
                    return

    def _take(self, received: Call | Note | Malformed) -> Malformed | None:
        if isinstance(received, Call):
            return self._start(received)
        if isinstance(received, Note):
            self._notice(received)
            return None
        return received

    def _start(self, call: Call) -> Malformed | None:
        if isinstance(call.params, m.Follow):
            if self._pouring >= self._limits.streams:
                return self._end.refuse(call.id, f"{self._pouring} streams are open on this connection: close one")
            self._pouring += 1
            self._nursery.start_soon(self._run_stream, call)
            return None
        if call.method.scope == "send" and self._leaving():
            # Not an error: the client connects again and sends it again, to whoever serves then.
            self._send_away()
            return None
        if call.id in self._calls:
            return self._end.refuse(call.id, f"the id {call.id!r} is in use by a call that has no answer yet")
        if len(self._calls) >= self._limits.calls:
            return self._end.refuse(call.id, f"{len(self._calls)} calls wait for their answers on this connection: wait for one")
        running = self._calls[call.id] = Running()
        self._nursery.start_soon(self._run_call, call, running)
        return None

    def _send_away(self) -> None:
        if not self._sent_away:
            self._sent_away = True
            self._nursery.start_soon(self.close, GOING_AWAY, "the service is closing")

    def _notice(self, note: Note) -> None:
        if isinstance(note.params, m.Ack):
            stream = self._streams.get(note.params.stream)
            if stream is not None:
                stream.acknowledge(note.params.frames)
        elif isinstance(note.params, m.Forget):
            running = self._calls.get(note.params.id)
            if running is not None:
                running.gone = True
                running.scope.cancel()

    # -- calls

    async def _run_call(self, call: Call, running: Running) -> None:
        try:
            with running.scope:
                await self._socket.send(await self._reply(call, running))
        except Closed:
            pass  # the reader sees it, too
        finally:
            self._calls.pop(call.id, None)

    async def _reply(self, call: Call, running: Running) -> str:
        try:
            self.grant.check_scope(call.method.scope, call.method.name)
            value: Any = None
            if isinstance(call.params, m.OnStream):
                self._unfollow(call.params.stream)
            else:
                value = await HANDLERS[call.method.name](self._desk, call.params, running)
            return self._end.answer(call.id, value)
        except Exception as error:  # one call's failure is its own: the connection and the service go on
            return self._end.fail(call.id, _told(error, call.method.name))

    # -- streams

    async def _run_stream(self, call: Call) -> None:
        """Answer a `follow`, then send what it asked for, until the stream, its agent or the connection ends."""
        params: m.Follow = call.params
        try:
            opened = await self._open_stream(call, params)
            if opened is not None:
                await self._keep_stream(params, *opened)
        except Closed:
            pass  # the reader sees it, too
        finally:
            self._pouring -= 1

    async def _open_stream(self, call: Call, params: m.Follow) -> tuple[Stream, AgentRef[Any]] | None:
        try:
            self.grant.check_scope(call.method.scope, call.method.name)
            ref = await self._desk.view(params.agent)
            seq = ref.follow(params.after, params.types).seq  # checks the types
        except Exception as error:  # as for a call
            await self._socket.send(self._end.fail(call.id, _told(error, call.method.name)))
            return None
        self._unfollow(params.stream)  # a number that is in use is taken over
        stream = self._streams[params.stream] = Stream(self._socket, params, ref.source(), seq)
        await self._socket.send(self._end.answer(call.id, m.Followed(seq)))
        return stream, ref

    def _unfollow(self, number: int) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.scope.cancel()

    async def _keep_stream(self, params: m.Follow, stream: Stream, ref: AgentRef[Any]) -> None:
        try:
            with stream.scope:
                await stream.pour(self._desk.feeds, ref)
        except Closed:
            raise
        except Exception as error:  # as for a call
            told = _told(error, "follow") or ServiceError("the service failed at this stream; its own log says why")
            await self._socket.send(self._end.ended(params.stream, told))
        finally:
            if self._streams.get(params.stream) is stream:
                del self._streams[params.stream]

    # -- is anybody there?

    async def _keep_alive(self) -> None:
        limits = self._limits
        while True:
            await trio.sleep(limits.ping_every_s)
            try:
                with trio.move_on_after(limits.ping_s) as scope:
                    await self._socket.ping()
            except Closed:
                return
            # A ping that stands behind a frame which nobody reads says nothing; the other watch looks after that.
            if scope.cancelled_caught and self._socket.sending_since is None:
                await self.close(FAULT, "no answer to a ping")
                return
            if self._is_stuck():
                await self.close(TOO_LONG, "a message took too long to come")
                return

    async def _watch_slowness(self) -> None:
        slow = self._limits.slow_s
        while True:
            since = self._socket.sending_since
            left = slow if since is None else since + slow - trio.current_time()
            if left <= 0:
                # The close stands behind the frame under way: a reader that wakes up in time still reads its code.
                await self.close(NOT_READING, "not reading")
                return
            await trio.sleep(left)

    def _is_stuck(self) -> bool:
        """Whether one message has been coming in pieces for too long: it might never be whole, and all of it is held."""
        message, now = self._socket.received, trio.current_time()
        if not self._socket.in_pieces or message != self._piecemeal[0]:
            self._piecemeal = message, now
        return now - self._piecemeal[1] > self._limits.body_s


def _told(error: Exception, method: str) -> CallboardError | None:
    """What the client hears of a failure: an error of ours as it is; of a fault nothing, it is in the log."""
    if isinstance(error, CallboardError):
        return error
    _log.error("a call of %r failed", method, exc_info=error)
    return None
