"""Stream: one `follow` on a connection, from its place in the log to the client's window.

It holds its place and at most one page. What is in the log already is sent page by page, each waiting for the other side to read;
what comes is mostly taken by `offer`, in the task of whoever leads (see `feeds`), and is sent without this one being woken.
"""

from __future__ import annotations

from typing import Any

import trio

from ..actors.ref import AgentRef
from ..actors.sources import LogSource
from .feeds import FeedPage, Feeds, Place, Types
from .websocket import Socket, text_frame
from .wire import methods as m
from .wire.server import ServerEnd


class Stream(Place):
    """A stream under way: how many frames were sent, and how many of them the client has dealt with."""

    def __init__(self, socket: Socket, params: m.Follow, source: LogSource, seq: int) -> None:
        super().__init__(seq)
        self.scope = trio.CancelScope()
        self.sent = self.acknowledged = 0
        self._socket, self._source = socket, source
        self._number, self._window = params.stream, params.window
        self._types: Types = None if params.types is None else frozenset(params.types)
        self._told = False
        self._lot = trio.lowlevel.ParkingLot()

    def acknowledge(self, frames: int) -> None:
        """The client has dealt with so many, from the first."""
        self.acknowledged = max(self.acknowledged, min(frames, self.sent))
        self._lot.unpark_all()

    def _has_room(self) -> bool:
        return self._window is None or self.sent - self.acknowledged < max(self._window, 1)

    async def pour(self, feeds: Feeds, ref: AgentRef[Any]) -> None:
        """Send what is there and what comes, a page a frame; empty pages only to say that the stream has caught up.

        Raises:
            Closed: the connection is closed.
            CallboardError: there will be no more: the agent was deleted, or the system closed.
        """
        while True:
            while not self._has_room():
                await self._lot.park()
            if not self._told and self._source.last() <= self.seq:
                self._told = True
                await self._send(FeedPage("", self.seq, 0))
                continue
            page = await feeds.after(ref, self._source, self, self._types)
            self.seq = page.upto
            if page.count:
                self._told = self._source.last() <= self.seq
                await self._send(page)

    def offer(self, page: FeedPage) -> bool:
        """Take what comes next, if the socket takes it at once. A stream that was closed takes nothing: its number may have
        another one by now."""
        if not page.count:
            self.seq = page.upto
            return True
        if self.scope.cancel_called or not self._has_room() or not self._socket.send_now(self._frame(page)):
            return False
        self.sent += 1
        self.seq = page.upto
        self._told = self._source.last() <= self.seq
        return True

    async def _send(self, page: FeedPage) -> None:
        frame = self._frame(page)
        self.sent += 1
        await self._socket.send_frame(frame)

    def _frame(self, page: FeedPage) -> bytes:
        key = (self._number, max(self._source.last(), page.upto))
        frame = page.frames.get(key)
        if frame is None:
            frame = text_frame(ServerEnd.records(self._number, page.upto, key[1], page.records).encode())
            if page.keeps_frames:
                page.frames[key] = frame
        return frame
