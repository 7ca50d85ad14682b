"""SeamContext: what a plugin is told of the place where a seam is called, and what it may do there.

Behind it stands a port that knows the actor (`ports.py`), so that plugins can be tested with ports that only record, and none can
reach into the turn.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .answers import Position, Replace, Why

if TYPE_CHECKING:
    from ..storage.events import Route
    from ..storage.messages import Message
    from ..storage.records import Record
    from .models.model import Model
    from .seams import Plugin

Way = Literal["followup", "steer", "inject", "replace"]
"""How a message is sent: queued, steered into the running turn, added as context, or put in the place of a pending one."""


class SeamPort(Protocol):
    """What the runtime does for a `SeamContext`; one per activity of an agent."""

    @property
    def id(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def turn(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def route(self) -> Route | None: ...
    @property
    def sender(self) -> str | None: ...
    @property
    def deps(self) -> Any: ...
    @property
    def agent(self) -> Any: ...
    def peer(self, id: str) -> Any: ...
    @property
    def requests(self) -> int: ...
    def owner_of(self, plugin: Any) -> str: ...
    def now(self) -> datetime: ...
    @property
    def way(self) -> Way | None: ...
    @property
    def model_name(self) -> str | None: ...
    @property
    def compacts(self) -> bool: ...
    def position(self, why: Why) -> Position: ...
    def beside(self, call: Callable[[], Awaitable[None]]) -> None: ...
    def find_model(self, name: str) -> str | None: ...
    def model_names(self) -> tuple[str, ...]: ...
    def choice(self, name: str) -> Any: ...
    async def compact(self) -> Replace | None: ...
    def note(self, kind: str, data: Any) -> None: ...
    async def notes(self, kind: str) -> list[Any]: ...
    async def records(self, types: Collection[str], id: str | None) -> list[Record]: ...
    async def call_model(self, messages: str | Sequence[Message], options: Mapping[str, Any]) -> Message: ...


class SeamContext:
    """Where a seam is called: the agent, its turn and step, and what a plugin may do there.

    `local` is scratch for one activity, shared by all plugins (use your plugin or its name as the key); what must survive a
    restart goes into `note`. One plugin serves many agents, so nothing about one agent belongs on the plugin itself.
    """

    __slots__ = ("_at_turn_end", "_port", "local")

    def __init__(self, port: SeamPort, *, of: SeamContext | None = None) -> None:
        self._port = port
        self._at_turn_end: list[Callable[[], None]] = [] if of is None else of._at_turn_end
        self.local: dict[Any, Any] = {} if of is None else of.local

    @property
    def id(self) -> str:
        """The agent's id."""
        return self._port.id

    @property
    def labels(self) -> Mapping[str, str]:
        """The agent's labels; children and forks inherit them."""
        return self._port.labels

    @property
    def turn(self) -> int:
        """The open turn's number; outside a turn that of the last one (0: there was none)."""
        return self._port.turn

    @property
    def step(self) -> int:
        """The step's number within its turn; 0 before the first."""
        return self._port.step

    @property
    def requests(self) -> int:
        """Model calls that the turn has sent so far."""
        return self._port.requests

    @property
    def route(self) -> Route | None:
        """Where the turn's answer goes; in `accept` that of the message."""
        return self._port.route

    @property
    def sender(self) -> str | None:
        """Who sent the message that the turn is about (in `accept`: that is being sent), as the channel named them."""
        return self._port.sender

    @property
    def way(self) -> Way | None:
        """In `accept`, how the message is sent; None in every other seam."""
        return self._port.way

    @property
    def deps(self) -> Any:
        """What `System.open(deps=)` was given."""
        return self._port.deps

    @property
    def now(self) -> datetime:
        """The wall clock, with its zone."""
        return self._port.now()

    @property
    def agent(self) -> Any:
        """The agent's own handle (an `AgentRef`): steer, inject, cancel, remind."""
        return self._port.agent

    def peer(self, id: str) -> Any:
        """The handle of another agent; that it exists is seen when it is used."""
        return self._port.peer(id)

    def owner_of(self, plugin: Plugin) -> str:
        """The agent whose tree an inherited plugin acts on: the topmost one, from here upwards, that carries it."""
        return self._port.owner_of(plugin)

    def note(self, kind: str, data: Any = None) -> None:
        """Write a fact of the plugin's own into the log; the model never sees it."""
        self._port.note(kind, data)

    async def notes(self, kind: str) -> list[Any]:
        """The data of all notes of this kind, oldest first, also from before a restart."""
        return await self._port.notes(kind)

    def choice(self, name: str) -> Any:
        """What was chosen last under this name, also before a restart: the data of the newest note of kind `choice/NAME`. It
        costs nothing to ask, however long the log is. None if nothing was, or the newest note says None."""
        return self._port.choice(name)

    @property
    def model_name(self) -> str | None:
        """The model of the agent's definition, as `provider:name`."""
        return self._port.model_name

    @property
    def model_names(self) -> tuple[str, ...]:
        """The models that the system was given by name."""
        return self._port.model_names()

    def find_model(self, name: str) -> str | None:
        """`name` if it is a `provider:name` that an adapter answers for, else None.

        Raises:
            UsageError: it is no name of a model, or its adapter cannot be made; the message says why.
        """
        return self._port.find_model(name)

    @property
    def compacts(self) -> bool:
        """Whether a plugin of the agent rewrites its view when it is asked to."""
        return self._port.compacts

    async def compact(self) -> Replace | None:
        """Ask the `compact` seam for a rewrite of the view, because a person wants it: what a command may answer.

        A throw is the caller's.
        """
        return await self._port.compact()

    async def records(self, types: Collection[str], *, id: str | None = None) -> list[Record]:
        """All records of these types in the agent's log (or in that of the agent `id`), oldest first, also what was appended
        just now: for a plugin that has to find out after a restart where it stood.

        Raises:
            AgentNotFound, AgentDeleted: there is no agent `id`.
        """
        return await self._port.records(types, id)

    def position(self, why: Why) -> Position:
        """What the `compact` seam would be given now: the view with the seqs of its messages, and how full it is."""
        return self._port.position(why)

    def beside(self, call: Callable[[], Awaitable[None]]) -> None:
        """Run this beside the turn, and beyond its end. A cancel of the agent ends it, and so does the closing of the system;
        a crash forgets it. A throw is logged outside of the agent."""
        self._port.beside(call)

    def at_turn_end(self, call: Callable[[], None]) -> None:
        """Call this once the open turn is over, however it ends; also when the system closes and leaves it open."""
        self._at_turn_end.append(call)

    def take_turn_end(self) -> list[Callable[[], None]]:
        """What is to be called now that the turn is over; for the runtime."""
        calls = list(self._at_turn_end)
        self._at_turn_end.clear()  # the list itself is shared with the contexts of sends
        return calls

    async def model(
        self,
        messages: str | Sequence[Message],
        *,
        model: str | Model | None = None,
        system: str = "",
        max_tokens: int | None = None,
    ) -> Message:
        """Ask a model (the agent's own if none is named) beside the dialogue. The call leaves a note and counts as usage.

        Raises:
            ModelError: the call failed; nobody retries it. Also if the model declined to answer (`REFUSAL`, `CONTENT_FILTER`).
        """
        options = {"model": model, "system": system, "max_tokens": max_tokens}
        return await self._port.call_model(messages, options)

    def __repr__(self) -> str:
        return f"<SeamContext {self.id!r} turn {self.turn} step {self.step}>"
