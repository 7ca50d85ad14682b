"""One connection as the service sees it: texts in, calls out; results in, texts out. No I/O.

Whatever a client sends, `receive` gives a value: a call whose parameters have been checked, a notification, or the answer to
something malformed. Good frames in between forgive bad ones; so many in a row mean that the other side speaks something else.
"""

from __future__ import annotations

import difflib
from typing import Any

import msgspec
from msgspec import Struct

from ...storage.errors import CallboardError, ServiceError, UsageError
from . import frames
from .failures import BAD_PARAMS, INVALID, NO_METHOD, PARSE, internal, to_wire
from .frames import Id
from .methods import METHODS, NOTES, Ended, Hello, Method, Params

MOST_MALFORMED = 5


class Call(Struct, frozen=True):
    """A request to be answered."""

    id: Id
    method: Method
    params: Any


class Note(Struct, frozen=True):
    """A notification."""

    name: str
    params: Any


class Malformed(Struct, frozen=True):
    """What could not be taken: the text to answer with, and whether the connection has to be closed after it."""

    reply: str
    close: bool


class ServerEnd:
    """The protocol of one connection, on the service's side."""

    def __init__(self, *, max_message: int = 4 * 2**20) -> None:
        self._max_message = max_message
        self._malformed = 0

    # -- in

    def receive(self, text: str | bytes) -> Call | Note | Malformed:
        """What a frame says."""
        if isinstance(text, bytes):
            return self._refuse(None, INVALID, ServiceError("frames are text, and this one is binary"))
        if len(text) > self._max_message:
            size = f"the message has {len(text):,} characters, and this service takes {self._max_message:,}"
            return self._refuse(frames.id_in(text), INVALID, UsageError(f"{size}; send less at once"))
        try:
            envelope = frames.decode(text)
        except msgspec.ValidationError as error:
            return self._refuse(frames.id_in(text), INVALID, ServiceError(f"the frame is no JSON-RPC 2.0 message: {error}"))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            return self._refuse(None, PARSE, ServiceError(f"the frame is no JSON: {error}"))
        if not isinstance(envelope.method, str):
            return self._refuse(_id(envelope.id), INVALID, ServiceError("the frame has no method; a client sends requests"))
        return self._dispatch(envelope, envelope.method)

    def _dispatch(self, envelope: frames.Envelope, name: str) -> Call | Note | Malformed:
        method, id = METHODS.get(name), _id(envelope.id)
        shape = NOTES.get(name) or (method.params if method is not None else None)
        if shape is None:
            return self._refuse(id, NO_METHOD, UsageError(f"there is no method {name!r}{_closest(name)}"))
        if method is not None and id is None:
            text = f"{name!r} needs an id, a text or a whole number; without one nobody would hear its answer"
            return self._refuse(None, INVALID, ServiceError(text))
        try:
            params: Params = msgspec.json.decode(envelope.params, type=shape)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            return self._refuse(id, BAD_PARAMS, UsageError(f"the parameters of {name!r} do not fit: {error}"))
        self._malformed = 0
        return Note(name, params) if method is None or id is None else Call(id, method, params)

    def refuse(self, id: Id | None, text: str) -> Malformed:
        """Refuse a frame that was well formed, but not now: an id in use, too much at once."""
        return self._refuse(id, INVALID, ServiceError(text))

    def _refuse(self, id: Id | None, code: int, error: CallboardError) -> Malformed:
        self._malformed += 1
        return Malformed(frames.failure(id, to_wire(error, code)), self._malformed >= MOST_MALFORMED)

    # -- out

    def hello(self, hello: Hello) -> str:
        """The first frame."""
        return frames.notification("hello", hello)

    def answer(self, id: Id, value: Any) -> str:
        """The answer to a call."""
        return frames.result(id, value)

    def fail(self, id: Id, error: CallboardError | None) -> str:
        """An error as the answer; None for a fault of the service itself."""
        return frames.failure(id, internal() if error is None else to_wire(error))

    @staticmethod
    def records(stream: int, upto: int, head: int, records: str) -> str:
        """A page of a stream; `records` is a list of JSON objects without its brackets, encoded once for all who follow."""
        place = f'"stream":{stream},"upto":{upto},"head":{head}'
        return f'{{"jsonrpc":"2.0","method":"records","params":{{{place},"records":[{records}]}}}}'

    def ended(self, stream: int, error: CallboardError) -> str:
        """A stream is over."""
        return frames.notification("ended", Ended(stream, to_wire(error)))


def _id(id: object) -> Id | None:
    return id if isinstance(id, int | str) else None


def _closest(name: str) -> str:
    near = difflib.get_close_matches(name, [*METHODS, *NOTES], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
