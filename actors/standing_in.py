"""Standing in: what comes in for an agent whose definition is missing waits in its inbox until the definition is there.

Whoever writes to a chat can neither know nor help that a deployment has forgotten a definition, and few services let a channel
say "later" to one chat alone. A put needs no definition; what it needs is somebody to say whether it may be kept, and what must
be taken out of it first. For a chat the definition behind its channel can: by its `accept` seam and its limits the message is
taken in. Nothing of the agent runs, and nothing of it is delivered.

There is one log open for each agent here, too. A stand-in holds it only while somebody writes, and hands it on, written to the
end, to whoever opens the agent with its own definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..storage.errors import CallboardError, DefinitionMissing, StaleAppend
from .actor import Actor
from .sending import send, send_to

if TYPE_CHECKING:
    from ..storage.events import InboxPut
    from .agent import Agent
    from .runtime import Runtime
    from .sending import ChooseLane
    from .values import Receipt


class StandIn(Actor):
    """An agent that takes input and runs nothing."""

    __slots__ = ()

    def wake(self) -> None:
        """Nothing runs before its own definition is there."""

    def _settled(self) -> None:
        """Nor does it say anything."""

    async def retire(self) -> None:
        """Bring what was taken in to the disk, and let nobody write any more."""
        while self.log.dirty and self.log.failed is None:
            try:
                await self.log.commit()
            except CallboardError:
                break  # whoever sent it hears of it
        self.log.failed = self.log.failed or StaleAppend(f"the agent {self.id!r} was opened by its own definition", agent=self.id)


async def send_or_keep(
    runtime: Runtime, to: str, put: InboxPut, agent: Agent[Any, Any], *, look_up: bool, choose_lane: ChooseLane
) -> tuple[Receipt, bool]:
    """As `send`; for an agent whose definition is missing by the word of another, which runs nothing.

    Raises:
        InputRefused, InboxFull: as `send`, by that definition's plugins and limits.
        StoreError: it could not be written.
    """
    while True:
        try:
            return await send(runtime, to, put, look_up=look_up, choose_lane=choose_lane)
        except DefinitionMissing as error:
            runtime.report.failed[to] = error
            runtime.reviver.want(to)  # its definition may come later, by `define` or a spawn
        actor = await runtime.registry.stand_in(to, agent)
        try:
            with actor.held():
                return await send_to(actor, put, look_up=look_up)
        except StaleAppend:
            continue  # its definition came in the middle
        finally:
            runtime.registry.dismiss(actor)
