"""Envelopes: what a frame is before anybody asks what it means.

A frame holds one JSON object. With `method` and `id` it is a request, with `method` alone a notification, with `id` and `result`
or `error` an answer. Batches (arrays) are refused: a frame that holds several messages saves nothing here, since records travel
many a frame anyway.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from .failures import WireError

Id = int | str
EMPTY = Raw(b"{}")


class Envelope(Struct, frozen=True):
    """A message as it came; what is not there is UNSET."""

    jsonrpc: Literal["2.0"]
    id: Id | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw = EMPTY
    result: Raw | UnsetType = UNSET
    error: WireError | UnsetType = UNSET


class _IdOnly(Struct):
    id: Any = None


decode = msgspec.json.Decoder(Envelope).decode
_encode = msgspec.json.Encoder().encode
_id_of = msgspec.json.Decoder(_IdOnly).decode


def id_in(text: str | bytes) -> Id | None:
    """The id in a message that is wrong in some other way, so that its sender can tell which it was."""
    try:
        found = _id_of(text).id
    except (msgspec.DecodeError, UnicodeError):
        return None
    return found if isinstance(found, int | str) and not isinstance(found, bool) else None


def request(id: Id, method: str, params: Struct) -> str:
    """A request, as text."""
    return _encode({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).decode()


def notification(method: str, params: Any) -> str:
    """A notification, as text."""
    return _encode({"jsonrpc": "2.0", "method": method, "params": params}).decode()


def result(id: Id, value: Any) -> str:
    """An answer, as text."""
    return _encode({"jsonrpc": "2.0", "id": id, "result": value}).decode()


def failure(id: Id | None, error: WireError) -> str:
    """An error as the answer, as text."""
    return _encode({"jsonrpc": "2.0", "id": id, "error": error}).decode()
