"""The registry: the one place where logs of agents are opened, created, and dropped from memory.

Everybody who needs an agent asks here by its id. There is one open `Log` for each agent and process; whoever appends to it holds
its actor. An agent that nobody holds, that runs nothing and has nothing unwritten is dropped after a while (passivation), and
comes back at the next access within the same owner epoch, which writes no record. One whose commit failed is dropped at once, and
comes back from disk under a new epoch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import trio
from msgspec import Struct

from ..storage.errors import AgentDeleted, AgentNotFound, CallboardError, DefinitionMissing, NameMismatch, UsageError
from ..storage.events import LogCreated, TraceEntry, UserMessage
from ..storage.log import Log
from ..storage.records import FORMAT
from ..storage.store import Head
from .actor import Actor
from .folding import fold_log
from .reconciling import reconcile
from .reviving import may_heal
from .standing_in import StandIn
from .state import AgentState

if TYPE_CHECKING:
    from ..storage.messages import Message
    from .agent import Agent
    from .runtime import Runtime


SNAPSHOTS_AT_CLOSE = 100
"""How many snapshots a closing system writes at most."""
TAIL_AT_CLOSE = 100
"""Records behind its last snapshot for which an agent gets one then: folding them is most of its next opening."""


class Passive(Struct, frozen=True):
    """What is remembered of an agent that was dropped from memory: its owner epoch goes on."""

    epoch: int
    fresh: bool
    last: int
    walked: tuple[TraceEntry, ...] = ()
    """Of one that waits for a person in an open turn, its walk."""
    ends: bool = False
    """Whether a close ends that turn."""


class Registry:
    """Open agents by id."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._open: dict[str, Actor] = {}
        self._passive: dict[str, Passive] = {}
        self._unopened: dict[str, int] = {}
        """The last seq of those that cannot be opened, for want of their definition: nobody writes on."""
        self._stand_ins: dict[str, StandIn] = {}
        """Those of them that somebody writes to all the same."""
        self._asleep: set[str] = set()
        """Those of them whose open turn waits for a person: what wakes such an agent takes it up, not who looks at it."""
        self._locks: dict[str, tuple[trio.Lock, int]] = {}
        self.failed: dict[str, CallboardError] = {}
        self.deleted: set[str] = set()
        self.deleting: set[str] = set()
        """Agents on their way out: what they still answer is nobody's any more."""
        self.opened = 0

    def __iter__(self) -> Iterator[Actor]:
        return iter(tuple(self._open.values()))

    def __len__(self) -> int:
        return len(self._open)

    def peek(self, id: str) -> Actor | None:
        """The actor, if the agent is open."""
        return self._open.get(id)

    def last(self, id: str) -> int:
        """The last committed seq that this process knows of."""
        actor, passive = self._open.get(id), self._passive.get(id)
        if actor is not None:
            return actor.log.committed
        return passive.last if passive is not None else self._unopened.get(id, -1)

    def epoch(self, id: str) -> int:
        """The owner epoch of the agent's log in this process; -1 if it has not been opened."""
        actor, passive = self._open.get(id), self._passive.get(id)
        if actor is not None:
            return actor.log.epoch
        return passive.epoch if passive is not None else -1

    @property
    def asleep(self) -> int:
        """How many open turns wait for a person, and nobody runs them."""
        return sum(actor.asleep for actor in self._open.values()) + len(self._asleep)

    def is_asleep(self, id: str) -> bool:
        """Whether the agent is not in memory, and has a turn open that waits for a person."""
        return id in self._asleep

    def asleep_to_end(self) -> list[str]:
        """Those whose open turn waits for a person and is ended by a close."""
        here = [actor.id for actor in self if actor.asleep and actor.agent.recovery == "end"]
        return here + [id for id in self._asleep if id in self._passive and self._passive[id].ends]

    async def actor(self, id: str) -> Actor:
        """The agent, opened if need be. Between return and the caller's next checkpoint nobody drops it: hold it by then.

        Raises:
            UsageError: the system is closed.
            AgentNotFound, AgentDeleted: there is no such agent.
            DefinitionMissing: nobody knows what it is.
            StoreError: its log cannot be read, or not be written by this version.
        """
        if self._runtime.writer.closed:
            raise UsageError(f"the system on {self._runtime.store.name!r} is closed: open it again to reach {id!r}", agent=id)
        actor = self._open.get(id)
        if actor is not None and actor.log.failed is None:
            return actor
        async with self.lock(id):
            return await self._usable(id) or await self._load(id)

    async def _usable(self, id: str) -> Actor | None:
        """The open actor; if its log failed, None once its driver has come to rest. The caller holds the lock."""
        actor = self._open.get(id)
        while actor is not None and actor.log.failed is not None:
            await actor.idle_lot.park()
            actor = self._open.get(id)
        return actor

    async def exists(self, id: str) -> bool:
        """Whether there is such an agent."""
        return id in self._open or await self._runtime.store.head(id) is not None

    async def open_as(self, id: str, agent: Agent[Any, Any]) -> Actor:
        """The existing agent `id`, which must be of this definition. The caller holds the lock.

        Raises:
            NameMismatch: it is of another.
        """
        actor = await self._usable(id)
        head = await self._runtime.store.head(id) if actor is None else None
        name = actor.state.identity.name if actor is not None else (head.summary.name if head is not None else agent.name)
        if name not in (agent.name, *agent.formerly):
            if actor is None and head is not None and await self._runtime.definitions.find(head) is not None:
                actor = await self._load(id)
            if actor is not None and actor.state.identity.first in (agent.name, *agent.formerly):
                return actor  # it has been handed over since
            raise NameMismatch(
                f"agent {id!r} is a {name!r}, not a {agent.name!r}: choose another id, or name it in formerly=[{name!r}]",
                agent=id,
            )
        return actor or await self._load(id)

    async def create(
        self,
        agent: Agent[Any, Any],
        id: str,
        *,
        labels: Mapping[str, str] | None = None,
        parent: Actor | None = None,
        history: Sequence[Message] = (),
    ) -> Actor:
        """A new agent: its first records are appended and not yet committed.

        Raises:
            UsageError: the labels or the history cannot be kept; there is no agent then.
            CommitFailed: the parent's log failed meanwhile; there is no agent then, for nobody could tell of its birth.
        """
        self._runtime.definitions.add(agent)
        await self._runtime.start_plugins(agent)
        epoch = await self._runtime.store.own(id)
        log = Log(id, epoch, AgentState(), self._runtime.writer, now=self._runtime.now)
        depth = parent.state.identity.depth + 1 if parent is not None else 0
        created = LogCreated(
            format=FORMAT,
            agent=id,
            name=agent.name,
            labels=_checked(labels),
            parent=parent.id if parent is not None else None,
            depth=depth,
        )
        if parent is not None and parent.log.failed is not None:
            raise parent.log.failed
        log.append(created, *(UserMessage(message=message) for message in history))
        self.deleted.discard(id)
        above = ((parent.id, parent.agent), *parent.ancestors) if parent is not None else ()
        return self._enter(Actor(self._runtime, agent, log, fresh_epoch=False, ancestors=above))

    def adopt(self, agent: Agent[Any, Any], log: Log[AgentState]) -> Actor:
        """Enter an agent whose log was opened elsewhere (a fork)."""
        return self._enter(Actor(self._runtime, agent, log, fresh_epoch=True))

    def _enter(self, actor: Actor) -> Actor:
        self._open[actor.id] = actor
        self.failed.pop(actor.id, None)
        self._passive.pop(actor.id, None)
        self._unopened.pop(actor.id, None)
        self._runtime.report.opened(actor.id)
        self._runtime.observers.watch(actor)
        self._runtime.switchboard.look(actor)
        return actor

    async def _load(self, id: str) -> Actor:
        runtime = self._runtime
        head = await runtime.store.head(id)
        if head is None:
            raise self._gone(id)
        agent = await runtime.definitions.find(head)
        if agent is None:
            self._unopened[id] = head.last
            name = head.summary.name
            what = "pass it in agents=[...]; if it has another name now, give that one formerly"
            raise DefinitionMissing(
                f"agent {id!r} is a {name!r}, and this system has no such definition: {what}=[{name!r}]", agent=id
            )
        stand_in = self._stand_ins.pop(id, None)
        if stand_in is not None:
            await stand_in.retire()
            head = await runtime.store.head(id) or head
        passive = self._passive.get(id)
        state = await fold_log(runtime.store, id)
        epoch = passive.epoch if passive is not None else await runtime.store.own(id)
        log = Log(id, epoch, state, runtime.writer, last=head.last, time=head.time, now=runtime.now)
        self.opened += 1
        await runtime.start_plugins(agent)
        fresh = passive.fresh if passive is not None else True
        above = await self._ancestors(head)
        actor = self._enter(Actor(runtime, agent, log, fresh_epoch=fresh, ancestors=above))
        actor.take_up = state.position.open
        actor.walked = () if passive is None else passive.walked
        if id in self._asleep and actor.take_up and not runtime.closing:
            actor.leave(asleep=True, walked=actor.walked)
        self._asleep.discard(id)
        try:
            with actor.held():
                await reconcile(actor)
        finally:  # it is open, also if the one who asked for it has left
            if not state.forked_idle and not actor.asleep:
                actor.wake()
        return actor

    async def stand_in(self, id: str, agent: Agent[Any, Any]) -> StandIn:
        """An agent that cannot be opened, to write into its inbox; `dismiss` it after that.

        Raises:
            AgentNotFound, AgentDeleted: there is no such agent.
            StoreError: its log cannot be read, or not be written by this version.
        """
        runtime = self._runtime
        async with self.lock(id):
            known = self._stand_ins.get(id)
            if known is not None and known.log.failed is None:
                return known
            head = await runtime.store.head(id)
            if head is None:
                raise self._gone(id)
            self._passive.pop(id, None)
            state, epoch = await fold_log(runtime.store, id), await runtime.store.own(id)
            log = Log(id, epoch, state, runtime.writer, last=head.last, time=head.time, now=runtime.now)
            actor = self._stand_ins[id] = StandIn(runtime, agent, log, fresh_epoch=True)
            return actor

    def dismiss(self, actor: StandIn) -> None:
        """It is written to no more, unless somebody else does."""
        if not actor.holds and self._stand_ins.get(actor.id) is actor:
            del self._stand_ins[actor.id]
            self._unopened[actor.id] = max(actor.log.committed, self._unopened.get(actor.id, -1))

    def _gone(self, id: str) -> AgentNotFound | AgentDeleted:
        if id in self.deleted:
            return AgentDeleted(f"the agent {id!r} was deleted", agent=id)
        return AgentNotFound(f"there is no agent {id!r}; spawn creates one", agent=id)

    async def _ancestors(self, head: Head) -> tuple[tuple[str, Agent[Any, Any]], ...]:
        """Who is above, as far as their definitions are known."""
        above: list[tuple[str, Agent[Any, Any]]] = []
        parent = head.summary.parent
        while parent is not None:
            known = await self._runtime.store.head(parent)
            definition = None if known is None else await self._runtime.definitions.find(known)
            if known is None or definition is None:
                break
            above.append((parent, definition))
            parent = known.summary.parent
        return tuple(above)

    @asynccontextmanager
    async def lock(self, id: str) -> AsyncGenerator[None]:
        """One opening, creation or deletion of an agent at a time."""
        lock, users = self._locks.get(id, (trio.Lock(), 0))
        self._locks[id] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(id)
            if users > 1:
                self._locks[id] = lock, users - 1

    def redefine(self, agent: Agent[Any, Any]) -> None:
        """A definition was replaced: open agents of it take the new one, a running turn at its next boundary."""
        for actor in self:
            own = self._runtime.definitions.has_own(actor.id)
            if actor.state.identity.name in (agent.name, *agent.formerly) and not own:
                actor.define(agent)

    # -- dropping

    def snapshots(self) -> None:
        """The system closes: the next flush writes snapshots of the agents whose next opening would cost most, and of no more
        than a close has time for."""
        long = [actor for actor in self if actor.log.failed is None and actor.state.since_snapshot > TAIL_AT_CLOSE]
        for actor in sorted(long, key=lambda actor: -actor.state.since_snapshot)[:SNAPSHOTS_AT_CLOSE]:
            actor.log.snapshot_soon()

    def close(self) -> None:
        """The system is closed, and nothing more will be written: whoever still waits for a record or an outcome hears of it."""
        for actor in self:
            error = UsageError(
                f"the system on {self._runtime.store.name!r} is closed: open it again to reach {actor.id!r}", agent=actor.id
            )
            actor.log.failed = actor.log.failed or error
            actor.log.moved.unpark_all()
            actor.promises.break_all(error)

    def forget(self, actor: Actor, error: CallboardError) -> None:
        """The actor's log failed: the next access reads the disk, in a new epoch."""
        if self._open.get(actor.id) is actor:
            del self._open[actor.id]
            self.failed[actor.id] = error
            if may_heal(error):
                self._runtime.reviver.want(actor.id)
        self._runtime.observers.leave(actor)

    def remove(self, id: str) -> None:
        """The agent was deleted."""
        actor = self._open.pop(id, None)
        self._passive.pop(id, None)
        self._unopened.pop(id, None)
        self._asleep.discard(id)
        self._runtime.report.failed.pop(id, None)
        self._runtime.definitions.take_back(id)
        self._runtime.switchboard.forget(id)
        self.deleted.add(id)
        if actor is not None:
            self._runtime.observers.unwatch(actor)

    def passivate(self, actor: Actor) -> bool:
        """Drop an actor that nobody needs; no checkpoint between the look and the drop. One with a long tail gets a snapshot
        first, and is dropped at the next look."""
        if not actor.quiet or self._open.get(actor.id) is not actor:
            return False
        if actor.state.long_tail:
            actor.log.snapshot_soon()
            return False
        del self._open[actor.id]
        ends = actor.asleep and actor.agent.recovery == "end"
        self._passive[actor.id] = Passive(actor.log.epoch, actor.fresh_epoch, actor.log.committed, actor.walked, ends)
        if actor.asleep:
            self._asleep.add(actor.id)
        self._runtime.observers.unwatch(actor)
        return True


def _checked(labels: Any) -> dict[str, str] | None:
    if labels is None:
        return None
    if not isinstance(labels, Mapping):
        raise UsageError(f"labels={labels!r} is no mapping; write labels={{'user': 'ann'}}")
    given = dict(cast("Mapping[str, str]", labels))
    for name, value in given.items():
        if not (isinstance(name, str) and isinstance(value, str)):  # pyright: ignore[reportUnnecessaryIsInstance]
            text = f"write labels={{{str(name)!r}: {str(value)!r}}}"
            raise UsageError(f"the label {name!r}: {value!r} is no text; {text}")
    return given or None
