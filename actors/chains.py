"""Chains: the seams of one set of plugins, compiled once into what really has to run.

For each waterfall seam a chain keeps only the plugins that override it, outermost first; a seam that nobody overrides costs one
dictionary look-up and calls the loop's own work directly. Values on the way in and answers on the way out are checked by type,
so that a plugin that forgot its `return` is named, and the turn does not fail ten frames further in.

Chunk streams nest as async generators. A generator that is left half-read is not closed by the one around it, and a garbage
collector may close it in another task, which corrupts trio's scopes; so `NestedStream` knows all that were opened and closes
them, outermost first, in the task that reads.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, overload

from ..storage.errors import UsageError
from ..storage.messages import Chunk, Message, Request
from .answers import (
    Allow,
    Answer,
    Ask,
    Assembly,
    Boundary,
    CallResult,
    Command,
    Deny,
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
)
from .seams import OBSERVERS, SEAMS, WATERFALLS, Plugin

if TYPE_CHECKING:
    from .answers import Verdict
    from .seams import Next, SeamContext

_NONE = type(None)
_TYPES: Mapping[str, tuple[type, tuple[type, ...]]] = {
    "accept": (Message, (Message, Reject, Answer)),
    "compact": (Position, (Replace, _NONE)),
    "command": (Command, (Answer, Replace, _NONE)),
    "respond": (str, (str, _NONE)),
    "assemble": (Assembly, (Assembly,)),
    "pre_step": (Boundary, (Enter, Reject)),
    "request": (Proposal, (Proposal,)),
    "request_error": (Failed, (Resend, _NONE)),
    "tool_before": (ToolCall, (Allow, Deny, Ask)),
    "tool_around": (ToolCall, (CallResult,)),
    "tool_after": (Done, (Done,)),
}
"""What each waterfall seam is given, and what it may answer."""
_CHUNKS = frozenset(Chunk.__args__)


class _Layer(NamedTuple):
    """One plugin's method in a waterfall."""

    plugin: Plugin
    seam: str
    method: Callable[..., Awaitable[Any]]


