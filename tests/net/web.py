"""Shared by the tests of HTTP: a client that says what it is told, over pipes in memory, so that a mock clock drives it.

`browsing` opens a system with a service; `Web.get` and `Web.post` are whole requests, each on a connection of its own; `Web.line`
is one connection, for those who want several on it, or half of one.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import h11
import trio
from trio.testing import memory_stream_pair
from wired import serving

from callboard.actors.system import System
from callboard.net.service import Server


@dataclass
class Reply:
    """An answer, whole."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    parts: list[bytes] = field(default_factory=list[bytes])

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """What went wrong."""
        found: dict[str, Any] = self.json["error"]
        return found


class Line:
    """One connection."""

    def __init__(self, stream: trio.abc.HalfCloseableStream) -> None:
        self.stream = stream
        self._h11 = h11.Connection(h11.CLIENT)

    async def ask(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Reply:
        """A whole request, and its answer."""
        await self.send(method, target, body, **headers)
        return await self.answer()

    async def send(self, method: str, target: str, body: bytes | None = None, **headers: str) -> None:
        """A whole request."""
        given = {"host": "localhost:8000", **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body is not None:
            given.setdefault("content-length", str(len(body)))
        data = self._h11.send(h11.Request(method=method, target=target, headers=list(given.items()))) or b""
        data += (self._h11.send(h11.Data(body)) or b"") if body else b""
        await self.stream.send_all(data + (self._h11.send(h11.EndOfMessage()) or b""))

    async def answer(self) -> Reply:
        """The next answer, to its end."""
        reply: Reply | None = None
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                headers = {name.decode(): value.decode() for name, value in event.headers}
                reply = Reply(event.status_code, headers)
            elif isinstance(event, h11.Data):
                assert reply is not None
                reply.parts.append(bytes(event.data))
                reply.body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                assert reply is not None
                if self._h11.our_state is h11.DONE and self._h11.their_state is h11.DONE:
                    self._h11.start_next_cycle()
                return reply
            else:
                assert isinstance(event, h11.InformationalResponse), f"the connection ended: {event}"

    async def _event(self) -> Any:
        while (event := self._h11.next_event()) is h11.NEED_DATA:
            self._h11.receive_data(bytes(await self.stream.receive_some()))
        return event


class Web:
    """A service, and connections to it."""

    def __init__(self, system: System, server: Server, nursery: trio.Nursery, token: str | None) -> None:
        self.system, self.server, self._nursery = system, server, nursery
        self._given = {} if token is None else {"authorization": f"Bearer {token}"}

    @asynccontextmanager
    async def line(self) -> AsyncGenerator[Line]:
        """A connection."""
        near, far = memory_stream_pair()
        self._nursery.start_soon(self.server.handle, far)
        async with near:
            yield Line(near)

    async def get(self, target: str, **headers: str) -> Reply:
        """A GET with the token."""
        return await self.ask("GET", target, None, **headers)

    async def post(self, target: str, value: Any, **headers: str) -> Reply:
        """A POST of JSON with the token."""
        return await self.ask("POST", target, json.dumps(value).encode(), **{"content_type": "application/json", **headers})

    async def ask(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Reply:
        """A request with the token, on a connection of its own."""
        async with self.line() as line:
            return await line.ask(method, target, body, **{**self._given, **headers})

    async def raw(self, data: bytes) -> bytes:
        """What the service says to these bytes, until it has no more to say."""
        async with self.line() as line:
            await line.stream.send_all(data)
            await line.stream.send_eof()
            said = b""
            while part := await line.stream.receive_some():
                said += part
            return said


@asynccontextmanager
async def browsing(*agents: Any, token: str | None = None, **options: Any) -> AsyncGenerator[Web]:
    """A system with a service, spoken to over HTTP."""
    async with serving(*agents, token=token, **options) as (system, server, _), trio.open_nursery() as nursery:
        yield Web(system, server, nursery, token)
        nursery.cancel_scope.cancel()
