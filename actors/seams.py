"""Plugin and its context: every place where a policy can step into a turn, with what it is given and what it may answer.

A plugin subclasses `Plugin` and overrides what it needs. A *waterfall* seam gets `(ctx, value, next)`: it may change the value
on the way in, the answer on the way out, or answer alone without calling `next`. The first plugin registered is the outermost.
What is not overridden costs nothing: `chains.py` compiles only what is there. The loop itself knows no policy.

Raising `LimitReached` from any seam of a turn ends it with that limit; what any other throw does is said at each seam.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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
)
from .seam_context import SeamContext as SeamContext

if TYPE_CHECKING:
    from ..storage.messages import Chunk, Failure, Message, Request
    from ..storage.records import Record

_Value = TypeVar("_Value", contravariant=True)
_Answer = TypeVar("_Answer", covariant=True)


class Next(Protocol[_Value, _Answer]):
    """The rest of a waterfall: the plugins further in, and at last what the loop does itself."""

    def __call__(self, value: _Value, /) -> Awaitable[_Answer]: ...


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

        Answers the message (changed or not, its id stays), `Reject` (the sender gets `InputRefused`), or `Answer` (a control
        command: it acts now, once for each id). An answer may be a `Stop`, which also stops what runs, a `Decide`, which also
        answers what a call asks a person, or a `Later`, which lets the message in, but into a turn of its own.
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
