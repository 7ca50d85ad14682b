"""Children: agents that another agent spawned. The tree is data in the parent's log, not nested nurseries.

A child's birth is one unit of two logs: `child/spawned` in the parent, `log/created` (and the task's `inbox/put`) in the child.
Its id is computed from the call that made it, so a body that runs again after a crash finds the same child. A delegation that
is taken up reads the parent's log first: a child that ended is not asked again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import trio

from ..mailbox.addresses import child_id
from ..storage.errors import (
    AgentDeleted,
    AgentNotFound,
    CallboardError,
    CommitFailed,
    DefinitionMissing,
    InputDropped,
    InputParked,
    UsageError,
)
from ..storage.events import Aborted, AskedBy, Cause, ChildEnded, ChildSpawned, EndReason, InboxPut
from ..storage.messages import AgentSource
from .agent import Agent
from .answers import CallResult
from .cancelling import cancel
from .content import to_message
from .outcomes import find_outcome
from .sizes import accepted
from .supervision import last_task
from .values import Outcome, explain
from .waiting import await_outcome

if TYPE_CHECKING:
    from ..storage.folds import Child
    from .actor import Actor
    from .runtime import Runtime
    from .turns.pipeline import Slot

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
"""Between two looks at a child whose log cannot be written."""


class Children:
    """How agents of one system come to have children."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @trio.lowlevel.enable_ki_protection
    async def spawn(self, parent: Actor, agent: Agent[Any, Any], id: str) -> Any:
        """A child without a task, opened if it exists; durable on return. It lives until it is disposed or deleted.

        One that was disposed is a child again: it is born a second time in its parent's log, so that a cancel of the parent
        reaches it, and the limits count it.

        Raises:
            UsageError: the parent has as many children, or stands as deep, as its limits allow.
            NameMismatch: the id belongs to an agent of another definition.
        """
        runtime = self._runtime
        async with runtime.registry.lock(id):
            if await runtime.registry.exists(id):
                child = await runtime.registry.open_as(id, agent)
                known = parent.state.children.get(id)
                if child.state.identity.parent != parent.id or (known is not None and known.alive):
                    return runtime.ref(id)
            else:
                child = None
            why = refusal(parent)
            if why is not None:
                raise UsageError(why, agent=parent.id)
            if child is None:
                child = await runtime.registry.create(agent, id, labels=parent.labels, parent=parent)
                child.log.join(parent.log)
            parent.log.append(ChildSpawned(child=id, name=agent.name))
            await parent.log.commit()
        return runtime.ref(id)


def refusal(parent: Actor) -> str | None:
    """Why this agent may not have another child; None if it may."""
    limits = parent.agent.limits
    if parent.state.identity.depth >= limits.depth:
        return f"{parent.id!r} stands at depth {parent.state.identity.depth}, the deepest allowed (Limits.depth={limits.depth})"
    if len(parent.state.children.alive()) >= limits.children:
        return f"{parent.id!r} has {limits.children} children alive, as many as it may (Limits.children)"
    return None


async def run_delegation(slot: Slot) -> CallResult:
    """The body of a delegation: spawn the child or find it, and give its answer."""
    actor, turn = slot.turn.actor, slot.turn
    id = child_id(actor.id, f"{turn.number}.{actor.position.step}.{slot.call.id}")
    child = actor.state.children.get(id)
    if child is None:
        why = refusal(actor)
        if why is not None:
            return CallResult.of(f"No child was spawned: {why}.", error="LIMIT")
        if await actor.runtime.store.head(id) is not None:  # of another life of this agent, deleted without its children
            return CallResult.of(f"No child was spawned: its id {id} is taken by an agent that is not a child.", error="ID_TAKEN")
        await _spawn_for_task(slot, id)
    child = actor.state.children.get(id)
    assert child is not None, "it was just spawned"
    if slot.tool.background:
        await actor.log.commit()
        return CallResult.of(f"{id} works on it in the background; a message will say when it is done.")
    return await _attach(actor, child, slot.tool.agent)


