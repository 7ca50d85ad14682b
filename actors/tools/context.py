"""What a tool is told and may do while it runs: the context of one call.

A context holds facts about the call and a *port*: the few things that only the runtime can do. So a tool is tested alone with
a port that records (`actors.testing.tool_context`). Whatever the tool sends gets an id made of the call's `effect_key` and a
number, the same when the body runs again after a crash: what was sent twice is delivered once.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol

import trio

from ...storage.errors import UsageError
from ...storage.events.base import Route
from ...storage.messages import Block, Message
from .process import Completed, run_process

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
else:
    from typing import TypeVar

    # Python 3.11 has no default for a type variable; only type checkers need it, for a bare `ToolContext`.
    Deps = TypeVar("Deps")

Content = str | Sequence[Block] | Message
LoopRunner = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Runs a coroutine function on the asyncio loop that opened the system, and gives its result."""


_effects: contextvars.ContextVar[Callable[[], str] | None] = contextvars.ContextVar("callboard.effects", default=None)


def next_effect() -> str | None:
    """An id for what the running call is about to do, the same when its body runs again; None outside of any body."""
    made = _effects.get()
    return None if made is None else made()


class ToolPort(Protocol):
    """What the runtime does for a tool. Ids are made by the context; the port obeys them."""

    @property
    def loop(self) -> LoopRunner | None:
        """How to run on the asyncio loop; None outside `net.aio`."""
        ...

    def now(self) -> datetime:
        """The system's wall clock, aware of its zone."""
        ...

    def note(self, kind: str, data: Any) -> None:
        """Append a `note` to the agent's log."""
        ...

    def progress(self, text: str) -> None:
        """Tell whoever follows how far the call is."""
        ...

    async def send(self, to: str, content: Content, message_id: str, *, minted: bool) -> Any:
        """Put a follow-up into another agent's Inbox; returns the Receipt. An id that was `minted` for it is this call's own."""
        ...

    async def ask(self, to: str, content: Content, message_id: str, timeout: float | None, *, minted: bool) -> Any:
        """Send and wait; returns the Outcome."""
        ...

    async def reply(self, content: Content, route: Mapping[str, Any] | Route | None, delivery: str) -> Any:
        """Answer the route (None: that of the turn) at once, instead of the turn's own answer."""
        ...

    async def spawn(self, agent: Any, id: str) -> Any:
        """A child of this agent, opened if it exists; returns its AgentRef."""
        ...


class ToolContext(Generic[Deps]):
    """One call of one tool. Write it as the tool's first parameter: `async def lookup(ctx: ToolContext[Deps], city: str)`."""

    agent: Any
    """The AgentRef of the agent that runs the tool."""
    turn: int
    step: int
    call_id: str
    effect_key: str
    """Names this effect, also when the body runs again after a crash: give it to services as their idempotency key."""
    labels: Mapping[str, str]
    deps: Deps
    """What `System.open(deps=)` was given."""
    route: Route | None
    """Where the turn's answer goes."""
    sender: Any
    """Who sent the message that this turn answers, as its channel said."""
    scope: trio.CancelScope
    """The body's own scope: cancelled when the turn is, or when the tool's time is over."""

    def __init__(
        self,
        port: ToolPort,
        *,
        agent: Any,
        turn: int,
        step: int,
        call_id: str,
        effect_key: str,
        deps: Deps,
        labels: Mapping[str, str] | None = None,
        route: Route | None = None,
        sender: Any = None,
        scope: trio.CancelScope | None = None,
    ) -> None:
        self._port = port
        self._made = 0
        self.agent, self.turn, self.step = agent, turn, step
        self.call_id, self.effect_key = call_id, effect_key
        self.labels = labels or {}
        self.deps = deps
        self.route, self.sender = route, sender
        self.scope = scope or trio.CancelScope()

    def __repr__(self) -> str:
        return f"<ToolContext {self.effect_key}>"

    def enter(self) -> None:
        """From here on, ids that handles make in this task (`ctx.agent.remind`) are those of this call."""
        _effects.set(self._next_id)

    @property
    def port(self) -> ToolPort:
        """The runtime's side; for those who make a context of another."""
        return self._port

    @property
    def now(self) -> datetime:
        """The system's wall clock, aware of its zone; tests set it."""
        return self._port.now()

    @property
    def loop(self) -> LoopRunner | None:
        """How to run on the asyncio loop that opened the system; None outside `net.aio`."""
        return self._port.loop

    def progress(self, text: str) -> None:
        """Tell whoever follows how far the call is; the model does not see it. Also from a worker thread."""
        _in_trio(self._port.progress, text)

    def note(self, kind: str, data: Any = None) -> None:
        """A fact of the tool's own, kept in the log, never shown to the model. Also from a worker thread."""
        _in_trio(self._port.note, kind, data)

    async def send(self, to: Any, content: Content, *, message_id: str | None = None) -> Any:
        """Put a message into another agent's Inbox (an id, or its AgentRef), durable on return; gives the Receipt."""
        return await self._port.send(_id_of(to), content, message_id or self._next_id(), minted=not message_id)

    async def ask(self, to: Any, content: Content, *, timeout: float | None = None, message_id: str | None = None) -> Any:
        """Send, and wait for the Outcome of the turn that takes it.

        Raises:
            AskTimeout: it was not over in `timeout` seconds; it goes on.
            AskCycle: that agent waits, directly or not, for this one.
        """
        return await self._port.ask(_id_of(to), content, message_id or self._next_id(), timeout, minted=not message_id)

    async def reply(self, content: Content, *, route: Mapping[str, Any] | Route | None = None) -> Any:
        """Answer the route (the turn's own by default) from here; then the turn's end sends nothing there."""
        return await self._port.reply(content, route, self._next_id())

    async def spawn(self, agent: Any, *, id: str | None = None) -> Any:
        """A child of this agent, opened if that id exists; gives its AgentRef."""
        return await self._port.spawn(agent, id or self._next_id())

    async def process(self, *argv: str, timeout: float | None = None, **options: Any) -> Completed:
        """Run a program to its end; what it started ends with it, also when this is cancelled. See `run_process`."""
        return await run_process(*argv, timeout=timeout, **options)

    def _next_id(self) -> str:
        # Counted in the context, so that a body that runs again makes the same ids in the same order.
        self._made += 1
        return f"{self.effect_key}#{self._made}"


def _id_of(to: Any) -> str:
    id = to if isinstance(to, str) else getattr(to, "id", None)
    if not isinstance(id, str):
        raise UsageError(f"{to!r} is no agent; give an id, or an AgentRef")
    return id


def _in_trio(function: Callable[..., None], *arguments: Any) -> None:
    """Logs belong to the trio thread; a plain `def` tool is in another one."""
    if trio.lowlevel.in_trio_run():
        function(*arguments)
    else:
        trio.from_thread.run_sync(function, *arguments)
