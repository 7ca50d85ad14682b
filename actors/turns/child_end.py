"""The end of a child: the fact in the parent's log that its task is over, in the same commit as the child's own end.

A delegated child lives for one task. The parent gets exactly one terminal record for it, whatever happens: the two logs are one
unit, so a crash leaves both or neither. A child in the background also leaves one message in the parent's inbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.errors import CallboardError
from ...storage.events import Aborted, Cause, ChildEnded, EndReason, Event, InboxPut
from ...storage.messages import AgentSource, Message, TextBlock
from ..output import answer_text
from ..supervision import current_task, restart, task_put
from ..values import explain

if TYPE_CHECKING:
    from ...storage.folds import Child
    from ..actor import Actor
    from .turn import Turn


class ChildEnd:
    """What the parent's log will say; kept open until it is on disk. Unless the task is put again: then it says nothing."""

    def __init__(self, parent: Actor, child: Child, task: str, put: InboxPut | None) -> None:
        self.parent, self.child, self.task, self.put = parent, child, task, put
        self.restarted: InboxPut | None = None
        parent.holds += 1

    def restart(self, turn: Turn, reason: EndReason) -> tuple[InboxPut, ...]:
        """The task again, for the append of the end; nothing if this end is final."""
        self.restarted = None if self.put is None else restart(turn, self.child, reason, self.put)
        return () if self.restarted is None else (self.restarted,)

    def append(self, turn: Turn, reason: EndReason) -> None:
        """Write it, joined with the child's own end."""
        if self.restarted is not None:
            return
        usage = turn.log.state.usage.total
        events: list[Event] = [ChildEnded(child=self.child.id, reason=reason, usage=usage)]
        if self.tells(reason):
            said = answer_text(turn.agent.typed, turn.position)
            text = said if reason.kind == "completed" else f"{self.child.id} {explain(reason)}"
            message = Message(f"{self.child.task}#end", "user", (TextBlock(text or "(no text)"),), AgentSource(self.child.id))
            events.append(InboxPut(message=message, lane="next-step", sender=self.child.id))
        self.parent.log.append(*events)
        turn.log.join(self.parent.log)

    def tells(self, reason: EndReason) -> bool:
        """Whether the parent gets a message: of a child in the background, unless the parent's own cancel ended it."""
        return self.child.background and not (isinstance(reason, Aborted) and reason.cause.kind == "parent")

    def tell(self, reason: EndReason) -> None:
        """It is on disk: let the parent go on."""
        self.parent.holds -= 1
        if self.restarted is None and self.tells(reason):
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
    task = current_task(turn, child)
    fate = actor.inbox.fate(task)
    dropped = fate is not None and fate.kind == "dropped"  # at this turn's boundary, and perhaps before a crash
    if task not in taken and not dropped and not (turn.prompt is not None and turn.prompt.id == task):
        return None
    with parent.held():
        put = await task_put(turn, child)
        return ChildEnd(parent, child, task, put)


def cancelled_children(actor: Actor) -> bool:
    """Whether a cancel of the tree is still closing a turn below: those end first."""
    members = (actor.runtime.registry.peek(child.id) for child in actor.state.children.alive())
    return any(member is not None and member.turn is not None and member.position.cancel is not None for member in members)


async def end_for_good(actor: Actor, *, task: bool) -> None:
    """A child that is disposed or deleted has ended: its parent's log says so. One with a task ends with that, unless `task`."""
    parent_id = actor.state.identity.parent
    if parent_id is None:
        return
    try:
        parent = await actor.runtime.registry.actor(parent_id)
    except CallboardError:
        return
    child = parent.state.children.get(actor.id)
    if child is None or not child.alive or not (task or child.task is None):
        return
    with parent.held():
        reason = Aborted(Cause("disposed"))
        parent.log.append(ChildEnded(child=actor.id, reason=reason, usage=actor.state.usage.total))
        await parent.log.commit()
