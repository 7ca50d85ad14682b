"""Policies: which plugins act on an agent, and when they start and stop.

An agent has the system's plugins around its own; one that names none has the default ones, and those of a chat if a channel gives
it messages. A list is what it says, nothing is added to it. A plugin that is `inherited` (a budget
of a tree) also acts on every agent below the one that carries it, outermost of their own; one that is `innermost` stands inside
all others. Each plugin is started once, before the first agent that has it does anything, and stopped once, after the last turn.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import trio

from .chains import Chains
from .plugins.defaults import chat_plugins, default_plugins
from .seams import Plugin

if TYPE_CHECKING:
    from .agent import Agent

_log = logging.getLogger("callboard")
Ancestors = Sequence[tuple[str, "Agent[Any, Any]"]]
"""Id and definition of each agent above, the parent first."""
_within: ContextVar[tuple[Plugin, ...]] = ContextVar("callboard.starting", default=())
"""The plugins whose `on_start` this task is part of."""


class Policies:
    """The plugins of one system."""

    def __init__(self, plugins: Sequence[Plugin], *, in_chats: Collection[str] = ()) -> None:
        """Take the system's plugins, and the names of the definitions behind its channels."""
        self._outer, self._in_chats = tuple(plugins), frozenset(in_chats)
        self._own: dict[int, tuple[Agent[Any, Any], tuple[Plugin, ...]]] = {}
        self._chains: dict[tuple[int, ...], Chains] = {}
        self._started: dict[int, Plugin] = {}
        self._starting: dict[int, trio.Event] = {}

    def of(self, agent: Agent[Any, Any]) -> tuple[Plugin, ...]:
        """The agent's own plugins; the definition is kept, so that its identity stays its own."""
        known = self._own.get(id(agent))
        if known is None:
            unnamed = chat_plugins if agent.name in self._in_chats else default_plugins
            own = tuple(unnamed()) if agent.plugins is None else agent.plugins
            known = self._own[id(agent)] = agent, own
        return known[1]

    def chains(self, agent: Agent[Any, Any], ancestors: Ancestors) -> Chains:
        """The seams of an agent below these, compiled once for all that are alike."""
        own = self.of(agent)
        inherited = [p for _, above in reversed(ancestors) for p in self.of(above) if p.inherited and p not in own]
        listed = dict.fromkeys((*self._outer, *inherited, *own))
        plugins = tuple(sorted(listed, key=lambda plugin: plugin.innermost))
        key = tuple(map(id, plugins))
        if key not in self._chains:
            self._chains[key] = Chains(plugins)
        return self._chains[key]

    def owner(self, plugin: Plugin, agent: str, definition: Agent[Any, Any], ancestors: Ancestors) -> str:
        """The topmost agent, from this one upwards, that carries the plugin: whose tree it acts on. One of the whole system is
        carried by all."""
        if plugin in self._outer:
            return ancestors[-1][0] if ancestors else agent
        carriers = [id for id, above in ((agent, definition), *ancestors) if plugin in self.of(above)]
        return carriers[-1] if carriers else agent

    async def start(self, system: Any, agents: Sequence[Agent[Any, Any]]) -> None:
        """Start what has not been started, of the system's plugins and those of these definitions.

        Returns when all of them have started, whoever began it. One that failed to has not, and is tried again the next time.
        """
        for plugin in self._all(agents):
            while id(plugin) not in self._started:
                other = self._starting.get(id(plugin))
                if other is None:
                    await self._start(system, plugin)
                elif plugin in _within.get():
                    break  # `on_start` itself opens an agent that has the plugin: that cannot wait for it
                else:
                    await other.wait()

    async def _start(self, system: Any, plugin: Plugin) -> None:
        done = self._starting[id(plugin)] = trio.Event()
        token = _within.set((*_within.get(), plugin))
        try:
            await plugin.on_start(system)
            self._started[id(plugin)] = plugin
        finally:
            _within.reset(token)
            del self._starting[id(plugin)]
            done.set()

    async def stop(self) -> None:
        """Stop all that were started; one that fails to keeps nobody from stopping."""
        started, self._started = list(self._started.values()), {}
        for plugin in reversed(started):
            try:
                await plugin.on_stop()
            except Exception:
                _log.exception("plugin %r failed to stop", plugin)

    def _all(self, agents: Sequence[Agent[Any, Any]]) -> Iterator[Plugin]:
        yield from self._outer
        for agent in agents:
            yield from self.of(agent)
