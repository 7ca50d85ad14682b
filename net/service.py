"""The service: one port, on which clients talk to the agents of a system.

    async with System.open("state", agents=[support]) as system, trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve, system, port=8000, tokens="tokens.toml"))

Nothing that a connection does ends another one or the service: every handler is wrapped, every wait has a deadline, every size a
limit. When the task is cancelled, connections are closed with a code and turns go on; they belong to the system.
"""

from __future__ import annotations

import logging
import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

import trio

from ..actors.system import System
from ..storage.errors import Unauthorized, UsageError
from .access import Access, Tokens
from .connection import Connection
from .cookies import NAME
from .feeds import Feeds
from .handlers import Desk
from .http.completions import Completions
from .http.failures import Refused
from .http.health import Probes
from .http.line import Gone, Line
from .http.login import Login
from .http.messages import Headers, Request
from .http.metrics import Metrics
from .http.pages import Pages
from .http.replay import Replay
from .http.router import Route
from .http.routes import agent_routes, page_routes, probe_routes, with_document
from .http.site import Site
from .http.webhooks import Webhooks
from .limits import ServiceLimits
from .websocket import BUFFER, Socket, leaves, library
from .wire.closes import GOING_AWAY
from .wire.methods import SUBPROTOCOL

_log = logging.getLogger("callboard.service")
_SORRY = b"too many connections; try later"
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(_SORRY), _SORRY)
_FROM_OUTSIDE = ("wsproto", "h11", "trio", "ssl")
"""Where errors come from that say something about the other side, and nothing about the service."""


