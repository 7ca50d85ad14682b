"""Fork: a new agent that shares another's records up to a seq. Nothing is copied; its own log begins behind the prefix.

What the model sees, the header and the turn numbers fold through the prefix; inbox, outbox, children, timers, approvals and usage
begin anew, so that nothing of the origin is run, sent or asked a second time. A fork is taken up by its first send or `resume`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..storage.errors import UsageError
from ..storage.events import LogForked, TurnStart
from ..storage.log import Log
from ..storage.records import refuse_unknown
from ..storage.store import NO_CHUNKS, Fork
from .content import mint_id
from .state import AgentState

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
) -> AgentRef[Any]:
    """Fork `source` after seq `at` (default: its end), or just before turn `turn`; durable on return.

    Raises:
        UsageError: there is no such seq or turn, or the id is taken.
    """
    new = id if id is not None else f"{source}~{mint_id()[-8:]}"
    origin = await runtime.registry.actor(source)
    with origin.held():
        await origin.log.commit()
        upto = await _point(runtime, source, at, turn, origin.log.committed)
        definition = agent or origin.agent
        runtime.definitions.add(definition, replace=agent is not None and agent.name == origin.agent.name)
        async with runtime.registry.lock(new):
            if await runtime.registry.exists(new):
                raise UsageError(f"the agent {new!r} exists already; fork under another id", agent=new)
            state, time = AgentState(), 0
            async for record in runtime.store.read(source, -1, upto, NO_CHUNKS):
                refuse_unknown(record, source)
                state.apply(record.seq, record.time, record.event)
                time = record.time
            epoch = await runtime.store.own(new)
            prelude = Fork(new, epoch, source, upto)
            log = Log(new, epoch, state, runtime.writer, last=upto, time=time, now=runtime.now, prelude=prelude)
            log.append(LogForked(agent=new, name=definition.name, source=source, at=upto, labels=origin.labels or None))
            actor = runtime.registry.adopt(definition, log)
            actor.take_up = state.position.open
            await log.commit()
    return runtime.ref(new)


async def _point(runtime: Runtime, source: str, at: int | None, turn: int | None, last: int) -> int:
    if at is not None and turn is not None:
        raise UsageError("fork takes at= (a seq) or turn= (a number), not both", agent=source)
    if turn is not None:
        async for record in runtime.store.read(source, types={"turn/start"}):
            if isinstance(record.event, TurnStart) and record.event.turn == turn:
                return record.seq - 1
        raise UsageError(f"agent {source!r} has no turn {turn}", agent=source, turn=turn)
    if at is None:
        return last
    if not 0 <= at <= last:
        raise UsageError(f"agent {source!r} has no record {at}; it has 0 to {last}", agent=source, seq=at)
    return at
