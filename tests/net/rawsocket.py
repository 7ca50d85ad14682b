"""WebSocket below the protocol: frames as bytes, right or wrong, and the handshake that comes before them."""

from __future__ import annotations

from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, Request


def frame(opcode: int, data: bytes, *, final: bool = True, masked: bool = True, size: int | None = None) -> bytes:
    """A frame, right or wrong: `size` is what it says of its length, if that is to be a lie."""
    told_size = len(data) if size is None else size
    head = bytes([(0x80 if final else 0) | opcode])
    mask = 0x80 if masked else 0
    if told_size < 126:
        head += bytes([mask | told_size])
    elif told_size < 65_536:
        head += bytes([mask | 126]) + told_size.to_bytes(2, "big")
    else:
        head += bytes([mask | 127]) + told_size.to_bytes(8, "big")
    return head + (b"\0\0\0\0" if masked else b"") + data


async def upgraded(near: Any) -> None:
    """The handshake, and nothing after it."""
    client = WSConnection(ConnectionType.CLIENT)
    await near.send_all(client.send(Request(host="localhost", target="/", subprotocols=["callboard.v1"])))
    while True:
        client.receive_data(await near.receive_some())
        if any(isinstance(event, AcceptConnection) for event in client.events()):
            return