class Server:
    """A running service. Made by `serve`, which hands it to `nursery.start`."""

    def __init__(self, system: System, access: Access, limits: ServiceLimits) -> None:
        self._system, self._access, self._limits = system, access, limits
        self._feeds = Feeds(system.store, page_bytes=limits.page_bytes)
        self._connections: set[Connection] = set()
        self._streams = 0
        self._login, self.pages = Login(access), Pages()
        self.site = Site(access, limits, self._routes())
        self.host, self.port, self.secure = "", 0, False

    def _routes(self) -> Sequence[Route]:
        probes = Probes(self._access, lambda: "draining" if self.site.draining else "ready", lambda: self._system)
        metrics = Metrics(lambda: self._system, self.statistics)
        chat = Completions(lambda visit: Desk(self._system, visit.grant, self._feeds))
        routes = [
            *page_routes(self._login, self.pages),
            *probe_routes(probes, metrics),
            *agent_routes(chat, Webhooks(lambda: self._system)),
        ]
        return with_document(routes, _version())

    def bound(self, host: str, port: int, *, secure: bool) -> None:
        """Where it is reached."""
        self.host, self.port, self.secure = host, port, secure
        self._login.name, self._login.secure = f"{NAME}-{port}", secure

    def __repr__(self) -> str:
        return f"<Server at {self.url}, {len(self._connections)} connections>"

    @property
    def url(self) -> str:
        """Where clients connect to."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'wss' if self.secure else 'ws'}://{host}:{self.port}"

    def statistics(self) -> Mapping[str, Any]:
        """Connections, streams, what followers share, and requests over HTTP."""
        followers = sum(connection.streams for connection in self._connections)
        return {
            "connections": len(self._connections),
            "followers": followers,
            "feeds": self._feeds.statistics(),
            "requests": len(self.site.waiting),
            "answered": dict(self.site.answered),
        }

    async def handle(self, stream: trio.abc.HalfCloseableStream) -> None:
        """Serve one connection, from its first byte to its last. Whatever goes wrong with it stays here."""
        if self._streams >= self._limits.connections:
            await self._turn_away(stream)
            return
        self._streams += 1
        try:
            await self._serve(stream)
        except Exception as error:
            _report(error)
        finally:
            self._streams -= 1
            await trio.aclose_forcefully(stream)

    async def _turn_away(self, stream: trio.abc.HalfCloseableStream) -> None:
        try:
            with trio.move_on_after(1):
                await stream.send_all(_FULL)
                await stream.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # it has gone by itself
        finally:
            await trio.aclose_forcefully(stream)

    async def _serve(self, stream: trio.abc.HalfCloseableStream) -> None:
        """The head of the first request says which of the two protocols this is."""
        line = Line(stream, self._limits)
        try:
            request = await line.head()
        except Refused as refused:
            await self.site.refuse(line, refused)
            return
        except Gone:
            return
        if request is not None and _wants_websocket(request):
            await self._serve_websocket(Replay(stream, line.seen or b""), request.raw)
        else:
            await self.site.serve(line, request)

    async def _serve_websocket(self, stream: trio.abc.Stream, headers: Headers) -> None:
        async with trio.open_nursery() as nursery:
            request: Any = None
            with trio.move_on_after(self._limits.handshake_s):
                request = await library().wrap_server_stream(
                    nursery, stream, max_message_size=2 * self._limits.message_bytes, receive_buffer_size=BUFFER
                )
            if request is not None:
                connection = await self._admit(request, headers, stream)
                if connection is not None:
                    await self._run(connection)
            nursery.cancel_scope.cancel()

    async def _admit(self, request: Any, headers: Headers, stream: trio.abc.Stream) -> Connection | None:
        with trio.move_on_after(self._limits.handshake_s):
            try:
                grant = self._access.admit(headers, request.proposed_subprotocols)
            except Unauthorized as error:
                await request.reject(401, body=error.message.encode())
                return None
            if SUBPROTOCOL not in request.proposed_subprotocols:
                await request.reject(400, body=f"name the subprotocol {SUBPROTOCOL}".encode())
                return None
            socket = Socket(await request.accept(subprotocol=SUBPROTOCOL), stream)
            return Connection(socket, Desk(self._system, grant, self._feeds), self._limits)
        return None

    async def _run(self, connection: Connection) -> None:
        self._connections.add(connection)
        try:
            await connection.run(_version())
        finally:
            self._connections.discard(connection)

    async def close(self) -> None:
        """Tell every client that the service goes away."""
        async with trio.open_nursery() as nursery:
            for connection in self._connections:
                nursery.start_soon(connection.close, GOING_AWAY, "the service is closing")


def _wants_websocket(request: Request) -> bool:
    return request.headers.get("upgrade", "").lower() == "websocket"


def _report(error: Exception) -> None:
    found = list(leaves(error))
    outside = all(type(leaf).__module__.partition(".")[0] in _FROM_OUTSIDE or isinstance(leaf, UnicodeError) for leaf in found)
    if outside:
        _log.info("a connection ended: %s", "; ".join(map(str, found)))
    else:
        _log.error("a connection failed", exc_info=error)


async def serve(
    system: System,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tokens: Tokens | str | os.PathLike[str] | None = None,
    tls: ssl.SSLContext | tuple[str, str] | None = None,
    origins: Sequence[str] = (),
    limits: ServiceLimits | None = None,
    task_status: trio.TaskStatus[Server] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the agents of a system until cancelled; `nursery.start` gives the `Server`, with its `.port`.

    Args:
        system: an open system; it must outlive this task.
        host: the address to bind. Without tokens only loopback is.
        port: 0 lets the machine choose.
        tokens: `{token: {"scopes": ["read", "send", "admin"], "prefix": "acme/"}}`, or a TOML file of that shape.
        tls: a context, or the paths of a certificate and its key.
        origins: pages of these origins may connect; by default, with tokens any, without them those of this machine.
        limits: how much a connection may take.

    Raises:
        UsageError: the tokens cannot be read, or others could reach a port that asks for none.
        OSError: the port cannot be bound.
    """
    library()
    access = Access(tokens, origins=origins)
    access.check_host(host)
    server = Server(system, access, limits or ServiceLimits())
    context = _context(tls)
    listeners = await trio.open_tcp_listeners(port, host=host)
    server.bound(host, int(listeners[0].socket.getsockname()[1]), secure=context is not None)
    async with trio.open_nursery() as nursery:
        handlers, scope = await nursery.start(_hold)
        try:
            doors: list[Any] = listeners if context is None else [trio.SSLListener(door, context) for door in listeners]
            nursery.start_soon(_accept, server, doors, handlers)
            task_status.started(server)
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await server.close()
            scope.cancel()


async def _accept(server: Server, doors: list[Any], handlers: trio.Nursery) -> None:
    await trio.serve_listeners(server.handle, doors, handler_nursery=handlers)


async def _hold(*, task_status: trio.TaskStatus[tuple[trio.Nursery, trio.CancelScope]]) -> None:
    """Where connections live: what cancels the service does not cut them before they are closed."""
    with trio.CancelScope(shield=True) as scope:
        async with trio.open_nursery() as nursery:
            task_status.started((nursery, scope))
            await trio.sleep_forever()


def _context(tls: ssl.SSLContext | tuple[str, str] | None) -> ssl.SSLContext | None:
    if tls is None or isinstance(tls, ssl.SSLContext):
        return tls
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(*tls)
    except OSError as error:
        raise UsageError(f"the certificate {tls[0]} with the key {tls[1]} cannot be used: {error}") from error
    return context


def _version() -> str:
    from importlib.metadata import version

    return version("callboard")
