"""Server: what answers on the service's port, in both protocols, from the first byte of a connection to its last.

Nothing that a connection does ends another one or the service: every handler is wrapped, every wait has a deadline, every size a
limit. A server is *recovering* until it has a system, then *ready*, and in the end *draining*: it takes nothing new, lets what is
under way finish or leaves it to the next start, and tells its clients to come again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import trio

from ..actors.statistics import ActorStatistics
from ..actors.system import System
from ..storage.errors import ServiceError, Unauthorized, UsageError
from .access import Access, Throttled
from .connection import Connection
from .cookies import NAME
from .feeds import Feeds
from .handlers import Desk
from .http.blobs import Blobs
from .http.completions import Completions
from .http.failures import Refused
from .http.health import Probes
from .http.line import Gone, Line
from .http.login import Login
from .http.messages import Headers, Request
from .http.metrics import Metrics
from .http.pages import Pages
from .http.replay import Replay
from .http.router import Route, Visit
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
_TOO_OLD = "a WebSocket needs HTTP/1.1, and this came as HTTP/%s; nginx in front needs proxy_http_version 1.1"
_FROM_OUTSIDE = ("wsproto", "h11", "trio", "ssl")
"""Where errors come from that say something about the other side, and nothing about the service."""
LOOK_S = 0.1
"""How often a drain looks whether what it waits for is over."""

Drain = Literal["finish", "leave"]


class Server:
    """A running service. Made by `serve`, which hands it to `nursery.start`."""

    def __init__(self, system: System | None, access: Access, limits: ServiceLimits) -> None:
        self._access, self._limits = access, limits
        self._system: System | None = None
        self._feeds: Feeds | None = None
        self._connections: set[Connection] = set()
        self._streams = 0
        self._lines: set[Line] = set()
        self._login, self.pages = Login(access), Pages()
        self.site = Site(access, limits, self._routes())
        self.host, self.port, self.secure = "", 0, False
        if system is not None:
            self.attach(system)

    def _routes(self) -> Sequence[Route]:
        probes = Probes(self._access, lambda: self.site.state, lambda: self._system)
        metrics = Metrics(lambda: self._system, self.statistics)
        hooks = Webhooks(self._access, lambda: self.system)
        routes = [
            *page_routes(self._login, self.pages, Blobs(self._desk)),
            *probe_routes(probes, metrics),
            *agent_routes(Completions(self._desk), hooks),
        ]
        return with_document(routes, _version())

    def _desk(self, visit: Visit) -> Desk:
        return Desk(self.system, visit.grant, self.feeds)

    def __repr__(self) -> str:
        return f"<Server at {self.url}, {self.site.state}, {len(self._connections)} connections>"

    # -- its life

    def bound(self, host: str, port: int, *, secure: bool) -> None:
        """Where it is reached."""
        self.host, self.port, self.secure = host, port, secure
        self._login.name, self._login.secure = f"{NAME}-{port}", secure

    def attach(self, system: System) -> None:
        """The system is open: from now on work is taken."""
        self._system, self._feeds = system, Feeds(system.store, page_bytes=self._limits.page_bytes)
        self.site.state = "ready"

    async def drain(self, how: Drain = "finish", *, grace: float = 30) -> None:
        """Take nothing new, and return when every client has been told to come again; cancel `serve` then.

        Args:
            how: "finish" lets requests and open turns end first, except those that wait for a person; "leave" leaves turns to the
                next start at once.
            grace: how many seconds what is under way may take.

        Raises:
            UsageError: `how` is neither.
        """
        if how not in ("finish", "leave"):  # pyright: ignore[reportUnnecessaryContains]
            raise UsageError(f"drain({how!r}): write 'finish' (open turns may end) or 'leave' (they go on at the next start)")
        self.site.state = "draining"
        with trio.move_on_after(grace):
            if how == "leave":
                self.site.let_go()
            while self.site.requests or (how == "finish" and self._works()):  # noqa: ASYNC110 (two kinds of things end)
                await trio.sleep(LOOK_S)
        self.site.let_go()
        await self.close()

    def _works(self) -> bool:
        """Whether a turn is open that will end without a person."""
        return self._system is not None and any(map(_works, self._system.statistics(agents="")["busiest"]))

    async def close(self) -> None:
        """Tell every client that the service goes away."""
        async with trio.open_nursery() as nursery:
            for connection in self._connections:
                nursery.start_soon(connection.close, GOING_AWAY, "the service is closing")

    # -- looking

    @property
    def system(self) -> System:
        """The system that is served.

        Raises:
            ServiceError: it is not open yet.
        """
        if self._system is None:
            raise ServiceError("the service recovers what an earlier one left; try again")
        return self._system

    @property
    def feeds(self) -> Feeds:
        """What followers share.

        Raises:
            ServiceError: the system is not open yet.
        """
        if self._feeds is None:
            raise ServiceError("the service recovers what an earlier one left; try again")
        return self._feeds

    @property
    def url(self) -> str:
        """Where clients connect to."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'wss' if self.secure else 'ws'}://{host}:{self.port}"

    @property
    def page(self) -> str:
        """Where people look."""
        return f"http{self.url.removeprefix('ws')}/"

    def statistics(self) -> Mapping[str, Any]:
        """All that is open, WebSocket connections, their streams, what followers share, and requests over HTTP."""
        return {
            "open": self._streams,
            "connections": len(self._connections),
            "followers": sum(connection.streams for connection in self._connections),
            "feeds": {} if self._feeds is None else self._feeds.statistics(),
            "requests": self.site.requests,
            "answered": dict(self.site.answered),
            "tokens": self._access.guesses.statistics(),
        }

    # -- connections

    async def handle(self, stream: trio.abc.HalfCloseableStream) -> None:
        """Serve one connection, from its first byte to its last. Whatever goes wrong with it stays here."""
        if self._streams >= self._limits.connections and not self._make_room():
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

    def _make_room(self) -> bool:
        """End the connection that has been waiting longest for a request of somebody known; False if there is none. So those who
        only hold connections open, for nothing or byte by byte, keep nobody out."""
        waiting = {line: line.waits_since for line in self._lines if line.waits_since is not None}
        if not waiting:
            return False
        oldest = min(waiting, key=lambda line: waiting[line])
        self._lines.discard(oldest)
        oldest.scope.cancel()
        return True

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
        line = Line(stream, self._limits)
        self._lines.add(line)
        try:
            with line.scope:
                await self._serve_line(line, stream)
        finally:
            self._lines.discard(line)

    async def _serve_line(self, line: Line, stream: trio.abc.Stream) -> None:
        """The head of the first request says which of the two protocols this is."""
        try:
            request = await line.head()
            websocket = request is not None and _wants_websocket(request)
        except Refused as refused:
            await self.site.refuse(line, refused)
            return
        except Gone:
            return
        if request is not None and websocket:
            line.waits_since = None
            await self._serve_websocket(Replay(stream, line.seen or b""), request.raw, request.peer)
        else:
            await self.site.serve(line, request)

    async def _serve_websocket(self, stream: trio.abc.Stream, headers: Headers, peer: str) -> None:
        async with trio.open_nursery() as nursery:
            request: Any = None
            with trio.move_on_after(self._limits.handshake_s):
                request = await library().wrap_server_stream(
                    nursery, stream, max_message_size=2 * self._limits.message_bytes, receive_buffer_size=BUFFER
                )
            if request is not None:
                connection = await self._admit(request, headers, stream, peer)
                if connection is not None:
                    await self._run(connection)
            nursery.cancel_scope.cancel()

    async def _admit(self, request: Any, headers: Headers, stream: trio.abc.Stream, peer: str) -> Connection | None:
        with trio.move_on_after(self._limits.handshake_s):
            try:
                grant = self._access.admit(headers, request.proposed_subprotocols, peer=peer)
            except Throttled as error:
                await request.reject(429, extra_headers=[(b"retry-after", b"%d" % error.wait_s)], body=error.message.encode())
                return None
            except Unauthorized as error:
                await request.reject(401, body=error.message.encode())
                return None
            if SUBPROTOCOL not in request.proposed_subprotocols:
                await request.reject(400, body=f"name the subprotocol {SUBPROTOCOL}".encode())
                return None
            if self.site.state != "ready":
                await request.reject(503, body=f"the service is {self.site.state}; try again".encode())
                return None
            socket = Socket(await request.accept(subprotocol=SUBPROTOCOL), stream)
            return Connection(socket, Desk(self.system, grant, self.feeds), self._limits, leaving=lambda: self.site.draining)
        return None

    async def _run(self, connection: Connection) -> None:
        self._connections.add(connection)
        try:
            await connection.run(_version())
        finally:
            self._connections.discard(connection)


