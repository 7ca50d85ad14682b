"""One connection as the client sees it: calls in, texts out; texts in, what they mean out. No I/O.

Requests are numbered from 1 in each connection. What a service sends that a client of this version does not know (a notification
added later) is passed over; what cannot be read at all ends the connection, since nothing behind it can be trusted.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct

from ...storage.errors import CallboardError, ServiceError
from . import frames
from .failures import WireError, from_wire
from .methods import METHODS, Ended, Hello, Page, Params


class Answered(Struct, frozen=True):
    """A call has its result, still encoded."""

    id: int
    result: Raw


class Failed(Struct, frozen=True):
    """A call failed; without an id, it is about a frame that the service could not read."""

    id: int | None
    error: CallboardError


class StreamEnded(Struct, frozen=True):
    """A stream is over."""

    stream: int
    error: CallboardError


Received = Answered | Failed | Page | StreamEnded | Hello | None
"""What a frame says; None if it is of a kind that came after this version."""


class ClientEnd:
    """The protocol of one connection, on the client's side."""

    def __init__(self) -> None:
        self._last = 0

    # -- out

    def call(self, method: str, params: Params) -> tuple[int, str]:
        """A request: its id, and the text to send."""
        self._last += 1
        return self._last, frames.request(self._last, METHODS[method].name, params)

    def note(self, name: str, params: Params) -> str:
        """A notification."""
        return frames.notification(name, params)

    # -- in

    def receive(self, text: str | bytes) -> Received:
        """What a frame says.

        Raises:
            ServiceError: it is not of this protocol.
        """
        try:
            envelope = frames.decode(text)
            if isinstance(envelope.method, str):
                return self._notified(envelope.method, envelope.params)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ServiceError(f"the service sent a frame that is not of this protocol: {error}") from error
        id = envelope.id if isinstance(envelope.id, int) else None
        if isinstance(envelope.error, WireError):
            return Failed(id, from_wire(envelope.error))
        if id is None or envelope.result is UNSET:
            raise ServiceError("the service sent an answer without an id or a result")
        return Answered(id, envelope.result)

    def _notified(self, name: str, params: Raw) -> Received:
        match name:
            case "records":
                return msgspec.json.decode(params, type=Page)
            case "ended":
                ended = msgspec.json.decode(params, type=Ended)
                return StreamEnded(ended.stream, from_wire(msgspec.convert(ended.error, WireError)))
            case "hello":
                return msgspec.json.decode(params, type=Hello)
            case _:
                return None


def decode_result(method: str, result: Raw) -> Any:
    """A result as the method's type.

    Raises:
        ServiceError: it is something else: the service is of another version.
    """
    try:
        return msgspec.json.decode(result, type=METHODS[method].result)
    except msgspec.MsgspecError as error:
        raise ServiceError(f"the service answered {method!r} with something else: {error}") from error