class Chains:
    """The seams of these plugins, first plugin outermost."""

    def __init__(self, plugins: Sequence[Plugin]) -> None:
        self.plugins = tuple(plugins)
        self._overridden = frozenset(seam for seam in SEAMS if any(_overrides(plugin, seam) for plugin in self.plugins))
        self._waterfalls = {seam: layers for seam in WATERFALLS if (layers := self._layers(seam))}
        self._every_step = tuple(layer for layer in self._layers("compact") if layer.plugin.every_step)
        self.idle_s = min((p.idle_s for p in self.plugins if p.idle_s is not None and _overrides(p, "compact")), default=None)
        """After how many seconds of rest `compact` is asked; None: never."""
        self._stream = self._layers("stream")
        self._guards = self._layers("guard")
        self._stopping = self._layers("turn_stopping")
        self._observers = {seam: tuple(layer.method for layer in self._layers(seam)) for seam in OBSERVERS}

    def __repr__(self) -> str:
        return f"Chains({list(self.plugins)!r})"

    def _layers(self, seam: str) -> tuple[_Layer, ...]:
        return tuple(_Layer(p, seam, getattr(p, seam)) for p in self.plugins if _overrides(p, seam))

    def has(self, seam: str) -> bool:
        """Whether any plugin overrides the seam."""
        return seam in self._overridden

    if TYPE_CHECKING:
        # What each seam is given and answers; the same as `_TYPES`, for the type checkers.
        @overload
        def run(
            self, seam: Literal["accept"], ctx: SeamContext, value: Message, terminal: Next[Message, Message | Reject | Answer]
        ) -> Awaitable[Message | Reject | Answer]: ...
        @overload
        def run(
            self, seam: Literal["compact"], ctx: SeamContext, value: Position, terminal: Next[Position, Replace | None]
        ) -> Awaitable[Replace | None]: ...
        @overload
        def run(
            self, seam: Literal["command"], ctx: SeamContext, value: Command, terminal: Next[Command, Answer | Replace | None]
        ) -> Awaitable[Answer | Replace | None]: ...
        @overload
        def run(
            self, seam: Literal["respond"], ctx: SeamContext, value: str, terminal: Next[str, str | None]
        ) -> Awaitable[str | None]: ...
        @overload
        def run(
            self, seam: Literal["assemble"], ctx: SeamContext, value: Assembly, terminal: Next[Assembly, Assembly]
        ) -> Awaitable[Assembly]: ...
        @overload
        def run(
            self, seam: Literal["pre_step"], ctx: SeamContext, value: Boundary, terminal: Next[Boundary, Enter | Reject]
        ) -> Awaitable[Enter | Reject]: ...
        @overload
        def run(
            self, seam: Literal["request"], ctx: SeamContext, value: Proposal, terminal: Next[Proposal, Proposal]
        ) -> Awaitable[Proposal]: ...
        @overload
        def run(
            self, seam: Literal["request_error"], ctx: SeamContext, value: Failed, terminal: Next[Failed, Resend | None]
        ) -> Awaitable[Resend | None]: ...
        @overload
        def run(
            self, seam: Literal["tool_before"], ctx: SeamContext, value: ToolCall, terminal: Next[ToolCall, Verdict]
        ) -> Awaitable[Verdict]: ...
        @overload
        def run(
            self, seam: Literal["tool_around"], ctx: SeamContext, value: ToolCall, terminal: Next[ToolCall, CallResult]
        ) -> Awaitable[CallResult]: ...
        @overload
        def run(
            self, seam: Literal["tool_after"], ctx: SeamContext, value: Done, terminal: Next[Done, Done]
        ) -> Awaitable[Done]: ...

    def run(self, seam: str, ctx: SeamContext, value: Any, terminal: Callable[[Any], Awaitable[Any]]) -> Awaitable[Any]:
        """Run a waterfall around `terminal`, the loop's own work: await what this gives.

        Raises:
            UsageError: a plugin handed on or answered something that the seam does not know (when awaited).
        """
        layers = self._waterfalls.get(seam)
        return terminal(value) if layers is None else _descend(layers, 0, ctx, value, terminal)

    @property
    def every_step(self) -> bool:
        """Whether any plugin wants to be asked to `compact` before each request."""
        return bool(self._every_step)

    def compact_step(self, ctx: SeamContext, position: Position, terminal: Next[Position, Replace | None]) -> Awaitable[Any]:
        """Run the `compact` waterfall of those that want to be asked before each request."""
        return _descend(self._every_step, 0, ctx, position, terminal)

    def stream(
        self, ctx: SeamContext, request: Request, terminal: Callable[[Request], AsyncIterator[Chunk]]
    ) -> AsyncIterator[Chunk]:
        """The chunks of `terminal(request)`, through all stream middleware. Whoever reads must close it."""
        return NestedStream(self._stream, ctx, request, terminal) if self._stream else terminal(request)

    async def guard(self, ctx: SeamContext, call: ToolCall) -> str | None:
        """The first guard's reason to deny the call; None if all let it pass."""
        for layer in self._guards:
            reason = await layer.method(ctx, call)
            if reason is not None:
                return reason if isinstance(reason, str) else _refuse(layer, "answered", reason, (str, _NONE))
        return None

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping) -> None:
        """Tell one plugin after the other that the turn is about to end."""
        for layer in self._stopping:
            await layer.method(ctx, stopping)

    def observers(self, seam: str) -> tuple[Callable[..., Awaitable[Any]], ...]:
        """The methods that watch `on_event`, `on_status` or `on_error`."""
        return self._observers[seam]


def _overrides(plugin: Plugin, seam: str) -> bool:
    return getattr(type(plugin), seam) is not getattr(Plugin, seam)