def _works(agent: ActorStatistics) -> bool:
    for_people = bool(agent.waits) and all(wait.startswith("approval ") for wait in agent.waits)
    return agent.status == "running" and not agent.asleep and not for_people


def _wants_websocket(request: Request) -> bool:
    """Whether it is the handshake; one with a body is a request like any other.

    Raises:
        Refused: 426: it came as HTTP/1.0, which knows no other protocol; 400: the library would stumble over it.
    """
    headers = request.headers
    if headers.get("upgrade", "").lower() != "websocket" or "content-length" in headers or "transfer-encoding" in headers:
        return False
    if request.version < "1.1":
        raise Refused(426, _TOO_OLD % request.version, ("upgrade", "HTTP/1.1"), ("connection", "upgrade"))
    if not all(value.isascii() for name, value in headers.items() if name.startswith("sec-websocket-")):
        raise Refused(400, "the headers of the handshake have letters that are not ASCII")
    return True


def _report(error: Exception) -> None:
    found = list(leaves(error))
    outside = all(type(leaf).__module__.partition(".")[0] in _FROM_OUTSIDE or isinstance(leaf, UnicodeError) for leaf in found)
    if outside:
        _log.info("a connection ended: %s", "; ".join(map(str, found)))
    else:
        _log.error("a connection failed", exc_info=error)


def _version() -> str:
    from importlib.metadata import version

    return version("callboard")
