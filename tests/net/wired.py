"""Shared by the tests of service and client: both in one process, joined by pipes in memory, so that a mock clock drives them.

`wired` opens a system with a service and a client over it; `Wires` makes the connections and can break the newest one. `raw` is a
bare WebSocket to the same service, for frames that no client would send.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import trio
from trio.testing import lockstep_stream_pair, memory_stream_pair
from trio_websocket import ConnectionRejected, WebSocketConnection, wrap_client_stream

from callboard.actors.agent import Agent
from callboard.actors.models.model import Model
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.net.access import Access
from callboard.net.client import Client, connected
from callboard.net.limits import ServiceLimits
from callboard.net.service import Server
from callboard.net.websocket import Socket, leaves
from callboard.net.wire.methods import SUBPROTOCOL
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import Disconnected
from callboard.storage.store import Store
from callboard.storage.verify import verify


def make(model: Model, **options: Any) -> Agent[Any, Any]:
    """An agent of this model without any plugin."""
    return Agent("demo", model=model, plugins=()).replace(**options)


def scripted(*replies: Any) -> ScriptedModel:
    """A model that plays these replies; a text is one that says it."""
    return ScriptedModel([Reply.text(reply) if isinstance(reply, str) else reply for reply in replies])


class Wires:
    """Connections in memory to one service."""

    def __init__(self, server: Server, nursery: trio.Nursery, token: str | None, pipe: Callable[[], Any]) -> None:
        self._server, self._nursery, self.pipe = server, nursery, pipe
        self._headers = [] if token is None else [(b"authorization", b"Bearer " + token.encode())]
        self.newest: trio.abc.Stream | None = None
        self.made = 0

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[WebSocketConnection | None]:
        near, far = self.pipe()
        self.newest, self.made = near, self.made + 1
        self._nursery.start_soon(self._server.handle, far)
        async with trio.open_nursery() as nursery:
            connection: WebSocketConnection | None = None
            with trio.move_on_after(5):
                connection = await wrap_client_stream(
                    nursery, near, "test", "/", subprotocols=[SUBPROTOCOL], extra_headers=list(self._headers)
                )
            try:
                yield connection
            finally:
                with trio.CancelScope(shield=True), trio.move_on_after(1):
                    await (near if connection is None else connection).aclose()
                nursery.cancel_scope.cancel()

    @asynccontextmanager
    async def socket(self) -> AsyncGenerator[WebSocketConnection]:
        """A bare WebSocket to the service."""
        async with self._open() as connection:
            assert connection is not None
            yield connection

    @asynccontextmanager
    async def dial(self) -> AsyncGenerator[Socket]:
        """What a client opens its connections with."""
        refused = True
        try:
            async with self._open() as connection:
                if connection is not None:
                    refused = False
                    yield Socket(connection)
        except ExceptionGroup as group:
            if not any(isinstance(leaf, ConnectionRejected) for leaf in leaves(group)):
                raise
        if refused:
            raise Disconnected("nobody answers")

    async def cut(self) -> None:
        """Break the newest connection, without a word to either side."""
        assert self.newest is not None
        await trio.aclose_forcefully(self.newest)


@dataclass
class Wired:
    """What a test plays with."""

    system: System
    server: Server
    client: Client
    wires: Wires


@asynccontextmanager
async def serving(
    *agents: Agent[Any, Any],
    store: Store | None = None,
    tokens: Mapping[str, Any] | None = None,
    token: str | None = None,
    limits: ServiceLimits | None = None,
    lockstep: bool = False,
    **options: Any,
) -> AsyncGenerator[tuple[System, Server, Wires]]:
    """A system with a service; everything in its store is verified in the end."""
    kept = MemoryStore() if store is None else store
    async with System.open(kept, agents=agents, **options) as system, trio.open_nursery() as nursery:
        server = Server(system, Access(tokens), limits or ServiceLimits())
        yield system, server, Wires(server, nursery, token, lockstep_stream_pair if lockstep else memory_stream_pair)
        nursery.cancel_scope.cancel()
    report = await verify(kept)
    assert report.ok, "\n".join(map(str, report.problems))


@asynccontextmanager
async def wired(*agents: Agent[Any, Any], patience: float | None = 60, **options: Any) -> AsyncGenerator[Wired]:
    """A system with a service, and a client of it."""
    async with serving(*agents, **options) as (system, server, wires), connected(wires.dial, patience) as client:
        yield Wired(system, server, client, wires)


async def said(connection: WebSocketConnection) -> dict[str, Any]:
    """The next frame of the service."""
    frame: dict[str, Any] = json.loads(await connection.get_message())
    return frame


async def told(connection: WebSocketConnection, method: str, **params: Any) -> dict[str, Any]:
    """Call a method on a bare WebSocket, and the answer; notifications in between are passed over."""
    await connection.send_message(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
    while True:
        frame = await said(connection)
        if "id" in frame:
            return frame
