"""Plugin and its context: every place where a policy can step into a turn, with what it is given and what it may answer.

A plugin subclasses `Plugin` and overrides what it needs. A *waterfall* seam gets `(ctx, value, next)`: it may change the value
on the way in, the answer on the way out, or answer alone without calling `next`. The first plugin registered is the outermost.
What is not overridden costs nothing: `chains.py` compiles only what is there. The loop itself knows no policy.

Raising `LimitReached` from any seam of a turn ends it with that limit; what any other throw does is said at each seam.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from ..storage.errors import UsageError
from .answers import (
    Answer,
    Assembly,
    Boundary,
    CallResult,
    Command,
    Done,
    Enter,
    Failed,
    Position,
    Proposal,
    Reject,
    Replace,
    Resend,
    Stopping,
    ToolCall,
    Verdict,
    Why,
)

if TYPE_CHECKING:
    from ..storage.events import Route
    from ..storage.messages import Chunk, Failure, Message, Request
    from ..storage.records import Record
    from .models.model import Model

_Value = TypeVar("_Value", contravariant=True)
_Answer = TypeVar("_Answer", covariant=True)


class Next(Protocol[_Value, _Answer]):
    """The rest of a waterfall: the plugins further in, and at last what the loop does itself."""

    def __call__(self, value: _Value, /) -> Awaitable[_Answer]: ...


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
            ModelError: the call failed; nobody retries it.
        """
        options = {"model": model, "system": system, "max_tokens": max_tokens}
        return await self._port.call_model(messages, options)

    def __repr__(self) -> str:
        return f"<SeamContext {self.id!r} turn {self.turn} step {self.step}>"


class Plugin:
    """A policy. Override the seams it needs; all others pass through. One instance serves many agents."""

    inherited: bool = False
    """Whether it also acts on the children of the agents that carry it, and on theirs."""
    innermost: bool = False
    """Whether it stands inside all others, wherever it is listed: for one that looks at what really leaves."""
    every_step: bool = False
    """Whether `compact` is asked again before each request (`why="step"`), when the question itself is part of the view."""
    idle_s: float | None = None
    """After how many seconds of rest `compact` is asked with `why="idle"`, once until the next turn; None: never by itself."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for seam in SEAMS:
            if seam in cls.__dict__:
                _check_override(cls, seam)
        for name, value in cls.__dict__.items():
            near = difflib.get_close_matches(name, SEAMS, n=1, cutoff=0.85)
            if callable(value) and not name.startswith("_") and name not in SEAMS and near:
                raise UsageError(f"{cls.__name__}.{name} is no seam, so nothing would call it; did you mean {near[0]!r}?")

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    # -- around the system's life

    async def on_start(self, system: Any) -> None:
        """The system opens, before recovery. A throw keeps it from opening."""

    async def on_stop(self) -> None:
        """The system closes, after the last turn. A throw is logged."""

    # -- the way in

    async def accept(
        self, ctx: SeamContext, message: Message, next: Next[Message, Message | Reject | Answer], /
    ) -> Message | Reject | Answer:
        """Each send from outside, in the sender's call, before it is logged. It must not send. A throw refuses the send.

        Answers the message (changed or not), `Reject` (the sender gets `InputRefused`), or `Answer` (a control command).
        """
        return await next(message)

    # -- around a turn

    async def compact(self, ctx: SeamContext, position: Position, next: Next[Position, Replace | None], /) -> Replace | None:
        """Before a turn (with `every_step` before each request, too), when idle, or when a person asks for it: answer a rewrite
        of the view, or None. A throw leaves a note."""
        return await next(position)

    async def command(
        self, ctx: SeamContext, command: Command, next: Next[Command, Answer | Replace | None], /
    ) -> Answer | Replace | None:
        """A prompt that may be a command: answer it here, or None to let the model have it. A throw is an error answer."""
        return await next(command)

    async def respond(self, ctx: SeamContext, text: str, next: Next[str, str | None], /) -> str | None:
        """The text that goes to the turn's route: answer another, or None for nothing. After a throw the plain text goes."""
        return await next(text)

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping, /) -> None:
        """The turn is about to end; steer to give it another step, or cancel. A throw ends the turn with that error."""

    # -- boundary, step and request

    async def assemble(self, ctx: SeamContext, assembly: Assembly, next: Next[Assembly, Assembly], /) -> Assembly:
        """System prompt, tools and context sections of the coming step. A throw ends the turn, without a step."""
        return await next(assembly)

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject], /) -> Enter | Reject:
        """What is about to enter the model's view: `Enter` or `Reject`. A throw ends the turn, without a step."""
        return await next(boundary)

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal], /) -> Proposal:
        """Provider, model and settings of the coming request. A throw ends the turn; nothing is retried."""
        return await next(proposal)

    def stream(
        self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]], /
    ) -> AsyncIterator[Chunk]:
        """The chunks of an answer, before they are logged. Write an async generator, with no scope or nursery open across a
        `yield`. A throw of its own ends the turn; one that comes out of `next(request)` is the model's."""
        return next(request)

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None], /) -> Resend | None:
        """An attempt failed: `Resend` tries again in the same step, None lets the turn fail. A throw ends the turn with it."""
        return await next(failed)

    # -- tools

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict], /) -> Verdict:
        """A call before anything of it runs: `Allow` (other arguments, if given), `Deny` or `Ask`. A throw is an error result."""
        return await next(call)

    async def guard(self, ctx: SeamContext, call: ToolCall, /) -> str | None:
        """The last word before a body: a reason to deny, or None. All guards must pass. A throw is an error result."""
        return None

    async def tool_around(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, CallResult], /) -> CallResult:
        """Around the body: answer its result, another, or one without running it. A throw is an error result."""
        return await next(call)

    async def tool_after(self, ctx: SeamContext, done: Done, next: Next[Done, Done], /) -> Done:
        """A result before it is logged: pass it on, change it, add context. A throw is an error result."""
        return await next(done)

    # -- observers: after the commit, nothing waits for them, a throw is logged outside the agent

    async def on_event(self, ctx: SeamContext, record: Record, /) -> None:
        """A committed record, in order. Must not count twice after a restart: keep your place by `record.seq`."""

    async def on_status(self, ctx: SeamContext, status: str, /) -> None:
        """The agent became "idle", "running" or "failed"."""

    async def on_error(self, ctx: SeamContext, failure: Failure, /) -> None:
        """A turn failed; called once for each, after its end is on disk."""


