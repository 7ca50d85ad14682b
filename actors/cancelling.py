"""Cancel: a fact before its effect.

The records are appended first, with what they drop; then the scopes are cancelled; the caller returns when they are on disk. So a
crash between leaves turns that recovery ends as aborted, and never goes on with. The first cause wins. The whole tree below is
cancelled in one stretch, descendants first and with their inboxes kept, so that no parent goes on with the result of a child
that was cut; one absolute deadline, set here, bounds all bodies of the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from ..storage.errors import CallboardError
from ..storage.events import Aborted, Cause, InboxDrop, TurnCancel
from .turns.child_end import end_events, tells

if TYPE_CHECKING:
    from ..storage.folds import Child
    from .actor import Actor

PARENT = Cause("parent")


@trio.lowlevel.enable_ki_protection
async def cancel(
    actor: Actor, cause: Cause, *, keep_inbox: bool = False, before: Callable[[Sequence[Actor]], None] | None = None
) -> None:
    """Cancel what the agent and all below it do and, unless `keep_inbox`, drop what it holds; returns when that is on disk.

    `before` is given all below it, and appends what is to stand before the cancel, in the same commit.

    Raises:
        CommitFailed: the fact did not reach the disk.
    """
    deadline = trio.current_time() + actor.agent.limits.abandon_s
    with trio.CancelScope(shield=True), actor.held():
        below = [member for member in await _descendants(actor) if member.log.failed is None]
        await _open_parent(actor)
        if before is not None:
            before(below)
        for member in below:
            _accept(member, PARENT, keep_inbox=True, deadline=deadline)
        _accept(actor, cause, keep_inbox=keep_inbox, deadline=deadline)
        for member in below:
            _end_undone_child(member, PARENT)
        _end_undone_child(actor, cause)
        await actor.log.commit()
        for member in (*below, actor):
            member.promises.settle()


async def _descendants(actor: Actor) -> list[Actor]:
    """Every live descendant, the deepest first."""
    found: list[Actor] = []
    for child in actor.state.children.alive():
        try:
            member = await actor.runtime.registry.actor(child.id)
        except CallboardError:
            continue  # deleted, or of a definition that nobody knows: nothing of it runs
        found.extend([*await _descendants(member), member])
    return found


async def _open_parent(actor: Actor) -> None:
    """So that the parent can be told; one that is gone, or of a definition that nobody knows, need not be."""
    parent = actor.state.identity.parent
    if parent is not None:
        with suppress(CallboardError):
            await actor.runtime.registry.actor(parent)


def _as_child(actor: Actor) -> tuple[Actor, Child] | None:
    """The parent and what it knows of this child, if the child lives for a task and has not ended."""
    parent = actor.runtime.registry.peek(actor.state.identity.parent or "")
    child = parent.state.children.get(actor.id) if parent is not None and parent.log.failed is None else None
    return (parent, child) if parent is not None and child is not None and child.alive and child.task is not None else None


@trio.lowlevel.enable_ki_protection
def _accept(actor: Actor, cause: Cause, *, keep_inbox: bool, deadline: float) -> None:
    """Append the fact and cancel the scope, in one stretch."""
    at, turn, log = actor.position, actor.turn, actor.log
    ids = _dropped(actor, cause) if keep_inbox else actor.inbox.cancel_ids()
    something = bool(ids) or (keep_inbox and actor.inbox.due(None))
    if actor.status != "running" or (turn is None and not at.open and not keep_inbox):
        # Nothing runs, or nothing has begun: what is held is withdrawn, and no turn opens.
        if ids:
            log.append(InboxDrop(ids=ids, why="cancelled"))
    elif at.open and at.cancel is None:
        log.append(TurnCancel(turn=at.turn, cause=cause, ids=ids, keep_inbox=keep_inbox))
    elif at.open and ids:
        log.append(TurnCancel(turn=at.turn, cause=cause, ids=ids))  # a second one drops what came since the first
    elif not at.open and something:
        log.append(TurnCancel(cause=cause, ids=ids, keep_inbox=keep_inbox))
    if actor.maintenance is not None:
        actor.maintenance.cancel()
    for aside in actor.asides:
        aside.cancel()
    if turn is not None:
        turn.deadline = min(turn.deadline, deadline)
        turn.scope.cancel()
    elif actor.asleep:
        actor.wake()


def _dropped(actor: Actor, cause: Cause) -> tuple[str, ...]:
    """What a cancel drops although the inbox is kept: the task of a parent that does not want it done any more."""
    link = _as_child(actor) if cause.kind == "parent" else None
    task = actor.state.restarts.current(link[1].task or "") if link is not None else None
    return (task,) if task is not None and actor.inbox.get(task) is not None else ()


def _end_undone_child(actor: Actor, cause: Cause) -> None:
    """A child whose task was dropped before any turn opened for it has ended: its parent hears of it in the same commit. A turn
    that is being run tells by its own end, unless that is appended already: then it was to be followed by the task again."""
    link = _as_child(actor)
    if link is None or (actor.turn is not None and actor.turn.end_seq < 0):
        return
    parent, child = link
    fate = actor.inbox.fate(actor.state.restarts.current(child.task or ""))
    if fate is not None and fate.kind == "dropped":
        reason = Aborted(cause)
        parent.log.append(*end_events(child, reason, actor.state.usage.total, ""))
        actor.log.join(parent.log)
        if tells(parent, child, reason):
            parent.wake()