async def _descend(
    layers: tuple[_Layer, ...], index: int, ctx: SeamContext, value: Any, terminal: Callable[[Any], Awaitable[Any]]
) -> Any:
    if index == len(layers):
        return await terminal(value)
    layer = layers[index]
    given, answers = _TYPES[layer.seam]

    def go_on(value: Any, /) -> Awaitable[Any]:
        if not isinstance(value, given):
            _refuse(layer, "handed on", value, (given,))
        return _descend(layers, index + 1, ctx, value, terminal)

    answer = await layer.method(ctx, value, go_on)
    if not isinstance(answer, answers):
        _refuse(layer, "answered", answer, answers)
    return answer


def _refuse(layer: _Layer, did: str, what: object, expected: tuple[type, ...]) -> NoReturn:
    names = " or ".join("None" if kind is _NONE else kind.__name__ for kind in expected)
    shown = "None" if what is None else f"a {type(what).__name__}"
    hint = "; did you forget `return await next(...)`?" if what is None else ""
    raise UsageError(f"plugin {layer.plugin!r} {did} {shown} in {layer.seam}, which takes {names}{hint}")


class NestedStream:
    """A chunk stream through middleware; close it, whether it was read to its end or not."""

    def __init__(
        self,
        layers: tuple[_Layer, ...],
        ctx: SeamContext,
        request: Request,
        terminal: Callable[[Request], AsyncIterator[Chunk]],
    ) -> None:
        self._layers, self._ctx, self._terminal = layers, ctx, terminal
        self._opened: list[tuple[int, AsyncIterator[Chunk]]] = []
        self._models_own: BaseException | None = None
        self._outermost = self._open(0, request)

    def __aiter__(self) -> NestedStream:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self._outermost.__anext__()
        if type(chunk) not in _CHUNKS:
            plugins = ", ".join(repr(layer.plugin) for layer in self._layers)
            raise UsageError(f"stream middleware ({plugins}) yielded a {type(chunk).__name__}, which is no chunk")
        return chunk

    async def aclose(self) -> None:
        """Close every generator that was opened, outermost first; all are closed even if one fails to."""
        while self._opened:
            outermost = min(self._opened, key=_depth)
            self._opened.remove(outermost)
            close = getattr(outermost[1], "aclose", None)
            try:
                if close is not None:
                    await close()
            except BaseException:
                await self.aclose()
                raise

    def failed_in_model(self, error: BaseException) -> bool:
        """Whether the error came out of the model's own stream, and not of middleware."""
        return error is self._models_own

    def _open(self, index: int, request: Request) -> AsyncIterator[Chunk]:
        if index == len(self._layers):
            return self._track(index, self._watch(self._track(index + 1, self._terminal(request))))
        layer = self._layers[index]

        def go_on(request: Request, /) -> AsyncIterator[Chunk]:
            if not isinstance(request, Request):  # pyright: ignore[reportUnnecessaryIsInstance]
                _refuse(layer, "handed on", request, (Request,))
            return self._open(index + 1, request)

        stream: Any = layer.method(self._ctx, request, go_on)
        if not hasattr(stream, "__anext__"):
            getattr(stream, "close", bool)()  # a coroutine that is never awaited would warn beside the error
            raise UsageError(f"plugin {layer.plugin!r} gave a {type(stream).__name__} in stream; write an async generator")
        return self._track(index, stream)

    def _track(self, depth: int, stream: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        self._opened.append((depth, stream))
        return stream

    async def _watch(self, stream: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
        try:
            async for chunk in stream:
                yield chunk
        except BaseException as error:
            self._models_own = error
            raise


def _depth(opened: tuple[int, AsyncIterator[Chunk]]) -> int:
    return opened[0]


def failed_in_model(stream: AsyncIterator[Chunk], error: BaseException) -> bool:
    """Whether a stream's error is the model's own (recovery may be asked), and not that of middleware (the turn ends)."""
    return stream.failed_in_model(error) if isinstance(stream, NestedStream) else True