WATERFALLS = (
    "accept",
    "compact",
    "command",
    "respond",
    "assemble",
    "pre_step",
    "request",
    "request_error",
    "tool_before",
    "tool_around",
    "tool_after",
)
"""Seams that nest around what the loop does itself."""
OBSERVERS = ("on_event", "on_status", "on_error")
"""Seams that only watch."""
SEAMS = frozenset((*WATERFALLS, *OBSERVERS, "stream", "guard", "turn_stopping", "on_start", "on_stop"))
"""Every method of `Plugin` that may be overridden."""


def _check_override(cls: type[Plugin], seam: str) -> None:
    method = inspect.unwrap(cls.__dict__[seam])
    if seam == "stream" or inspect.iscoroutinefunction(method):
        return
    if inspect.isasyncgenfunction(method):
        raise UsageError(f"{cls.__name__}.{seam} yields; only `stream` is a generator: return the answer instead")
    if inspect.isfunction(method):
        raise UsageError(f"{cls.__name__}.{seam} is a plain function; write `async def {seam}`")


def check_plugins(plugins: Sequence[Any], *, where: str) -> tuple[Plugin, ...]:
    """The plugins as a tuple; anything that is none is an error naming `where` it was given.

    Raises:
        UsageError: one object instead of a list, a class instead of an instance, or something that is no plugin.
    """
    if isinstance(plugins, Plugin):
        raise UsageError(f"plugins= of {where} is one plugin; give a list: plugins=[{plugins!r}]")
    for plugin in plugins:
        if isinstance(plugin, type):
            raise UsageError(f"plugins= of {where} holds the class {plugin.__name__}; give an instance: {plugin.__name__}()")
        if not isinstance(plugin, Plugin):
            raise UsageError(f"plugins= of {where} holds {plugin!r}, which is no plugin; subclass callboard.actors.Plugin")
    return tuple(plugins)
