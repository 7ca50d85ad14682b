"""Fork: a new agent that shares another's records up to a seq. Nothing is copied; its own log begins behind the prefix.

What the model sees, the header and the turn numbers fold through the prefix; inbox, outbox, children, timers, approvals and usage
begin anew, so that nothing of the origin is run, sent or asked a second time. A fork is taken up by its first send or `resume`.

What would have been said under another prompt, or by another model? A fork just before a turn, with another definition and that
turn's input put again (`rerun`), answers that; `comparing.py` lays the two side by side. The input goes without its route: an
answer that is only tried must not reach anybody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..storage.engines.checks import check_agent
from ..storage.errors import AgentNotFound, UsageError
from ..storage.events import ChildSpawned, InboxClaim, InboxPut, LogForked, TurnStart
from ..storage.log import Log
from ..storage.messages import AgentSource, File, Image, ToolSource
from ..storage.records import Record
from ..storage.store import Batch, Fork, Store
from .content import mint_id
from .folding import fold_prefix

if TYPE_CHECKING:
    from .agent import Agent
    from .ref import AgentRef
    from .runtime import Runtime


async def fork(
    runtime: Runtime,
    source: str,
    *,
    at: int | None = None,
    id: str | None = None,
    turn: int | None = None,
    agent: Agent[Any, Any] | None = None,
    rerun: bool = False,
) -> AgentRef[Any]:
    """Fork `source` after seq `at` (default: its end), or just before turn `turn`, which `rerun` runs again; durable on return.

    Raises:
        UsageError: there is no such seq or turn, nothing to run again, or the id is taken.
        NameMismatch: another definition has the name of the one given, or of one behind it.
    """
    new = id if id is not None else fork_id(source)
    check_agent(new)
    origin = await runtime.registry.actor(source)
    with origin.held():
        await origin.log.commit()
        stands = origin.position
        if at is None and turn == stands.turn > 0:
            upto = stands.start_seq - 1  # the last turn: its beginning is known, however long the log
        else:
            upto = await fork_point(runtime.store, source, at, turn, origin.log.committed)
        puts = await _inputs(runtime.store, source, turn) if rerun else []
        blobs = {digest: await runtime.store.blob(digest) for put in puts for digest in _blobs(put)}
        async with runtime.registry.lock(new):
            if await runtime.registry.exists(new):
                raise _taken(new)
            state, time = await fold_prefix(runtime.store, source, upto)
            own = _own_definition(runtime, origin.agent, state.identity.name)
            definition = _define(runtime, new, agent or own, own)
            await runtime.start_plugins(definition)
            epoch = await runtime.store.own(new)
            prelude = Fork(new, epoch, source, upto)
            log = Log(new, epoch, state, runtime.writer, last=upto, time=time, now=runtime.now, prelude=prelude)
            forked = LogForked(agent=new, name=definition.name, source=source, at=upto, labels=origin.labels or None)
            log.append(forked, *puts, blobs=blobs)
            actor = runtime.registry.adopt(definition, log)
            actor.take_up = state.position.open
            if puts:
                actor.wake()
            await log.commit()
    return runtime.ref(new)


def fork_id(source: str) -> str:
    """An id for a fork that was given none."""
    return f"{source}~{mint_id()[-8:]}"


def _own_definition(runtime: Runtime, agent: Agent[Any, Any], name: str) -> Agent[Any, Any]:
    """The definition of the origin where the fork begins: a handoff may have changed it since."""
    return agent if name in (agent.name, *agent.formerly) else runtime.definitions.get(name) or agent


def _define(runtime: Runtime, id: str, agent: Agent[Any, Any], origin: Agent[Any, Any]) -> Agent[Any, Any]:
    """Let the fork have the definition; a variant of the origin's is its alone, or every agent of that name would change."""
    if agent is not origin and agent.name == origin.name:
        runtime.definitions.give(id, agent)
    else:
        runtime.definitions.add(agent)
    return agent


async def fork_in_store(store: Store, source: str, *, at: int | None, turn: int | None, id: str | None, now_ms: int) -> str:
    """Fork in a store whose agents nobody runs, without their definitions; gives the fork's id. Durable on return.

    Raises:
        AgentNotFound: there is no such source.
        UsageError: there is no such seq or turn, or the id is taken or cannot be one.
    """
    new = id if id is not None else fork_id(source)
    check_agent(new)
    head = await store.head(source)
    if head is None:
        raise AgentNotFound(f"there is no agent {source!r} in {store.name}", agent=source)
    if await store.head(new) is not None:
        raise _taken(new)
    upto = await fork_point(store, source, at, turn, head.last)
    state, time = await fold_prefix(store, source, upto)
    who = state.identity
    forked = LogForked(agent=new, name=who.name, source=source, at=upto, labels=who.labels)
    record = Record(upto + 1, max(time, now_ms), forked)
    state.apply(record.seq, record.time, forked)
    epoch = await store.own(new)
    (error,) = await store.commit([[Fork(new, epoch, source, upto), Batch(new, epoch, upto, [record], state.summary())]])
    if error is not None:
        raise error
    return new


def _taken(id: str) -> UsageError:
    return UsageError(f"the agent {id!r} exists already; fork under another id", agent=id)


async def fork_point(store: Store, source: str, at: int | None, turn: int | None, last: int) -> int:
    """The last seq to share.

    Raises:
        UsageError: there is no such seq or turn.
    """
    if at is not None and turn is not None:
        raise UsageError("fork takes at= (a seq) or turn= (a number), not both", agent=source)
    if turn is not None:
        async for record in store.read(source, types={"turn/start"}):
            if isinstance(record.event, TurnStart) and record.event.turn == turn:
                return record.seq - 1
        raise UsageError(f"agent {source!r} has no turn {turn}", agent=source, turn=turn)
    if at is None:
        return last
    if not 0 <= at <= last:
        raise UsageError(f"agent {source!r} has no record {at}; it has 0 to {last}", agent=source, seq=at)
    return at


async def _inputs(store: Store, source: str, turn: int | None) -> list[InboxPut]:
    """What turn `turn` took from outside, to be put again: in the order in which it took it, steering that came while it ran
    with the rest. What its own tools and children gave it will be given again by those of the fork."""
    if turn is None:
        raise UsageError("rerun=True needs turn=, the number of the turn to run again", agent=source)
    puts: dict[str, InboxPut] = {}
    claimed: list[str] = []
    children: set[str] = set()
    async for record in store.read(source, types={"inbox/put", "inbox/claim", "child/spawned", "log/forked"}):
        match record.event:
            case InboxPut() as put:
                puts[put.message.id] = put
            case InboxClaim() as claim if claim.turn == turn:
                claimed.extend(claim.ids)
            case ChildSpawned() as spawned:
                children.add(spawned.child)
            case _:
                pass
    inputs = [_again(puts[id]) for id in claimed if id in puts and not _own(puts[id], children)]
    if not inputs:
        raise UsageError(f"turn {turn} of {source!r} took no input, so there is nothing to run again", agent=source, turn=turn)
    return inputs


def _blobs(put: InboxPut) -> list[str]:
    """Media of the message: the fork holds them itself, for the origin may be deleted."""
    return [block.blob for block in put.message.content if isinstance(block, Image | File) and block.blob is not None]


def _own(put: InboxPut, children: set[str]) -> bool:
    """Whether the message came out of the agent's own work."""
    source = put.message.source
    return isinstance(source, ToolSource) or (isinstance(source, AgentSource) and source.id in children)


def _again(put: InboxPut) -> InboxPut:
    return msgspec.structs.replace(put, route=None, ask=None, replaces=None, not_before=None, restarts=None)
