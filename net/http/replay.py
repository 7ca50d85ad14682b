"""A stream that first gives back what was already read from it: how one port serves two protocols.

The head of the first request says which protocol a connection speaks. If it is WebSocket, its library reads the head once more.
"""

from __future__ import annotations

import trio


class Replay(trio.abc.Stream):
    """The stream underneath, behind the bytes that were read from it to look."""

    def __init__(self, inner: trio.abc.Stream, seen: bytes) -> None:
        self._inner, self._seen = inner, seen

    @property
    def inner(self) -> trio.abc.Stream:
        """The stream underneath."""
        return self._inner

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        if not self._seen:
            return bytes(await self._inner.receive_some(max_bytes))
        await trio.lowlevel.checkpoint()
        size = len(self._seen) if max_bytes is None else max_bytes
        out, self._seen = self._seen[:size], self._seen[size:]
        return out

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()
