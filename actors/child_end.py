"""The end of a child: the fact in the parent's log that its task is over, in the same commit as the child's own end.

A delegated child lives for one task. The parent gets exactly one terminal record for it, whatever happens: the two logs are one
unit, so a crash leaves both or neither. A child in the background also leaves one message in the parent's inbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..storage.errors import CallboardError
from ..storage.events import ChildEnded, EndReason, Event, InboxPut
from ..storage.messages import AgentSource, Message, TextBlock
from .values import explain

if TYPE_CHECKING:
    from ..storage.folds import Child
    from .actor import Actor
    from .turn import Turn


class ChildEnd:
    """What the parent's log will say; kept open until it is on disk."""

    def __init__(self, parent: Actor, child: Child) -> None:
        self.parent, self.child = parent, child
        parent.holds += 1

    def append(self, turn: Turn, reason: EndReason) -> None:
        """Write it, joined with the child's own end."""
        usage = turn.log.state.usage.total
        events: list[Event] = [ChildEnded(child=self.child.id, reason=reason, usage=usage)]
        if self.child.background:
            text = turn.position.text if reason.kind == "completed" else f"{self.child.id} {explain(reason)}"
            message = Message(f"{self.child.task}#end", "user", (TextBlock(text or "(no text)"),), AgentSource(self.child.id))
            events.append(InboxPut(message=message, lane="next-step", sender=self.child.id))
        self.parent.log.append(*events)
        turn.log.join(self.parent.log)

    def tell(self) -> None:
        """It is on disk: let the parent go on."""
        self.parent.holds -= 1
        if self.child.background:
            self.parent.wake()


async def child_end(turn: Turn) -> ChildEnd | None:
    """The end to write for a child whose task this turn took; None for every other agent."""
    actor = turn.actor
    parent_id = actor.state.identity.parent
    if parent_id is None:
        return None
    try:
        parent = await actor.runtime.registry.actor(parent_id)
    except CallboardError:
        return None  # the parent is gone or unknown here: the child's own end stands alone
    child = parent.state.children.get(actor.id)
    taken = {*turn.position.claimed, *turn.claiming}
    if child is None or not child.alive or child.task is None or parent.log.failed is not None:
        return None
    if child.task not in taken and not (turn.prompt is not None and turn.prompt.id == child.task):
        return None
    return ChildEnd(parent, child)
