"""A channel of lines: what is typed is a message, what the agent says is printed. For scripts and first steps.

(`callboard chat` is the comfortable one.) Lines are read in a thread of their own, which is given up when the system closes. At
the end of the input nothing more comes in, and replies still go out.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

import trio

from .channel import Channel

if TYPE_CHECKING:
    from ..agent import Agent
    from ..values import Delivery, Inbound


class TerminalChannel(Channel):
    """One chat, on the standard input and output or on other files."""

    def __init__(
        self, agent: Agent[Any, Any], *, chat: str = "terminal", source: TextIO | None = None, target: TextIO | None = None
    ) -> None:
        self.agent, self.chat = agent, chat
        self._source, self._target = source or sys.stdin, target or sys.stdout
        self.ended = trio.Event()
        """Set at the end of the input."""

    async def run(self, inbound: Inbound) -> None:
        """Each line that is not empty is a message."""
        inbound.ready()
        while line := await trio.to_thread.run_sync(self._source.readline, abandon_on_cancel=True):
            if line.strip():
                await inbound.put(line.rstrip("\n"), route={"chat": self.chat})
        self.ended.set()
        await trio.sleep_forever()

    async def deliver(self, entry: Delivery) -> None:
        """A line, or several."""
        await trio.to_thread.run_sync(self._write, entry.text)

    def _write(self, text: str) -> None:
        self._target.write(f"{text}\n")
        self._target.flush()
