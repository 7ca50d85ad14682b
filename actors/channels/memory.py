"""A channel that is a list: for tests of agents that people talk to, and of channels' rules.

channel = MemoryChannel(agent)
async with System.open(":memory:", channels={"memory": channel}, models=...) as system:
    await channel.say("hello", chat="ann")
    assert (await channel.reply(chat="ann")).text == "Hello, Ann."
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import trio

from ...storage.messages import Block, Message
from .channel import Channel

if TYPE_CHECKING:
    from ..agent import Agent
    from ..values import Delivery, Inbound, Receipt


class MemoryChannel(Channel):
    """What was said to people stands in `sent`, what they were shown while it streamed in `shown`, delivery id → text."""

    def __init__(self, agent: Agent[Any, Any] | None = None, *, edits: bool = False) -> None:
        self.agent, self.edits = agent, edits
        self.sent: list[Delivery] = []
        """Everything taken by `deliver`, also what came twice."""
        self.shown: dict[str, str] = {}
        self.edited: list[tuple[str, str]] = []
        """Every edit, in order: delivery id and text."""
        self.failing: Exception | None = None
        """What deliveries raise from now on; None to let them pass."""
        self._inbound: Inbound | None = None
        self._read: dict[str, int] = {}
        self._moved = trio.lowlevel.ParkingLot()

    async def run(self, inbound: Inbound) -> None:
        """Be there."""
        self._inbound = inbound
        inbound.ready()
        self._moved.unpark_all()
        await trio.sleep_forever()

    async def say(
        self,
        content: str | Sequence[Block] | Message,
        *,
        chat: str = "chat",
        sender: str | None = None,
        id: str | None = None,
        **route: Any,
    ) -> Receipt | None:
        """A person writes in a chat; `route` may add `thread` and `message`. On disk on return."""
        while self._inbound is None:
            await self._moved.park()
        return await self._inbound.put(content, route={"chat": chat, **route}, sender=sender, message_id=id)

    async def reply(self, *, chat: str = "chat") -> Delivery:
        """The next reply in a chat that this has not given yet, waited for."""
        while True:
            replies = [entry for entry in self.sent if entry.route["chat"] == chat]
            read = self._read.get(chat, 0)
            if read < len(replies):
                self._read[chat] = read + 1
                await trio.lowlevel.checkpoint()
                return replies[read]
            await self._moved.park()

    async def deliver(self, entry: Delivery) -> None:
        """Take a reply, unless the test said otherwise."""
        await trio.lowlevel.checkpoint()
        if self.failing is not None:
            raise self.failing
        self.sent.append(entry)
        self._moved.unpark_all()

    async def edit(self, entry: Delivery, text: str) -> None:
        """Show an answer as far as it is known."""
        await trio.lowlevel.checkpoint()
        if self.failing is not None:
            raise self.failing
        self.shown[entry.delivery] = text
        self.edited.append((entry.delivery, text))
        self._moved.unpark_all()
