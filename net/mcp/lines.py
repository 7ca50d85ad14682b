"""JSON-RPC messages, one a line, between a byte stream and the SDK: what both ends of MCP over stdio are made of.

The SDK has transports of its own. These are here because a line has a limit (a server that prints without end costs no memory),
because whoever reads knows when the other side has gone (the SDK tells only those who wait for an answer), and because reading
standard input must not hold up a shutdown.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import trio

_log = logging.getLogger("callboard.mcp")
LONGEST = 64 * 2**20
"""Bytes of one message."""
_SHOWN = 200
_TOLD, _EVERY = 10, 10_000
"""Of lines that are no messages the first ones are told, and then one in so many."""


class Source(Protocol):
    """Where bytes come from; b"" is the end."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray: ...


class Sink(Protocol):
    """Where bytes go."""

    async def send_all(self, data: bytes) -> None: ...


class TooLongError(Exception):
    """The other side sent a line longer than any message may be."""


async def read_lines(source: Source, take: Callable[[bytes], Any], *, longest: int = LONGEST) -> None:
    """Hand every line to `take`, which may be awaited, until the source ends.

    Raises:
        TooLongError: a line has more than `longest` bytes.
    """
    rest = bytearray()
    while data := await source.receive_some(65_536):
        begin = len(rest)
        rest += data
        if b"\n" in data:
            *lines, rest = rest.split(b"\n")
            for line in lines:
                await take(bytes(line))
        elif begin > longest:
            raise TooLongError(f"a line of more than {longest} bytes")


async def receive_messages(source: Source, session: Any, *, name: str, longest: int = LONGEST) -> None:
    """Feed the SDK's session with what the other side sends, until that ends; then the session hears that it has."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import jsonrpc_message_adapter

    strays = 0

    async def take(line: bytes) -> None:
        nonlocal strays
        if not line.strip():
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            strays += 1
            if strays <= _TOLD or strays % _EVERY == 0:
                _log.warning("%s printed what is no message (%d so far): %r", name, strays, line[:_SHOWN])
            await trio.lowlevel.checkpoint()  # nobody is waited for on this way, and the others have their turns, too
            return
        await session.send(SessionMessage(message))

    async with session:
        try:
            await read_lines(source, take, longest=longest)
        except TooLongError as error:
            _log.error("%s is cut off: it sent %s", name, error)
        except (trio.BrokenResourceError, trio.ClosedResourceError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            _log.debug("the connection to %s is closed", name)


async def send_messages(session: Any, sink: Sink) -> None:
    """Write what the SDK's session sends; returns when either side has gone."""
    async with session:
        async for item in session:
            text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await sink.send_all(text.encode("utf-8", "replace") + b"\n")
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
