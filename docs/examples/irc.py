"""As much of IRC as an assistant needs: join rooms, read what is said there, say something. The protocol alone, no Callboard.

A line is `[@tags] [:who] COMMAND words [:the rest]`. Servers that know message tags give each message an id, and pass on the
delivery id of ours, by which a reader can see that one came twice.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

LONGEST = 400
"""Bytes of text in one line; a line may have 512 in all."""


@dataclass(frozen=True)
class Line:
    """A line, taken apart."""

    command: str
    words: tuple[str, ...]
    who: str = ""
    tags: str = ""


@dataclass(frozen=True)
class Said:
    """Something that a person said."""

    room: str
    nick: str
    text: str
    id: str


def parse(line: str) -> Line:
    """Take a line apart; one that is nonsense has an empty command."""
    tags = who = ""
    if line.startswith("@"):
        tags, _, line = line[1:].partition(" ")
    if line.startswith(":"):
        who, _, line = line[1:].partition(" ")
    head, colon, rest = line.partition(" :")
    words = (*head.split(), rest) if colon else tuple(head.split())
    return Line(words[0].upper() if words else "", words[1:], who, tags)


def pieces(text: str) -> Iterator[str]:
    """The text as lines that fit; a line end in it can never begin another command."""
    for line in text.splitlines():
        rest = line.replace("\0", "").encode()
        while rest:
            piece = rest[:LONGEST].decode("utf-8", "ignore")
            yield piece
            rest = rest[len(piece.encode()) or LONGEST :]


class Link:
    """A connection that has joined its rooms. Iterate it for what is said there; it ends with the connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream, self._buffer, self._lock = stream, b"", trio.Lock()

    async def send(self, *lines: str) -> None:
        """Send lines, together."""
        async with self._lock:
            await self._stream.send_all("".join(f"{line}\r\n" for line in lines).encode())

    async def say(self, room: str, text: str, *, dedup: str) -> None:
        """Say it in a room."""
        lines = [f"PRIVMSG {room} :{piece}" for piece in pieces(text)] or [f"PRIVMSG {room} :..."]
        await self.send(f"@+callboard/delivery={dedup} {lines[0]}", *lines[1:])

    async def line(self) -> Line:
        """The next line that is no ping; the command is empty when the connection has ended."""
        while True:
            while b"\n" not in self._buffer:
                data = await self._stream.receive_some()
                if not data:
                    return Line("", ())
                self._buffer += data
            raw, _, self._buffer = self._buffer.partition(b"\n")
            line = parse(raw.decode("utf-8", "replace").rstrip("\r"))
            if line.command != "PING":
                return line
            await self.send(f"PONG :{line.words[-1] if line.words else ''}")

    def __aiter__(self) -> Link:
        return self

    async def __anext__(self) -> Said:
        while True:
            line = await self.line()
            if not line.command:
                raise StopAsyncIteration
            if line.command == "PRIVMSG" and len(line.words) == 2:
                ids = [tag.removeprefix("msgid=") for tag in line.tags.split(";") if tag.startswith("msgid=")]
                id = ids[0] if ids else uuid.uuid4().hex
                return Said(room=line.words[0], nick=line.who.partition("!")[0], text=line.words[1], id=id)


@asynccontextmanager
async def connect_irc(host: str, port: int, nick: str, rooms: list[str]) -> AsyncGenerator[Link]:
    """Connect, say who we are, and join."""
    async with await trio.open_tcp_stream(host, port) as stream:
        link = Link(stream)
        await link.send("CAP REQ :message-tags", f"NICK {nick}", f"USER {nick} 0 * :{nick}", "CAP END")
        while (line := await link.line()).command != "001":
            if not line.command:
                raise OSError(f"{host} closed the connection before it said welcome")
        await link.send(*(f"JOIN {room}" for room in rooms))
        yield link
