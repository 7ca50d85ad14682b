"""The other side of a webhook, as bad as they come: it fails, hangs, takes a reply and says nothing, or says it twice.

What it takes it writes down, one line each, before it answers. It speaks HTTP/1.1 by hand, since a proper server would not do any
of this.
"""

from __future__ import annotations

import json
import os
import random
import socket
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import trio
from msgspec import Struct

Mood = Literal["takes it", "fails", "is busy", "hangs", "takes it and goes away", "answers twice"]
MOODS: Sequence[tuple[Mood, int]] = (
    ("takes it", 55),
    ("fails", 10),
    ("is busy", 5),
    ("hangs", 6),
    ("takes it and goes away", 14),
    ("answers twice", 10),
)
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
ANSWERS: dict[Mood, bytes] = {
    "takes it": OK,
    "answers twice": OK + OK,
    "takes it and goes away": b"",
    "fails": b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n",
    "is busy": b"HTTP/1.1 429 Slow down\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n",
    "hangs": b"",
}


class Taken(Struct, frozen=True):
    """A reply that arrived."""

    id: str
    chat: str
    text: str
    mood: str


class PeerLedger:
    """What the peer has taken, in order."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, body: dict[str, Any], id: str, mood: Mood) -> None:
        """One line, in one write."""
        line = json.dumps({"id": id, "chat": body["route"]["chat"], "text": body["text"], "mood": mood}) + "\n"
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def read(self) -> list[Taken]:
        """All of it."""
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.exists() else []
        return [Taken(**json.loads(line)) for line in lines]


async def serve_badly(listening: socket.socket, ledger: PeerLedger, seed: int) -> None:
    """Serve until killed."""
    moods = random.Random(seed)
    listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))
    await trio.serve_listeners(partial(_connection, ledger=ledger, moods=moods), [listener])


async def _connection(stream: trio.SocketStream, *, ledger: PeerLedger, moods: random.Random) -> None:
    buffer = b""
    try:
        while True:
            while b"\r\n\r\n" not in buffer:
                if not (data := await stream.receive_some()):
                    return
                buffer += data
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            headers = dict(line.lower().split(": ", 1) for line in head.decode().split("\r\n")[1:])
            while len(buffer) < int(headers["content-length"]):
                if not (data := await stream.receive_some()):
                    return
                buffer += data
            body, buffer = buffer[: int(headers["content-length"])], buffer[int(headers["content-length"]) :]
            kinds: list[Mood] = [mood for mood, _ in MOODS]
            mood = moods.choices(kinds, [weight for _, weight in MOODS])[0]
            if "takes it" in mood or mood == "answers twice":
                ledger.write(json.loads(body), headers["webhook-id"], mood)
            if mood == "hangs":
                await trio.sleep(60)
            if not ANSWERS[mood]:
                return
            await stream.send_all(ANSWERS[mood])
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return  # the sender was killed
