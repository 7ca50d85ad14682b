"""What a command is given: the agent, the chat and the sender, as a tool has them, less the call.

A command is tried again if the process ends before its records are on disk. Its `effect_key` names the effect for the outside
world, and the messages it sends get ids from it, so neither happens twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ....mailbox.addresses import command_key, effect_id
from ...seams import SeamContext
from ...tools.process import run_process

if TYPE_CHECKING:
    from ....storage.events import Route
    from ....storage.messages import Message
    from ...content import Content
    from ...tools.process import Completed
    from .router import Spec


class CommandContext:
    """One run of one command."""

    def __init__(self, seam: SeamContext, message_id: str, *, specs: Sequence[Spec] = ()) -> None:
        self.seam = seam
        """What plugins see: choices, notes, the view."""
        self.specs = tuple(specs)
        """The commands that this sender may run."""
        self.message_id = message_id
        self.effect_key = command_key(seam.id, message_id)
        """Names this effect, also when the command runs again after a crash: give it to services as their idempotency key."""
        self._made = 0

    def __repr__(self) -> str:
        return f"<CommandContext of {self.seam.id!r}, message {self.message_id!r}>"

    @property
    def agent(self) -> Any:
        """The agent's own handle, an `AgentRef`."""
        return self.seam.agent

    @property
    def turn(self) -> int:
        """The open turn, or the last one."""
        return self.seam.turn

    @property
    def labels(self) -> Mapping[str, str]:
        """The agent's labels."""
        return self.seam.labels

    @property
    def deps(self) -> Any:
        """What `System.open(deps=)` was given."""
        return self.seam.deps

    @property
    def route(self) -> Route | None:
        """Where the answer goes."""
        return self.seam.route

    @property
    def sender(self) -> str | None:
        """Who sent the command, as the channel named them."""
        return self.seam.sender

    @property
    def now(self) -> datetime:
        """The wall clock, with its zone."""
        return self.seam.now

    def note(self, kind: str, data: Any = None) -> None:
        """Write a fact into the log; the model never sees it."""
        self.seam.note(kind, data)

    async def notes(self, kind: str) -> list[Any]:
        """The data of all notes of this kind, oldest first."""
        return await self.seam.notes(kind)

    async def model(self, messages: str | Sequence[Message], **options: Any) -> Message:
        """Ask a model beside the dialogue; see `SeamContext.model`."""
        return await self.seam.model(messages, **options)

    async def send(self, to: str, content: Content, *, message_id: str | None = None) -> Any:
        """Put a message into another agent's Inbox, durable on return; gives the Receipt."""
        return await self.seam.peer(to).followup(content, message_id=message_id or self._next_id())

    async def ask(self, to: str, content: Content, *, timeout: float | None = None, message_id: str | None = None) -> Any:
        """Send, and wait for the Outcome of the turn that takes it."""
        return await self.seam.peer(to).ask(content, timeout=timeout, message_id=message_id or self._next_id())

    async def process(self, *argv: str, timeout: float | None = None, **options: Any) -> Completed:
        """Run a program to its end; see `run_process`."""
        return await run_process(*argv, timeout=timeout, **options)

    def _next_id(self) -> str:
        self._made += 1
        return effect_id(self.effect_key, self._made)
