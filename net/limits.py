"""How much a service gives to one connection, and how long it waits for it. Every number is on by default."""

from __future__ import annotations

from msgspec import Struct


class ServiceLimits(Struct, frozen=True, kw_only=True):
    """Bounds of a service; times in seconds, sizes in bytes."""

    connections: int = 1000
    """How many there may be at once; the next one is turned away with status 503."""
    calls: int = 100
    """Calls of one connection that wait for their answers at once."""
    streams: int = 1000
    """Streams of one connection at once."""
    message_bytes: int = 4 * 2**20
    """The longest message taken; past twice as much the connection is closed with 1009 at once."""
    page_bytes: int = 256 * 1024
    """About how much of a stream goes into one frame: what a reader that stops costs, with the record that crosses it."""
    head_bytes: int = 32 * 1024
    """The longest head of an HTTP request; past it the answer is 431."""
    body_bytes: int = 4 * 2**20
    """The longest body of an HTTP request; past it the answer is 413."""
    handshake_s: float = 10
    """For the head of a request."""
    body_s: float = 30
    """For the body of a request; a WebSocket message that is not whole after it is not waited for much longer."""
    idle_s: float = 60
    """How long an HTTP connection may be kept open without a request."""
    wrong_tokens: int = 20
    """How many wrong tokens an address may try at once; past it the answer is 429, whatever the token."""
    wrong_token_s: float = 3
    """How long one counts; so often an address may try when it has tried all."""
    ping_every_s: float = 20
    ping_s: float = 20
    """For the answer to a ping."""
    slow_s: float = 30
    """How long one frame may wait for the other side to read; then the connection is closed with 4408."""
    close_s: float = 5
    """For the other side's part of a close."""
