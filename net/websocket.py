"""The one door to trio-websocket, which is an extra: imported when a socket is needed, and named in the error when it is missing.

It also bends the library to what both sides of a connection need. A send is never cut in the middle: half a frame would make
everything behind it unreadable, so it goes on, shielded, until it is through or the connection is closed from elsewhere; and a
close has a deadline, since the library waits for the other side for ever.
"""

from __future__ import annotations

import fcntl
import os
import re
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import ModuleType
from typing import Any, cast
from urllib.parse import urlsplit

import trio

from ..storage.errors import Disconnected, ServiceError, Unauthorized, UsageError
from .wire.closes import NORMAL, VANISHED
from .wire.methods import SUBPROTOCOL

BUFFER = 64 * 1024
SIOCOUTQ: int | None = 0x5411 if sys.platform == "linux" else None
"""Asks a socket how much of what was sent has not been taken yet; None where there is no such question."""
AT_ONCE = 4096
"""The longest frame that is sent without waiting: the smallest buffer of a socket takes it whole."""
_PRINTABLE, _BLANKS = re.compile(r"[!-~]*"), re.compile(r"[\s\x00-\x1f\x7f]")
CONNECT_S = 5
CLOSE_S = 2
LONGEST = 64 * 2**20
"""The longest message that a client takes from its service."""


def library() -> ModuleType:
    """trio-websocket.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import trio_websocket
    except ImportError as error:
        raise UsageError("the service and its client need trio-websocket: pip install 'callboard[net]'") from error
    return trio_websocket


def text_frame(data: bytes) -> bytes:
    """A text message of a service as the bytes on the wire."""
    size = len(data)
    if size < 126:
        return bytes((0x81, size)) + data
    if size < 65_536:
        return b"\x81\x7e" + size.to_bytes(2, "big") + data
    return b"\x81\x7f" + size.to_bytes(8, "big") + data


def _unread(file: int) -> int:
    """How many bytes that were sent on a socket the other side has not taken."""
    assert SIOCOUTQ is not None
    return int.from_bytes(fcntl.ioctl(file, SIOCOUTQ, b"\0\0\0\0"), sys.byteorder)


class Closed(Exception):
    """The connection is closed: `code` and `reason` as the other side gave them, 1006 if it just vanished."""

    def __init__(self, code: int, reason: str = "") -> None:
        super().__init__(f"closed with {code}{f': {reason}' if reason else ''}")
        self.code, self.reason = code, reason


class Socket:
    """A WebSocket on which whole messages are sent or none, and which always closes in time."""

    def __init__(self, connection: Any, stream: trio.abc.AsyncResource | None = None) -> None:
        self._connection, self._stream = connection, stream
        inner = getattr(stream, "inner", stream)
        self._plain = inner.socket if isinstance(inner, trio.SocketStream) and SIOCOUTQ is not None else None
        self._gone: type[Exception] = library().ConnectionClosed
        self._lock = trio.Lock()
        self._closing: trio.Event | None = None
        self.received = 0
        """How many messages have come."""
        self.sending_since: float | None = None
        """Since when the message under way has been waiting for the other side to read; None if none is."""

    async def send(self, text: str) -> None:
        """Send a message, behind those that are being sent.

        Raises:
            Closed: the connection is closed.
        """
        async with self._lock:
            self.sending_since = trio.current_time()
            try:
                with trio.CancelScope(shield=True):
                    await self._connection.send_message(text)
            except self._gone as error:
                raise self._closed() from error
            finally:
                self.sending_since = None

    async def send_frame(self, frame: bytes) -> None:
        """Send what `text_frame` made, behind what is being sent: it was made once for many sockets.

        Raises:
            Closed: the connection is closed.
        """
        connection = self._connection
        async with self._lock:
            self.sending_since = trio.current_time()
            try:
                with trio.CancelScope(shield=True):
                    async with connection._stream_lock:
                        if connection.closed is not None or self._closing is not None:
                            raise self._closed()
                        await connection._stream.send_all(frame)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise self._closed() from error
            finally:
                self.sending_since = None

    def send_now(self, frame: bytes) -> bool:
        """Send what `text_frame` made without waiting, if nothing is being sent and the other side has taken all that was sent
        so far. False if not, and then nothing was sent; always under TLS, and where the system does not tell.

        An empty buffer takes a frame whole. Should one ever not, the connection is broken off, and the client resumes.
        """
        plain, connection = self._plain, self._connection
        if plain is None or len(frame) > AT_ONCE or connection.closed is not None or self._closing is not None:
            return False
        if self._lock.locked() or connection._stream_lock.locked():
            return False
        try:
            if _unread(plain.fileno()):
                return False
            sent = os.write(plain.fileno(), frame)
        except OSError:
            return False  # whoever sends the ordinary way hears why
        if sent != len(frame):
            plain.shutdown(trio.socket.SHUT_RDWR)
        return True

    @property
    def in_pieces(self) -> bool:
        """Whether a part of a message has come that is not whole yet."""
        return bool(self._connection._message_parts)

    async def receive(self) -> str | bytes:
        """The next message.

        Raises:
            Closed: the connection is closed.
        """
        try:
            message: str | bytes = await self._connection.get_message()
        except self._gone as error:
            raise self._closed() from error
        self.received += 1
        return message

    async def ping(self) -> None:
        """Return when the other side has answered.

        Raises:
            Closed: the connection is closed.
        """
        try:
            await self._connection.ping()
        except self._gone as error:
            raise self._closed() from error

    async def close(self, code: int, reason: str, *, within: float) -> None:
        """Close, with a code if the other side still reads; after `within` seconds in any case. The first code counts, and
        whoever closes after the first waits for it: the library's reader must live until the other side has answered."""
        with trio.CancelScope(shield=True), trio.move_on_after(within):
            if self._closing is not None:
                await self._closing.wait()
                return
            self._closing = trio.Event()
            try:
                await self._connection.aclose(code, reason)
            finally:
                self._closing.set()

    async def cut(self) -> None:
        """Close what is underneath: whoever still sends hears of it."""
        if self._stream is not None:
            await trio.aclose_forcefully(self._stream)

    def _closed(self) -> Closed:
        reason = self._connection.closed
        return Closed(VANISHED) if reason is None else Closed(reason.code, reason.reason or "")


