"""Deleting an agent: what it does is stopped, those below it go first, and then its log, with every trace that no fork shares.

Whose agents these are is in their logs, so the whole family is found, also children of long ago that nobody remembers in memory.
An agent that cannot be opened (its definition is missing, a newer version wrote it) runs nothing, and can be deleted all the
same: people's data must not depend on code that is gone.

A delete waits for the turns of all whom it deletes. Called from inside a turn it says so to the wait graph for the whole family,
before anything is stopped: one of them that waits for the caller, or is the caller, fails it with nothing changed.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from ..storage.errors import DefinitionMissing, UnknownRecord
from ..storage.events import Cause, ChildSpawned, LogForked
from ..storage.store import Delete, Store
from .cancelling import cancel
from .turns.child_end import end_for_good
from .waiting import in_turn, wait_edge

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime import Runtime


async def delete(runtime: Runtime, id: str, *, tree: bool) -> None:
    """Remove the agent and, with `tree`, all below it. Durable on return.

    Raises:
        AgentNotFound: there is none.
        AskCycle: one of them waits, directly or not, for the agent whose turn this call is part of; nothing was deleted.
    """
    with ExitStack() as waits:
        for member in await _waited_for(runtime, id, tree=tree):
            waits.enter_context(wait_edge(runtime, member, "delete"))
        await _delete(runtime, id, tree=tree)


async def _waited_for(runtime: Runtime, id: str, *, tree: bool) -> list[str]:
    """Whose turns the caller will wait for; a caller outside of turns holds up nobody, and need not know."""
    if in_turn.get() is None:
        return []
    found = [id]
    for member in found:  # it grows while it is walked
        if tree and await runtime.store.head(member) is not None:
            found.extend(child for child in await children_in_log(runtime.store, member) if child not in found)
    return found


async def _delete(runtime: Runtime, id: str, *, tree: bool) -> None:
    try:
        actor = await runtime.registry.actor(id)
    except (DefinitionMissing, UnknownRecord):
        await _delete_closed(runtime, id, tree=tree)
        return
    with actor.held():
        runtime.registry.deleting.add(id)
        try:
            await _delete_open(runtime, actor, tree=tree)
        finally:
            runtime.registry.deleting.discard(id)


async def _delete_open(runtime: Runtime, actor: Actor, *, tree: bool) -> None:
    registry = runtime.registry
    await cancel(actor, Cause("disposed"))
    await actor.wait_idle()
    if tree:
        await _delete_children(runtime, actor.id)
    await end_for_good(actor, task=True)
    async with registry.lock(actor.id):
        await actor.log.commit()
        await actor.log.delete()
        registry.remove(actor.id)
        assert actor.log.failed is not None, "a deleted log refuses everything"
        actor.promises.break_all(actor.log.failed)


async def _delete_closed(runtime: Runtime, id: str, *, tree: bool) -> None:
    if tree:
        await _delete_children(runtime, id)
    async with runtime.registry.lock(id):
        epoch = await runtime.store.own(id)
        (error,) = await runtime.store.commit([[Delete(id, epoch)]])
        if error is not None:
            raise error
        runtime.registry.remove(id)


async def _delete_children(runtime: Runtime, id: str) -> None:
    for child in await children_in_log(runtime.store, id):
        if await runtime.registry.exists(child):
            await _delete(runtime, child, tree=True)


async def children_in_log(store: Store, agent: str) -> list[str]:
    """Everybody whom the agent ever spawned; a fork has not spawned those of its prefix."""
    children: list[str] = []
    async for record in store.read(agent, types={"child/spawned", "log/forked"}):
        if isinstance(record.event, LogForked):
            children.clear()
        elif isinstance(record.event, ChildSpawned) and record.event.child not in children:
            children.append(record.event.child)
    return children
