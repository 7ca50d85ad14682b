"""System: the runtime over one store. Opening it takes up what an earlier process left; closing it leaves nothing running.

    async with System.open("state", agents=[planner]) as system:
        ref = await system.spawn(planner, id="trip-42")
        print((await ref.ask("Three days in Oslo")).result())

Everything an agent is lives in the store; the system is what moves. Any number of tasks of one trio run may use it at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal, get_args

from ..storage.engines.checks import check_agent
from ..storage.errors import DefinitionMissing, UsageError
from ..storage.folds.waits import KINDS
from ..storage.messages import NO_USAGE, Message, Usage
from ..storage.opening import open_store
from ..storage.store import Flag, Head, Store
from .agent import Agent
from .channels.channel import Channel, Deliver
from .channels.switchboard import agents_of
from .checks import check_by_name, check_duration
from .collector import Mode, collector
from .content import mint_id
from .deleting import delete
from .listing import Listing
from .models.model import Model
from .ref import AgentRef
from .report import Report
from .runtime import Runtime
from .seams import Plugin, check_plugins
from .statistics import statistics
from .turns.approving import answer, approvals
from .values import AgentSummary, Approval, Status

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Out = TypeVar("Out", default=str)


class System:
    """A running system. Made by `System.open` alone."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        runtime.system = self

    def __repr__(self) -> str:
        state = "closing" if self._runtime.closing else "open"
        return f"<System on {self._runtime.store.name!r}, {len(self._runtime.registry)} agents in memory, {state}>"

    @staticmethod
    @asynccontextmanager
    async def open(
        store: str | os.PathLike[str] | Store,
        *,
        agents: Sequence[Agent[Any, Any]] = (),
        channels: Mapping[str, Channel | Deliver] | None = None,
        models: Mapping[str, Model] | None = None,
        plugins: Sequence[Plugin] = (),
        deps: Any = None,
        resolve: Callable[..., Awaitable[Agent[Any, Any] | None]] | None = None,
        grace: float = 10,
        idle_after: float = 60,
        model_slots: int | Mapping[str, int] | None = None,
        now: Callable[[], float] = time.time,
        gc: Mode | None = None,
    ) -> AsyncGenerator[System]:
        """Open a system for the length of a block.

        Args:
            store: a folder, ":memory:", or an open Store (which stays open).
            agents: the definitions it knows; those behind their delegations come along.
            channels: ways in and out, by the name that routes call them: a Channel, or an async function that delivers one reply.
            models: adapters by "provider:name", "provider" or "*", before the built-in ones.
            plugins: outermost, for every agent.
            deps: what tools and plugins find in `ctx.deps`.
            resolve: `async (name, head) -> Agent | None`, for definitions that are kept elsewhere.
            grace: seconds that running turns have when the block is left; what is open then goes on at the next start.
            idle_after: seconds after which an idle agent is dropped from memory.
            model_slots: how many model calls run at once for each provider, or by provider ("*" for all others). None: a quarter
                of the files that the process may open, 1,024 at most. Families of agents take turns.
            now: the wall clock, in Unix seconds.
            gc: "server" tunes Python's garbage collector, and how soon threads hand its lock over, for a process that serves many
                agents, while the system is open.

        Raises:
            StoreInUse: another process, or another system here, owns the folder.
            StoreError: the store cannot be opened.
            UsageError: an option is not what it should be; the text says what to write.
        """
        check_by_name("channels", channels, "irc")
        check_by_name("models", models, "openai")
        check_duration("grace", grace)
        check_duration("idle_after", idle_after)
        async with AsyncExitStack() as stack:
            stack.enter_context(collector(gc))
            if isinstance(store, str | os.PathLike):
                store = await stack.enter_async_context(open_store(store))
            runtime = Runtime(
                store,
                channels=channels,
                models=models,
                plugins=check_plugins(plugins, where="System.open"),
                deps=deps,
                resolve=resolve,
                idle_after=idle_after,
                model_slots=model_slots,
                now=now,
            )
            if isinstance(agents, Agent):
                raise UsageError(f"agents= is one definition; give a list: agents=[{agents.name}]")
            for agent in (*agents, *agents_of(runtime.switchboard.channels)):
                runtime.definitions.add(_checked(agent, deps))
            system = System(runtime)
            async with runtime.running(grace):
                yield system

    # -- agents

    async def spawn(
        self,
        agent: Agent[Any, Out],
        *,
        id: str | None = None,
        labels: Mapping[str, str] | None = None,
        history: Sequence[Message] | None = None,
    ) -> AgentRef[Out]:
        """The agent `id` of this definition: created if there is none, opened if there is. Durable on return.

        Args:
            agent: the definition; it is registered.
            id: any text; a new one is minted if None.
            labels: for finding agents; children inherit them. Only a new agent takes them.
            history: messages that a new agent remembers from elsewhere.

        Raises:
            NameMismatch: the id belongs to an agent of another definition.
            UsageError: the id cannot be one; or labels or history cannot be kept, and no agent was created.
        """
        runtime = self._runtime
        runtime.definitions.add(_checked(agent, runtime.deps))
        name = id if id is not None else f"{agent.name}-{mint_id()}"
        check_agent(name)
        async with runtime.registry.lock(name):
            if await runtime.registry.exists(name):
                await runtime.registry.open_as(name, agent)
            else:
                actor = await runtime.registry.create(agent, name, labels=labels, history=tuple(history or ()))
                await actor.log.commit()
        return AgentRef(runtime, name)

    async def get(self, id: str) -> AgentRef[Any]:
        """The agent with this id.

        Raises:
            AgentNotFound: there is none; this never creates one.
        """
        check_agent(id)
        await self._runtime.registry.actor(id)
        return AgentRef(self._runtime, id)

    async def look(self, id: str) -> AgentRef[Any]:
        """The agent with this id, also if this system does not have its definition: then what it did can be read and followed,
        and whatever would make it run is refused.

        Raises:
            AgentNotFound: there is none; this never creates one.
        """
        try:
            return await self.get(id)
        except DefinitionMissing:
            return AgentRef(self._runtime, id)

    async def delete(self, id: str, *, tree: bool = True) -> None:
        """Stop the agent and remove every trace of it (and, with `tree`, of its children) that no fork shares.

        Raises:
            AgentNotFound: there is none.
            AskCycle: the agent waits, directly or not, for the one whose turn this call is part of.
        """
        await delete(self._runtime, id, tree=tree)

    def agents(
        self,
        prefix: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        waiting: str | None = None,
        status: Status | None = None,
        after: str | None = None,
    ) -> AsyncIterator[AgentSummary]:
        """All agents in order of their ids (those behind the id `after`), from the index.

        `waiting` picks those that wait for that kind: `approval` (a person), `ask` (a call that asked another agent has no result
        yet), `child` (its answer or, of an agent at rest, its end in the background), `retry` (of a model call), or `timer` (an
        agent at rest with a reminder, or with input that waits for its time). These begin and end with records, and the index
        has them when those are on disk. What only a running process knows (model, model-slot, tool, commit, definition, asks
        through a handle) `ref.info` says.

        `status` picks those of one status. Who is `running` or waits costs nothing of the others: the index has them apart.

        Raises:
            UsageError: there is no such kind, or status.
        """
        if waiting is not None and waiting not in KINDS:
            raise UsageError(f"the index knows no agents that wait for {waiting!r}; search for one of {', '.join(KINDS)}")
        if status not in (None, *get_args(Status)):
            raise UsageError(f"no agent is {status!r}; search for one that is {', '.join(get_args(Status))}")
        registry = self._runtime.registry

        async def look(head: Head) -> Sequence[AgentSummary]:
            actor = registry.peek(head.agent)
            if waiting is not None and waiting not in head.summary.waits:
                return ()
            found = AgentSummary.of(head, actor.status if actor is not None else None)
            return (found,) if status in (None, found.status) else ()

        # Who runs or waits has an open turn, due input or children at work, but for those that have only the clock to wait for.
        flag: Flag | None = "timer" if waiting == "timer" else None if waiting is None and status != "running" else "attention"
        return Listing(self._runtime.store, look, prefix=prefix, labels=labels, flag=flag, after=after)

    async def usage(self, prefix: str = "", *, labels: Mapping[str, str] | None = None) -> Usage:
        """Tokens of all these agents, from the index."""
        total = NO_USAGE
        async for agent in self.agents(prefix, labels=labels):
            total = total + agent.usage
        return total

    def define(self, agent: Agent[Any, Any]) -> None:
        """Add or replace a definition: idle agents have it at once, open turns from their next boundary on."""
        self._runtime.definitions.add(agent, replace=True)
        self._runtime.registry.redefine(agent)

    @property
    def definitions(self) -> Mapping[str, Agent[Any, Any]]:
        """The definitions it knows now, by name."""
        return {agent.name: agent for agent in self._runtime.definitions}

    def start_task(self, function: Callable[..., Awaitable[object]], *arguments: object, name: str) -> None:
        """Start a task that lives beside the agents, for plugins: it is cancelled after the last turn, before `on_stop`.

        It has a context of its own. What it throws is logged and ends it alone; a task that must not end catches and goes on.
        """
        self._runtime.start_task(function, *arguments, name=name)

    # -- people

    def approvals(self, prefix: str = "", *, labels: Mapping[str, str] | None = None) -> AsyncIterator[Approval]:
        """Calls that wait for a person's word."""
        return approvals(self._runtime, prefix, labels)

    async def answer(self, id: str, verdict: Literal["allow", "deny", "reply"], *, by: str, text: str | None = None) -> None:
        """Answer a question: the call runs, is refused, or (`reply`) has `text` as its result without being run.

        Raises:
            ApprovalExpired: it was answered, withdrawn, or has expired.
        """
        await answer(self._runtime, id, verdict, by=by, text=text)

    def refuse_questions(self) -> None:
        """From now on a call that needs a person is refused at once: for programs in which nobody could answer."""
        self._runtime.nobody_answers = True

    # -- looking

    @property
    def store(self) -> Store:
        """The store underneath."""
        return self._runtime.store

    @property
    def channels(self) -> Mapping[str, Channel]:
        """The channels it was opened with, by name; a function stands in a channel that only sends."""
        return self._runtime.switchboard.channels

    @property
    def report(self) -> Report:
        """What start-up took up, what it could not, and why."""
        return self._runtime.report

    def statistics(self, agents: str | None = None) -> Mapping[str, Any]:
        """How full every queue is now, the counters of writer and store, and what was done since the system was opened.

        All counts are of everything; `asleep` are open turns that wait for a person and cost no task, also those that are not in
        memory. Of single agents in memory `busiest` shows the 20 with the most work before them (`ActorStatistics`); with
        `agents`, all whose ids begin so, in order. Cheap enough to be asked every few seconds; it neither reads nor waits.
        """
        return statistics(self._runtime, agents)


def _checked(agent: Agent[Any, Any], deps: Any) -> Agent[Any, Any]:
    if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"{agent!r} is no Agent; give definitions: agents=[Agent('planner', model=...)]")
    if agent.deps is not None and not isinstance(deps, agent.deps):
        tools = ", ".join(agent.toolbox) or "none"
        given, wanted = type(deps).__name__, agent.deps.__name__
        raise TypeError(f"agent {agent.name!r} (tools: {tools}) expects deps of {wanted}, not {given}: pass deps= to open")
    return agent