Dial = Callable[[], AbstractAsyncContextManager[Socket]]
"""Opens one connection to the service."""


def dialer(url: str, token: str | None, ssl_context: ssl.SSLContext | None) -> Dial:
    """What opens connections to this address.

    Raises:
        UsageError: it is no address of a service, that is no token, or the extra is missing.
    """
    no_address = f"{url.rpartition('@')[2]!r} is no address of a service; it looks like ws://127.0.0.1:8000"
    try:
        parts, given = urlsplit(url), urlsplit(url).port
    except ValueError as error:  # a port past 65535, half an IPv6 address
        raise UsageError(no_address) from error
    if parts.scheme not in ("ws", "wss") or not parts.hostname or _BLANKS.search(url):
        raise UsageError(no_address)
    if parts.username or parts.password or parts.query:
        raise UsageError("an address holds no token, since addresses are logged: give token=")
    if token is not None and not _PRINTABLE.fullmatch(token):
        raise UsageError("the token has a character that no header carries; did a blank or a line's end come with it?")
    library()
    headers = [] if token is None else [(b"authorization", b"Bearer " + token.encode())]
    secure = ssl_context or ssl.create_default_context() if parts.scheme == "wss" else None
    port = given or (443 if secure else 80)

    @asynccontextmanager
    async def dial() -> AsyncGenerator[Socket]:
        stream = await _open(url, str(parts.hostname), port, secure)
        try:
            async with _wrapped(stream, url, parts.netloc, parts.path or "/", headers) as socket:
                yield socket
        finally:
            # The library leaves the stream open when a handshake is refused.
            await trio.aclose_forcefully(stream)

    return dial


async def _open(url: str, host: str, port: int, secure: ssl.SSLContext | None) -> trio.SocketStream | trio.SSLStream[Any]:
    """A stream to the service, its TLS handshake done."""
    try:
        with trio.fail_after(CONNECT_S):
            if secure is None:
                return await trio.open_tcp_stream(host, port)
            stream = await trio.open_ssl_over_tcp_stream(host, port, ssl_context=secure, https_compatible=True)
            try:
                await stream.do_handshake()
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
            return stream
    except trio.BrokenResourceError as error:
        raise Disconnected(_unproved(url, error.__cause__ or error)) from error
    except (OSError, trio.TooSlowError) as error:
        raise Disconnected(f"nobody answers at {url}; is the service running there?") from error


def _unproved(url: str, cause: BaseException) -> str:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"{url} does not prove who it is: {cause.verify_message}; to trust its certificate, name it in $SSL_CERT_FILE"
    if getattr(cause, "reason", None) == "WRONG_VERSION_NUMBER":
        return f"{url} does not speak TLS; is it {url.replace('wss', 'ws', 1)}?"
    return f"{url} does not prove who it is: {cause}"


@asynccontextmanager
async def _wrapped(stream: Any, url: str, host: str, path: str, headers: list[tuple[bytes, bytes]]) -> AsyncGenerator[Socket]:
    """The WebSocket on a stream, after its handshake."""
    websocket, connection = library(), None
    inner: Exception | None = None
    try:
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(CONNECT_S):
                connection = await websocket.wrap_client_stream(
                    nursery,
                    stream,
                    host,
                    path,
                    subprotocols=[SUBPROTOCOL],
                    extra_headers=list(headers),
                    max_message_size=LONGEST,
                    receive_buffer_size=BUFFER,
                )
            if connection is not None:
                socket = Socket(connection, stream)
                try:
                    yield socket
                except Exception as error:
                    inner = error
                finally:
                    await socket.close(NORMAL, "", within=CLOSE_S)
            nursery.cancel_scope.cancel()
    except ExceptionGroup as group:  # the library's reader: refused, or what came is no WebSocket
        raise inner or _refused(url, group) from group
    if inner is not None:
        raise inner
    if connection is None:
        raise Disconnected(f"{url} does not answer as a service does; what runs there?")


def _refused(url: str, group: ExceptionGroup[Exception]) -> ServiceError:
    for error in leaves(group):
        if isinstance(error, library().ConnectionRejected):
            rejected: Any = error
            return _rejected(url, rejected.status_code, rejected.body or b"")
    return Disconnected(f"{url} does not speak as a service does; what runs there?")


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The error, or those in a group and its groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(inner)
    else:
        yield error


def _rejected(url: str, status: int, body: bytes) -> ServiceError:
    text = body[:500].decode("utf-8", "replace") or f"status {status}"
    if status in (401, 403):
        return Unauthorized(f"{url} refuses the connection: {text}")
    if status in (429, 503):
        return Disconnected(f"{url} refuses the connection: {text}")
    return ServiceError(f"{url} refuses the connection: {text}")
