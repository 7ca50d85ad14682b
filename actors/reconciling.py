"""Reconciling: what a parent's log does not say about its children, because it could not be opened when they ended.

A child's end and what its parent hears of it are one commit of two logs. Where the parent's cannot be opened (its definition is
missing, a newer version wrote it), the child's end stands alone, and the parent still thinks that it lives. So whoever opens a
parent looks at each child that lives, by its own log: one whose task is over has ended, one that was deleted or disposed has,
too, and one that failed under a supervisor gets its task again. What is written then is what would have been written at the time.

Nothing is told twice: a child that the parent's log calls alive has left nothing there, and the last look at that comes right
before the append. Nor is anything lost by a crash: until the parent's log says otherwise, the next opening looks again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..storage.errors import CallboardError, InputDropped
from ..storage.events import Aborted, Cause, EndReason
from ..storage.messages import NO_USAGE, Usage
from .folding import fold_log
from .outcomes import find_outcome
from .supervision import next_put, put_of
from .turns.child_end import UNTOLD, born_at, end_events, tells

if TYPE_CHECKING:
    from ..storage.folds import Child
    from .actor import Actor
    from .state import AgentState

_log = logging.getLogger("callboard")


async def reconcile(parent: Actor) -> None:
    """Write into the parent's log, and those of its children, what is missing there; durable on return.

    One child that cannot be looked at keeps no other from it: the system looks again when definitions change.

    Raises:
        StoreError: the parent's log failed.
    """
    for child in parent.state.children.alive():
        if parent.runtime.closing:
            return
        try:
            await _look(parent, child)
        except CallboardError as error:
            if parent.log.failed is None:
                _log.warning("child %r of %r could not be looked at: %s", child.id, parent.id, error)
        if parent.log.failed is not None:
            raise parent.log.failed


async def _look(parent: Actor, child: Child) -> None:
    runtime = parent.runtime
    actor = runtime.registry.peek(child.id)
    if child.id in runtime.registry.deleting:
        return  # it tells by itself
    busy = actor is not None and actor.status != "idle"
    if actor is not None and actor.log.dirty and not busy:
        await actor.log.commit()
    if actor is None and await runtime.store.head(child.id) is None:
        await _end(parent, child, Aborted(Cause("disposed")))
        return
    state = actor.state if actor is not None else await fold_log(runtime.store, child.id)
    if child.task is None:
        if busy:
            return
        born = state.choices.get(UNTOLD)
        if born is not None and born == await born_at(runtime.store, parent.id, child.id):
            await _end(parent, child, Aborted(Cause("disposed")), usage=state.usage.total)
        return
    task = state.restarts.current(child.task)
    if (state.position.open and task in state.position.claimed) or state.inbox.get(task) is not None:
        return  # the turn that takes it tells by itself; one behind that does not
    try:
        outcome = await find_outcome(runtime.store, child.id, message_id=task)
    except InputDropped:
        await _end(parent, child, Aborted(Cause("user")), usage=state.usage.total)
        return
    if outcome is not None and not await _again(parent, child, outcome.turn, outcome.reason, state):
        await _end(parent, child, outcome.reason, usage=state.usage.total, said=outcome.text)


async def _again(parent: Actor, child: Child, turn: int, reason: EndReason, state: AgentState) -> bool:
    """Put the task again if a supervisor would have; whether it did, or somebody has."""
    runtime, task = parent.runtime, state.restarts.current(child.task or "")
    old = await put_of(runtime.store, child.id, task) if child.restarts is not None else None
    put = None if old is None else next_put(child, reason, old, turn, state.restarts, runtime.now_ms())
    if put is None:
        return False
    actor = await runtime.registry.actor(child.id)
    with actor.held():
        if actor.state.restarts.current(child.task or "") == task:
            actor.log.append(put)
            actor.wake()
        await actor.log.commit()
    return True


async def _end(parent: Actor, child: Child, reason: EndReason, *, usage: Usage = NO_USAGE, said: str = "") -> None:
    known = parent.state.children.get(child.id)
    if known is None or not known.alive or known.task != child.task:
        return
    parent.log.append(*end_events(child, reason, usage, said))
    if tells(parent, child, reason):
        parent.wake()
    await parent.log.commit()
