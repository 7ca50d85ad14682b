"""Server-sent events, without I/O: bytes in, in pieces of any size, events out.

Providers stream this way. The parser is our own for two reasons. Events stay plain data, so that translating them is a pure
function that written streams can test; a token costs some 12 µs, and 70 to 300 as an object of the SDKs'. And it is bounded: a
server that never ends a line would otherwise fill the memory of everybody's agents.
"""

from __future__ import annotations

from msgspec import Struct

from ...storage.errors import ModelError

LARGEST = 16 * 1024 * 1024
"""Bytes of one event; more is no answer of a model but a fault or an attack."""


class Event(Struct, frozen=True):
    """One event: its data, lines joined, and its name where it has one."""

    data: str
    name: str = ""


class SseParser:
    """Feed it what comes, in order. An event that its stream did not end with an empty line is none, as the standard says."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._data: list[str] = []
        self._name = ""
        self._size = 0
        self._after_return = False
        self._first = True

    def feed(self, piece: bytes) -> list[Event]:
        """The events that these bytes complete.

        Raises:
            ModelError: BAD_RESPONSE, an event grows beyond every measure.
        """
        if self._after_return and piece[:1] == b"\n":  # the second half of a line end that was cut in two
            piece = piece[1:]
            self._after_return = False
        if not piece:
            return []
        *ended, rest = _split(piece)
        self._after_return = piece.endswith(b"\r")
        events: list[Event] = []
        for line in ended:
            if self._line:
                line = bytes(self._line) + line
                self._line.clear()
            self._take(line, events)
        self._line += rest
        if self._size + len(self._line) > LARGEST:
            raise ModelError("BAD_RESPONSE", f"the provider sent an event of more than {LARGEST // 2**20} MiB")
        return events

    def _take(self, line: bytes, events: list[Event]) -> None:
        if self._first:
            line, self._first = line.removeprefix(b"\xef\xbb\xbf"), False
        if not line:
            if self._data:
                events.append(Event("\n".join(self._data), self._name))
            self._data, self._name, self._size = [], "", 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value.decode("utf-8", "replace"))
            self._size += len(value)
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")


def _split(piece: bytes) -> list[bytes]:
    """Lines by any of the three line ends; the last has none yet."""
    if b"\r" in piece:
        piece = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return piece.split(b"\n")
