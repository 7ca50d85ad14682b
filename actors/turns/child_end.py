"""The end of a child: the fact in the parent's log that its task is over, in the same commit as the child's own end.

A delegated child lives for one task. The parent gets exactly one terminal record for it, whatever happens: the two logs are one
unit, so a crash leaves both or neither. A child in the background also leaves one message in the parent's inbox.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...storage.errors import AgentDeleted, AgentNotFound, CallboardError
from ...storage.events import Aborted, Cause, ChildEnded, ChildSpawned, EndReason, Event, InboxPut, Note
from ...storage.folds.choices import PREFIX
from ...storage.messages import AgentSource, Message, TextBlock, Usage
from ..folding import fold_log
from ..output import answer_text
from ..supervision import current_task, may_fail, restart, task_put
from ..values import explain

if TYPE_CHECKING:
    from ...storage.folds import Child
    from ...storage.store import Store
    from ..actor import Actor
    from .turn import Turn

UNTOLD = "callboard/untold-end"
"""The choice in a child's log that says: it was disposed while its parent could not be told. It holds the seq of its birth."""


class ChildEnd:
    """What the parent's log will say; kept open until it is on disk. Unless the task is put again: then it says nothing, and
    need not be there."""

    def __init__(self, parent: Actor | None, child: Child, task: str, put: InboxPut | None) -> None:
        self._parent, self.child, self.task, self.put = parent, child, task, put
        self.restarted: InboxPut | None = None
        if parent is not None:
            parent.holds += 1

    def release(self) -> None:
        """The parent may go."""
        if self._parent is not None:
            self._parent.holds -= 1

    def restart(self, turn: Turn, reason: EndReason) -> tuple[InboxPut, ...]:
        """The task again, for the append of the end; nothing if this end is final."""
        self.restarted = None if self.put is None else restart(turn, self.child, reason, self.put)
        return () if self.restarted is None else (self.restarted,)

    def append(self, turn: Turn, reason: EndReason) -> None:
        """Write it, joined with the child's own end; a parent whose log has failed since is told when it is read again."""
        if self.restarted is not None or self._parent is None:
            return
        if self._parent.log.failed is not None:
            turn.untold = self._parent.id
            return
        said = answer_text(turn.agent.typed, turn.position)
        self._parent.log.append(*end_events(self.child, reason, turn.log.state.usage.total, said))
        turn.log.join(self._parent.log)

    def tell(self, reason: EndReason) -> None:
        """It is on disk: let the parent go on."""
        parent = self._parent
        if self.restarted is None and parent is not None and parent.log.failed is None and tells(parent, self.child, reason):
            parent.wake()


def end_events(child: Child, reason: EndReason, usage: Usage, said: str) -> list[Event]:
    """The end of a child's task in its parent's log; of one in the background also a message, with what it `said`."""
    events: list[Event] = [ChildEnded(child=child.id, reason=reason, usage=usage)]
    if _told(child, reason):
        text = said if reason.kind == "completed" else f"{child.id} {explain(reason)}"
        message = Message(f"{child.task}#end", "user", (TextBlock(text or "(no text)"),), AgentSource(child.id))
        events.append(InboxPut(message=message, lane="next-step", sender=child.id))
    return events


def _told(child: Child, reason: EndReason) -> bool:
    """Whether the parent gets a message: of a child in the background, unless the parent's own cancel ended it."""
    return child.background and not (isinstance(reason, Aborted) and reason.cause.kind == "parent")


def tells(parent: Actor, child: Child, reason: EndReason) -> bool:
    """Whether the message is a reason to wake the parent: not one that is being deleted."""
    return _told(child, reason) and parent.id not in parent.runtime.registry.deleting


async def child_end(turn: Turn) -> ChildEnd | None:
    """The end to write for a child whose task this turn took; None for every other agent. Where the parent cannot be told now,
    the system sees to it that it is later, when this turn's end is on disk. Its log can be read all the same: it says whether
    the task of a child that failed is put again."""
    actor = turn.actor
    parent_id = actor.state.identity.parent
    if parent_id is None:
        return None
    try:
        parent = await actor.runtime.registry.actor(parent_id)
    except (AgentNotFound, AgentDeleted):
        return None
    except CallboardError:
        turn.untold = parent_id  # its definition is missing, or its log cannot be read: the child's own end stands alone
        return await _end_alone(turn, parent_id)
    child = parent.state.children.get(actor.id)
    if child is None or not child.alive or child.task is None:
        return None
    if parent.log.failed is not None:
        turn.untold = parent_id
        return None
    task = current_task(turn, child)
    if not _took(turn, task):
        return None
    with parent.held():
        put = await task_put(turn, child)
        return ChildEnd(parent, child, task, put)


async def _end_alone(turn: Turn, parent_id: str) -> ChildEnd | None:
    if not may_fail(turn):
        return None
    try:
        state = await fold_log(turn.actor.runtime.store, parent_id)
    except CallboardError:
        return None
    child = state.children.get(turn.actor.id)
    if child is None or not child.alive or child.task is None or not _took(turn, current_task(turn, child)):
        return None
    put = await task_put(turn, child)
    return None if put is None else ChildEnd(None, child, current_task(turn, child), put)


def _took(turn: Turn, task: str) -> bool:
    """Whether the task is this turn's: taken by it, or dropped at its boundary, perhaps before a crash."""
    fate = turn.actor.inbox.fate(task)
    dropped = fate is not None and fate.kind == "dropped"
    prompted = turn.prompt is not None and turn.prompt.id == task
    return dropped or prompted or task in (*turn.position.claimed, *turn.claiming)


def cancelled_children(actor: Actor) -> bool:
    """Whether a cancel of the tree is still closing a turn below: those end first."""
    members = (actor.runtime.registry.peek(child.id) for child in actor.state.children.alive())
    return any(
        member is not None and member.status == "running" and member.position.open and member.position.cancel is not None
        for member in members
    )


async def end_for_good(actor: Actor, *, task: bool) -> None:
    """A child that is disposed or deleted has ended: its parent's log says so. One with a task ends with that, unless `task`.

    Where the parent cannot be opened, the child's own log keeps the fact until it can.

    Raises:
        StoreError: one of the logs could not be written.
    """
    parent_id = actor.state.identity.parent
    if parent_id is None:
        return
    try:
        parent = await actor.runtime.registry.actor(parent_id)
    except (AgentNotFound, AgentDeleted):
        return
    except CallboardError:
        await _leave_trace(actor, parent_id)
        return
    child = parent.state.children.get(actor.id)
    if child is None or not child.alive or not (task or child.task is None):
        return
    with parent.held():
        reason = Aborted(Cause("disposed"))
        parent.log.append(*end_events(child, reason, actor.state.usage.total, ""))
        if tells(parent, child, reason):
            parent.wake()
        await parent.log.commit()


async def _leave_trace(actor: Actor, parent_id: str) -> None:
    """Note in the child's log which birth this is the end of; a child that is born again later has not ended by it."""
    born = await born_at(actor.runtime.store, parent_id, actor.id)
    if born is not None:
        actor.log.append(Note(kind=PREFIX + UNTOLD, data=born))
        await actor.log.commit()


async def born_at(store: Store, parent: str, child: str) -> int | None:
    """The seq of the child's last birth in its parent's log, which need not be open for that."""
    born: int | None = None
    async for record in store.read(parent, types={"child/spawned"}):
        if isinstance(record.event, ChildSpawned) and record.event.child == child:
            born = record.seq
    return born
