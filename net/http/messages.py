"""Requests and responses as values: what handlers read and give back. No I/O and no library.

A request is whole when a handler sees it: its head and its body are within the limits. A response is whole too, or is *poured*:
then its body is sent as it comes, and what it waits for is the handler's own affair.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
HTML = "text/html; charset=utf-8"
EVENTS = "text/event-stream; charset=utf-8"

_ABSOLUTE = re.compile(r"[Hh][Tt][Tt][Pp][Ss]?://[^/?]*")
"""What stands before the path when a proxy asks."""

Headers = Sequence[tuple[bytes, bytes]]
Send = Callable[[bytes], Awaitable[None]]
Pour = Callable[[Send], Awaitable[None]]
"""Sends a body piece by piece; each send waits for the other side to read."""


class Request(Struct, frozen=True):
    """One request. `raw` are its headers as they came; `headers` has them by their small names, repeated ones joined; `peer` is
    the address at the other end of the connection, `version` that of HTTP."""

    method: str
    target: str
    raw: Headers
    headers: Mapping[str, str]
    body: bytes = b""
    peer: str = ""
    version: str = "1.1"

    @property
    def path(self) -> str:
        """The path as it came, with its escapes: they are undone in each segment on its own."""
        return _ABSOLUTE.sub("", self.target).partition("?")[0]

    @property
    def query(self) -> dict[str, str]:
        """The query's parameters; of repeated ones the last."""
        return dict(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))

    @property
    def media_type(self) -> str:
        """The body's media type, without its parameters; empty if it names none."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Response(Struct, frozen=True):
    """One response. With `pour` the body is sent as it comes, and `body` is not used."""

    body: bytes = b""
    status: int = 200
    media_type: str = JSON
    headers: tuple[tuple[str, str], ...] = ()
    pour: Pour | None = None

    def with_headers(self, *headers: tuple[str, str]) -> Response:
        """The same with these headers, too."""
        return msgspec.structs.replace(self, headers=(*self.headers, *headers))


def request_of(method: bytes, target: bytes, raw: Headers, *, peer: str = "", version: bytes = b"1.1") -> Request:
    """A request from its head."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    words = [part.decode("latin-1") for part in (method, target, version)]
    return Request(words[0], words[1], raw, headers, peer=peer, version=words[2])


def to_json(value: Any, status: int = 200) -> Response:
    """A value as a JSON response."""
    return Response(msgspec.json.encode(value), status)
