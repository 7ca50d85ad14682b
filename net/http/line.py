"""One HTTP connection: h11 on a stream, with a deadline on every wait and a bound on every size.

A client that dribbles its head or its body, byte by byte, has the same few seconds as any other; one that does not read what it
asked for is let go. Nothing is kept of a request beyond the limits, and a refusal is told before the connection is closed.
"""

from __future__ import annotations

from collections.abc import Sequence
from email.utils import formatdate
from types import ModuleType
from typing import Any

import msgspec
import trio

from ...storage.errors import UsageError
from ..limits import ServiceLimits
from .failures import Refused
from .messages import Request, Response, request_of

CHUNK = 64 * 1024
LINGER_S = 1
LINGER_BYTES = 2**20
_EMPTY = (204, 304)
_HINTS = {431: "the head of the request is too long", 501: "this transfer-encoding is not spoken here; send chunked"}


def library() -> ModuleType:
    """h11.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import h11
    except ImportError as error:
        raise UsageError("the service needs h11: pip install 'callboard[net]'") from error
    return h11


class Gone(Exception):
    """The other side has left, or does not read."""


class Line:
    """The service's side of one HTTP connection."""

    def __init__(self, stream: trio.abc.Stream, limits: ServiceLimits) -> None:
        self._h11: Any = library()
        self._stream, self._limits, self._peer = stream, limits, peer_of(stream)
        self._connection = self._h11.Connection(self._h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._left = False
        self.scope = trio.CancelScope()
        """Ends the connection; where there is no more room, that of one on which nobody is known to be."""
        self.waits_since: float | None = trio.current_time()
        """Since when there is nobody: its next request has not come yet, or is one that anybody may make. None: there is."""
        self.seen: bytes | None = b""
        """What has come of the first request, for another protocol to read again; None from the second request on."""

    # -- in

    async def head(self) -> Request | None:
        """The next request, its body still to come; None if the other side has none.

        Raises:
            Refused: it is no HTTP, too long, or takes too long.
        """
        self.waits_since = trio.current_time()
        with trio.move_on_after(self._limits.idle_s if self.seen is None else self._limits.handshake_s) as waiting:
            if not self._connection.trailing_data[0] and not await self._receive():
                return None
        if waiting.cancelled_caught:
            return None
        event: Any = None
        with trio.move_on_after(self._limits.handshake_s) as scope:
            event = await self._event()
        if scope.cancelled_caught:
            raise Refused(408, f"the head of the request took more than {self._limits.handshake_s:g} seconds")
        if not isinstance(event, self._h11.Request):
            return None
        request = request_of(event.method, event.target, event.headers.raw_items(), peer=self._peer, version=event.http_version)
        self._check(request)
        return request

    def _check(self, request: Request) -> None:
        """What h11 lets through: a long head that comes at once, and a body of two lengths, of which whatever stands between may
        believe the other one."""
        if len(request.target) + sum(len(name) + len(value) + 4 for name, value in request.raw) > self._limits.head_bytes:
            raise Refused(431, _HINTS[431])
        if "content-length" in request.headers and "transfer-encoding" in request.headers:
            raise Refused(400, "the body has a content-length and is chunked; it can be one of the two")

    async def body(self, request: Request, most: int) -> Request:
        """The request with its body.

        Raises:
            Refused: it is longer than allowed, or takes too long.
        """
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced[:20]) > most:
            raise Refused(413, f"the body has {announced[:20]} bytes, and {most:,} are allowed")
        parts: list[bytes] = []
        with trio.move_on_after(self._limits.body_s) as scope:
            await self._read_body(parts, most)
        if scope.cancelled_caught:
            raise Refused(408, f"the body of the request took more than {self._limits.body_s:g} seconds")
        return msgspec.structs.replace(request, body=b"".join(parts))

    async def _read_body(self, parts: list[bytes], most: int) -> None:
        if self._connection.they_are_waiting_for_100_continue:
            await self._send(self._h11.InformationalResponse(status_code=100, headers=[]))
        size = 0
        while True:
            event = await self._event()
            if isinstance(event, self._h11.EndOfMessage):
                return
            if not isinstance(event, self._h11.Data):
                raise Gone
            size += len(event.data)
            if size > most:
                raise Refused(413, f"the body has more than the {most:,} bytes that are allowed")
            parts.append(bytes(event.data))

    async def wait_gone(self) -> None:
        """Return when the other side has left. What it sends meanwhile waits for its turn, as far as there is room."""
        while len(self._connection.trailing_data[0]) <= self._limits.head_bytes:
            if not await self._receive():
                return
        await trio.sleep_forever()

    async def _event(self) -> Any:
        while True:
            try:
                event = self._connection.next_event()
            except self._h11.RemoteProtocolError as error:
                status = error.error_status_hint
                raise Refused(status, _HINTS.get(status, f"this is no HTTP/1.1: {error}")) from error
            if event is not self._h11.NEED_DATA:
                return event
            await self._receive()

    async def _receive(self) -> bool:
        try:
            data = bytes(await self._stream.receive_some(CHUNK))
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._left = True
            raise Gone from error
        if self.seen is not None:
            self.seen += data
        self._connection.receive_data(data)
        return bool(data)

    # -- out

    async def answer(self, response: Response, *, head_only: bool = False, last: bool = False) -> None:
        """Send a response; the connection ends with the `last` one, or when a part of the request is still to come.

        Raises:
            Gone: nobody reads it.
        """
        closing = () if self._read_to_its_end() and not last else (("connection", "close"),)
        size = [] if response.pour is not None or response.status in _EMPTY else [("content-length", str(len(response.body)))]
        headers = [("date", formatdate(usegmt=True)), *_safe(response), *size, *closing]
        await self._send(self._h11.Response(status_code=response.status, headers=headers))
        if not head_only:
            if response.pour is not None:
                await response.pour(self._send_data)
            elif response.body:
                await self._send_data(response.body)
        await self._send(self._h11.EndOfMessage())

    def _read_to_its_end(self) -> bool:
        """Whether the request is over, as far as has come: what nobody read of it would stand before the next."""
        try:
            while self._connection.their_state is self._h11.SEND_BODY:
                if self._connection.next_event() is self._h11.NEED_DATA:
                    return False
        except self._h11.RemoteProtocolError:
            return False
        return self._connection.their_state is self._h11.DONE

    async def _send_data(self, data: bytes) -> None:
        await self._send(self._h11.Data(data=data))

    async def _send(self, event: Any) -> None:
        try:
            data = self._connection.send(event)
        except self._h11.LocalProtocolError as error:
            raise Gone from error  # the other side made a continuation impossible
        try:
            with trio.move_on_after(self._limits.slow_s) as scope:
                await self._stream.send_all(data or b"")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self._left = True
            raise Gone from error
        if scope.cancelled_caught:
            self._left = True
            raise Gone

    def next(self) -> bool:
        """Make ready for another request; False if this was the last."""
        self.seen = None
        states = (self._connection.our_state, self._connection.their_state)
        if states != (self._h11.DONE, self._h11.DONE):
            return False
        self._connection.start_next_cycle()
        return True

    async def linger(self) -> None:
        """Let the other side read the last answer: a close with unread bytes in it would take the answer back."""
        if self._left:
            return
        try:
            with trio.move_on_after(LINGER_S):
                if isinstance(self._stream, trio.abc.HalfCloseableStream):
                    await self._stream.send_eof()
                left = LINGER_BYTES
                while left > 0 and (data := await self._stream.receive_some(CHUNK)):
                    left -= len(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return  # it has left


def peer_of(stream: trio.abc.Stream) -> str:
    """The address at the other end; nothing if that is no socket, or gone."""
    inner = getattr(stream, "transport_stream", stream)
    if not isinstance(inner, trio.SocketStream):
        return ""
    try:
        return str(inner.socket.getpeername()[0])
    except (OSError, IndexError):
        return ""


def _safe(response: Response) -> Sequence[tuple[str, str]]:
    """The headers, and those that every answer has unless it says otherwise."""
    given = {name.lower() for name, _ in response.headers}
    usual = (
        ("content-type", response.media_type),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),  # "no-referrer" makes browsers send the login form with the origin "null"
    )
    return [*response.headers, *((name, value) for name, value in usual if name not in given)]
