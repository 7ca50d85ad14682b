"""Acme, a provider that does not exist: a small HTTP server that answers in its protocol, for the tests of its adapter.

What it does depends on what it is told: "fail with 429" fails, "look" calls the first tool, "drop" breaks off in the middle,
"wait" says half and then nothing. Each connection serves one request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

CALL = {"id": "c1", "name": "look"}


class Server:
    """Where it listens, what it was asked, and how many connections are open."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.open = 0
        self.gone = trio.Event()
        """Set when a connection was closed by the other side while it waited."""

    async def serve(self, stream: trio.SocketStream) -> None:
        """One request."""
        self.open += 1
        try:
            with suppress(trio.BrokenResourceError):  # the other side has gone: a cut stream is its right
                headers, body = await _read(stream)
                self.keys.append(headers.get("authorization", ""))
                self.asked.append(body)
                await self._answer(stream, body)
        finally:
            await trio.aclose_forcefully(stream)
            self.open -= 1

    async def _answer(self, stream: trio.SocketStream, body: dict[str, Any]) -> None:
        said = body["messages"][-1]["text"]
        if said.startswith("fail with "):
            status = int(said.split()[-1])
            head = (
                f"HTTP/1.1 {status} No\r\nretry-after: 2\r\nx-request-id: r-7\r\ncontent-length: 4\r\nconnection: close\r\n\r\n"
            )
            await stream.send_all(head.encode() + b"oops")
            return
        await stream.send_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        )
        for event in _events(said, body):
            data = f"data: {json.dumps(event)}\n\n".encode()
            await stream.send_all(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        if said == "wait":
            try:
                await stream.receive_some()
            finally:
                self.gone.set()
        elif said != "drop":
            await stream.send_all(b"0\r\n\r\n")


def _events(said: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "open", "i": 0, "block": "text"}
    yield {"type": "text", "i": 0, "d": "hel"}
    if said in ("drop", "wait"):
        return
    yield {"type": "text", "i": 0, "d": "lo"}
    yield {"type": "close", "i": 0}
    if said == "look":
        yield {"type": "open", "i": 1, "block": "tool-call"}
        yield {"type": "args", "i": 1, **CALL, "d": '{"city":'}
        yield {"type": "args", "i": 1, "d": '"Oslo"}'}
        yield {"type": "close", "i": 1}
    if said == "surprise":
        yield {"type": "gift"}
    yield {"type": "usage", "in": len(body["messages"]), "out": 2}
    yield {"type": "stop", "why": {"look": "tool", "long": "len"}.get(said, "eot")}


async def _read(stream: trio.SocketStream) -> tuple[dict[str, str], dict[str, Any]]:
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive_some()
    head, _, body = data.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")[1:]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers["content-length"]):
        body += await stream.receive_some()
    return headers, json.loads(body)


@asynccontextmanager
async def acme_server() -> AsyncGenerator[Server]:
    """Acme, listening on a port of its own, for the length of a block."""
    server = Server()
    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(trio.serve_tcp, server.serve, 0)
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        yield server
        nursery.cancel_scope.cancel()
