"""What agents are: definitions by name, and those that one agent has alone.

A log names its agent's definition; whoever opens it asks here. One that is not here may be kept elsewhere (`resolve`), or come
later: then those who wait for it hear of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import trio

from ..storage.errors import DefinitionMissing, NameMismatch, UsageError
from ..storage.store import Head
from .failures import described

if TYPE_CHECKING:
    from .agent import Agent
    from .runtime import Runtime


class Definitions:
    """Definitions by name; `formerly` names count too."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._by_name: dict[str, Agent[Any, Any]] = {}
        self._own: dict[str, Agent[Any, Any]] = {}
        """Definitions of single agents: forks that try another one under the same name."""
        self.changed = trio.lowlevel.ParkingLot()
        """Where those wait who need a definition that is missing."""

    def __iter__(self) -> Iterator[Agent[Any, Any]]:
        return iter({id(agent): agent for agent in self._by_name.values()}.values())

    def add(self, agent: Agent[Any, Any], *, replace: bool = False) -> None:
        """Register a definition and those behind its delegations.

        Raises:
            NameMismatch: another definition has the name already, and differs.
            UsageError: a tool of it runs on an asyncio loop, and there is none here.
        """
        known = self._by_name.get(agent.name)
        if known is agent:
            return
        if known is not None and not replace:
            raise NameMismatch(
                f"two definitions are named {agent.name!r}; give one another name, or replace the first by system.define(...)"
            )
        self._check_loop(agent)
        for name in (agent.name, *agent.formerly):
            self._by_name[name] = agent
        self.changed.unpark_all()
        self._add_inner(agent)
        self._runtime.reviver.definitions_changed()

    def get(self, name: str) -> Agent[Any, Any] | None:
        """The definition of this name, if it is here."""
        return self._by_name.get(name)

    def give(self, id: str, agent: Agent[Any, Any]) -> None:
        """Let this one agent have the definition, whatever others of its name have; for the life of this system.

        Raises:
            NameMismatch: a definition behind its delegations has the name of another.
        """
        self._check_loop(agent)
        self._add_inner(agent)
        self._own[id] = agent

    def has_own(self, id: str) -> bool:
        """Whether the agent has a definition of its own."""
        return id in self._own

    def take_back(self, id: str) -> None:
        """The agent is gone, and its own definition with it."""
        self._own.pop(id, None)

    def _check_loop(self, agent: Agent[Any, Any]) -> None:
        wanting = [tool.name for tool in agent.tools if getattr(tool, "loop", None) is not None]
        if wanting and self._runtime.loop is None:
            raise UsageError(
                f"tools of agent {agent.name!r} run on an asyncio loop ({', '.join(wanting)}), and this system has none: "
                "open it by callboard.net.aio.System"
            )

    def _add_inner(self, agent: Agent[Any, Any]) -> None:
        for tool in agent.tools:
            inner = getattr(tool, "agent", None)
            if inner is not None:
                self.add(inner)

    async def find(self, head: Head) -> Agent[Any, Any] | None:
        """The definition of an agent, asking `resolve` for one that is not here."""
        agent = self._own.get(head.agent) or self._by_name.get(head.summary.name)
        if agent is None and self._runtime.resolve is not None:
            agent = await self._resolve(self._runtime.resolve, head)
        return agent

    async def _resolve(self, resolve: Callable[..., Awaitable[Any]], head: Head) -> Agent[Any, Any] | None:
        """What `resolve` answers; that it fails is one agent's misfortune and keeps no other from being opened."""
        name = head.summary.name
        try:
            agent = await resolve(name, head)
        except Exception as error:
            text = f"resolve({name!r}) failed, so agent {head.agent!r} has no definition: {described(error)}"
            raise DefinitionMissing(text, agent=head.agent) from error
        if agent is None:
            return None
        if name not in (getattr(agent, "name", None), *getattr(agent, "formerly", ())):
            text = f"resolve({name!r}) answered {agent!r}, which is no definition of that name; answer it, or None"
            raise DefinitionMissing(text, agent=head.agent)
        found: Agent[Any, Any] = agent
        self.add(found)
        return found