async def _spawn_for_task(slot: Slot, id: str) -> None:
    actor, agent = slot.turn.actor, slot.tool.agent
    task = to_message(slot.args["task"], id=f"{slot.key}#task", source=AgentSource(actor.id))
    task, blobs = accepted(task, agent.limits, agent=id)
    background = slot.tool.background
    child = await actor.runtime.registry.create(agent, id, labels=actor.labels, parent=actor)
    ask = None if background else AskedBy(task.id, actor.id)
    born = ChildSpawned(
        child=id,
        name=agent.name,
        call_id=slot.call.id,
        task=task.id,
        background=background,
        restarts=slot.tool.restarts,
    )
    actor.log.append(born)
    child.log.append(InboxPut(message=task, lane="next-turn", sender=actor.id, ask=ask), blobs=blobs)
    child.log.join(actor.log)
    if actor.position.cancel is not None:  # accepted while the child was being made: it is born cancelled
        await cancel(child, Cause("parent"), keep_inbox=True)
    elif trio.current_effective_deadline() > -math.inf:  # else this body is cut, and stops the child in a moment
        child.wake()


async def _attach(actor: Actor, child: Child, agent: Agent[Any, Any]) -> CallResult:
    """Wait for the child's task to end; whatever becomes of it is a result that the model reads."""
    runtime, task = actor.runtime, child.task or ""
    try:
        if child.ended is not None:
            await actor.log.commit()  # its end may be in memory alone, with the child's own last records
            last = await last_task(runtime.store, child.id, task)
            outcome = await find_outcome(runtime.store, child.id, message_id=last, output=agent.typed)
        else:
            with runtime.graph.edge(actor.id, child.id, "delegate", since=runtime.now_ms()):
                outcome = await _wait(actor, child, task)
    except (AgentNotFound, AgentDeleted):
        return _gone(actor, child)
    except InputDropped as error:
        return CallResult.of(f"The child {child.id} never ran its task: it was {error.why}.", error="CHILD_DROPPED")
    except InputParked:
        text = f"The child {child.id} does not run its task: it is parked behind a failed turn."
        return CallResult.of(text, error="CHILD_PARKED")
    if child.id in runtime.registry.deleting or child.id in runtime.registry.deleted:
        return _gone(actor, child)
    if outcome is None:
        return CallResult.of(f"The child {child.id} ended without running its task.", error="CHILD_GONE")
    _note_end(actor, child, outcome.reason)
    return _result(child, outcome)


def _note_end(actor: Actor, child: Child, reason: EndReason) -> None:
    """A child that ended, or was deleted, while its parent could not be opened has left no record here."""
    known = actor.state.children.get(child.id)
    if known is not None and known.alive:
        actor.log.append(ChildEnded(child=child.id, reason=reason))


def _gone(actor: Actor, child: Child) -> CallResult:
    _note_end(actor, child, Aborted(Cause("disposed")))
    return CallResult.of(f"The child {child.id} was deleted before it answered.", error="CHILD_GONE")


async def _wait(actor: Actor, child: Child, task: str) -> Outcome[Any]:
    runtime, pause_s = actor.runtime, FIRST_PAUSE_S
    try:
        while True:
            try:
                restarts = (await runtime.registry.actor(child.id)).state.restarts
                return await await_outcome(runtime, child.id, restarts.current(task), None)
            except DefinitionMissing:
                runtime.report.waiting[actor.id] = child.id
                try:
                    await runtime.definitions.changed.park()
                finally:
                    runtime.report.waiting.pop(actor.id, None)
            except CommitFailed:
                if actor.log.failed is not None:
                    raise
                # The child's log alone: it is read again from disk, and its turn goes on.
                await trio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    except trio.Cancelled:
        await _stop(actor, child.id)
        raise


async def _stop(actor: Actor, child_id: str) -> None:
    """The parent was cancelled: so is the child, also one that was not there yet when the cancel walked the tree. The exit of
    the parent's turn waits for its end."""
    runtime = actor.runtime
    with trio.CancelScope(shield=True):
        await trio.lowlevel.checkpoint()
        if runtime.closing or actor.log.failed is not None:
            # A cancel from outside, of the whole system, or a log that is read again from disk: the child goes on, and its
            # parent finds it there.
            return
        try:
            child = await runtime.registry.actor(child_id)
            await cancel(child, Cause("parent"), keep_inbox=True)
        except CallboardError:
            runtime.log_throw(child_id, "cancel")


def _result(child: Child, outcome: Outcome[Any]) -> CallResult:
    if outcome.ok:
        return CallResult.of(outcome.text)
    partial = f"\nWhat it had said: {outcome.text}" if outcome.text else ""
    text = f"The child {child.id} {explain(outcome.reason)}.{partial}"
    return CallResult.of(text, error=f"CHILD_{outcome.reason.kind.upper().replace('-', '_')}")
