"""`check_model`: what every adapter has to keep, as one function that an adapter's own tests await.

It talks to the model as the runtime does: prepares, streams, reads, cancels and closes in the task that reads. Each rule that
does not hold is one sentence of the AssertionError, all of them at once, so that a new adapter is not repaired one run at a time.
It sends a handful of short requests; over a fake server they are free.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

import msgspec
import trio

from ...storage.digest import header_of
from ...storage.errors import CallboardError, ModelError
from ...storage.messages import (
    Chunk,
    FinishChunk,
    Header,
    Message,
    ReasoningBlock,
    Request,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
)
from ..failures import UNKNOWN, causes, flatten
from ..models.model import Model, Prepared, apply_defaults
from ..models.streaming import CLOSE_S
from .grammar import Grammar

_TOOL = ToolSpec("look", "Look at a city.", {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
_SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"], "additionalProperties": False}

OPEN_SCOPE = "a cancel scope or nursery is open across a `yield`: that corrupts the scopes of whoever reads"


async def check_model(model: Model, name: str, *, failures: Mapping[str, str] | None = None, timeout_s: float = 60) -> None:
    """Check an adapter against all that the runtime relies on.

    Args:
        model: the adapter; it is left open.
        name: which of its models to ask.
        failures: what to say to make the provider (a fake one) fail, and the code that has to come of it, for example
            `{"fail with 429": "RATE_LIMIT"}`.
        timeout_s: how long one stream may take, in seconds.

    Raises:
        AssertionError: with one sentence for each broken rule.
    """
    check = _Check(model, name, timeout_s)
    check.names()
    for request in (_simple(model, name), _long(model, name)):
        check.prepares(request)
    if not check.broken:
        await check.streams(_simple(model, name), "a question")
    if not check.broken:
        await check.streams(_long(model, name), "a history with tools")
        await check.answers_by_schema()
        await check.twice()
        await check.closes()
        await check.cancels(after=0)
        await check.cancels(after=1)
        for said, code in (failures or {}).items():
            await check.fails(said, code)
    if check.broken:
        rules = "".join(f"\n- {sentence}" for sentence in dict.fromkeys(check.broken))
        raise AssertionError(f"{model!r} is not a sound adapter for {name!r}:{rules}")


def _said(text: str) -> Message:
    return Message(f"check-{len(text)}", "user", (TextBlock(text),))


def _simple(model: Model, name: str, text: str = "Say hello, in one word.") -> Request:
    return Request(model.provider, name, messages=(_said(text),))


def _long(model: Model, name: str) -> Request:
    """What an adapter meets in the middle of a conversation, also with another provider's blocks in it."""
    thought = ReasoningBlock("They want to know.")
    call = ToolCallBlock("call-1", "look", '{"city":"Oslo"}')
    broken = ToolCallBlock("call-2", "look", '{"city":')
    results = (ToolResultBlock("call-1", (TextBlock("rain"),)), ToolResultBlock("call-2", (TextBlock("broken"),), is_error=True))
    return Request(
        model.provider,
        name,
        system="Be brief.",
        tools=(_TOOL,),
        messages=(
            _said("What is the weather in Oslo?"),
            Message("check-a", "assistant", (thought, TextBlock("Let me look."), call, broken)),
            *(Message(f"check-{result.call_id}", "tool", (result,)) for result in results),
            _said("And so?"),
        ),
    )


class _Check:
    """The rules, one method for each; what does not hold goes to `broken`."""

    def __init__(self, model: Model, name: str, timeout_s: float) -> None:
        self.model, self.name, self.timeout_s = model, name, timeout_s
        self.broken: list[str] = []

    def names(self) -> None:
        """A provider, and copies that are bound to a name."""
        model: Any = self.model
        if not (isinstance(getattr(model, "provider", None), str) and model.provider and ":" not in model.provider):
            self.broken.append("`provider` is a text without a colon: the first half of 'provider:model'")
        before = model.name
        if model.named("other").name != "other" or model.name != before:
            self.broken.append("`named` gives a copy that is bound to a model, and leaves the original as it is")

    def prepares(self, request: Request) -> None:
        """Pure: the same answer each time, the request unchanged, nothing awaited; and what it says can be written."""
        before = msgspec.json.encode(request)
        try:
            first, second = self.model.prepare(request), self.model.prepare(request)
        except Exception as error:
            self.broken.append(f"`prepare` refused a plain request for {self.name!r}: {causes(error)}")
            return
        if inspect.isawaitable(first) or not isinstance(first, Prepared):  # pyright: ignore[reportUnnecessaryIsInstance]
            self.broken.append(f"`prepare` is a plain function that answers Prepared(request, ...), not {type(first).__name__}")
            return
        if first != second:
            self.broken.append("`prepare` is pure: for the same request it gave two different answers")
        if msgspec.json.encode(request) != before:
            self.broken.append("`prepare` changed the request it was given; hand on a changed copy")
        if (first.request.provider, first.request.model) != (request.provider, request.model):
            self.broken.append("`prepare` sent the request elsewhere; provider and model are the `request` seam's to choose")
        self._can_be_written(first)

    def _can_be_written(self, prepared: Prepared) -> None:
        try:
            settings, defaulted = apply_defaults(prepared.request.settings, prepared.defaults)
            header = header_of(msgspec.structs.replace(prepared.request, settings=settings), defaulted)
            msgspec.msgpack.decode(msgspec.msgpack.encode(header), type=Header)
        except (CallboardError, msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
            self.broken.append(f"what `prepare` answers cannot be written to a log: {error}")
        window: Any = prepared.context_window
        if window is not None and not (isinstance(window, int) and window > 0):
            self.broken.append(f"context_window={window!r} is no number of tokens; None means unknown")

    def _open(self, request: Request) -> AsyncIterator[Chunk]:
        """The stream of a request, prepared as the runtime does."""
        prepared = self.model.prepare(request)
        settings, _ = apply_defaults(prepared.request.settings, prepared.defaults)
        return self.model.stream(msgspec.structs.replace(prepared.request, settings=settings))

    async def streams(self, request: Request, what: str) -> str:
        """The whole stream keeps the grammar, and no scope is open across a `yield`; its text."""
        grammar = Grammar()

        async def read() -> None:
            stream = self._open(request)
            if not hasattr(stream, "aclose"):
                self.broken.append("`stream` is an async generator: without aclose() a half-read stream cannot be closed")
            async with _closed(stream, self.broken):
                while (chunk := await _next(stream)) is not None:
                    grammar.feed(chunk)
            self.broken += [f"in the answer to {what}: {sentence}" for sentence in grammar.end()]

        await self._guarded(read, what)
        return grammar.text

    async def _guarded(self, body: Callable[[], Awaitable[None]], what: str) -> None:
        """Run one conversation in a task of its own; whatever it throws is a broken rule."""
        try:
            with trio.move_on_after(self.timeout_s) as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(body)
            if scope.cancelled_caught:
                self.broken.append(f"the answer to {what} was not over in {self.timeout_s:g} s")
        except Exception as error:
            self.broken.append(self._why(error, what))

    @staticmethod
    def _why(error: Exception, what: str) -> str:
        text = causes(error)
        if "Cancel scope stack corrupted" in text:
            return OPEN_SCOPE
        failure = flatten(error)
        if failure.code != UNKNOWN:
            return f"the answer to {what} failed: {failure.code}: {failure.message}"
        return f"the answer to {what} raised {text}; failures of a provider are raised as ModelError"

    async def answers_by_schema(self) -> None:
        """An adapter that says it honours `request.output` answers with JSON."""
        request = msgspec.structs.replace(_simple(self.model, self.name), output=_SCHEMA)
        if not self.model.prepare(request).schema:
            return
        text = await self.streams(request, "a question with a schema")
        try:
            msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            self.broken.append(f"`prepare` says schema=True, and the answer is no JSON object: {text[:80]!r}")

    async def twice(self) -> None:
        """Two streams at once, chunk by chunk in turns, keep nothing of each other."""
        grammars, done = (Grammar(), Grammar()), [False, False]

        async def read() -> None:
            streams = [self._open(_simple(self.model, self.name)) for _ in grammars]
            async with _closed(streams[0], self.broken), _closed(streams[1], self.broken):
                while not all(done):
                    for place, stream in enumerate(streams):
                        chunk = None if done[place] else await _next(stream)
                        done[place] = chunk is None
                        if chunk is not None:
                            grammars[place].feed(chunk)
            self.broken += [f"with two streams at once: {sentence}" for grammar in grammars for sentence in grammar.end()]

        await self._guarded(read, "two questions at once")

    async def closes(self) -> None:
        """A stream that is closed after its first chunk ends there."""

        async def read() -> None:
            stream = self._open(_simple(self.model, self.name))
            async with _closed(stream, self.broken):
                await _next(stream)
            if await _next(stream) is not None:
                self.broken.append("a stream that was closed yields nothing more")

        await self._guarded(read, "a stream that is closed after its first chunk")

    async def cancels(self, *, after: int) -> None:
        """A cancellation passes through, at once, whatever the stream is doing."""

        async def read() -> None:
            stream = self._open(_simple(self.model, self.name))
            async with _closed(stream, self.broken):
                for _ in range(after):
                    await _next(stream)
                quiet, since = False, trio.current_time()
                with trio.CancelScope() as scope:
                    scope.cancel()
                    while (chunk := await anext(stream, None)) is not None and type(chunk) is not FinishChunk:
                        pass
                    quiet = chunk is None
                if quiet:
                    self.broken.append("the stream ended quietly: never catch trio.Cancelled, nor BaseException without a raise")
                if trio.current_time() - since > CLOSE_S:
                    self.broken.append(f"that took more than {CLOSE_S:g} s: never shield what waits for the provider")

        before = len(self.broken)
        await self._guarded(read, "a question that is cancelled")
        self.broken[before:] = [f"cancelled {'after' if after else 'before'} the first chunk: {s}" for s in self.broken[before:]]

    async def fails(self, said: str, code: str) -> None:
        """A failure of the provider is a ModelError with this code, or a finish that brings it."""
        got = "no failure"
        try:
            stream = self._open(_simple(self.model, self.name, said))
            async with _closed(stream, self.broken):
                while (chunk := await _next(stream)) is not None:
                    if type(chunk) is FinishChunk and chunk.failure is not None:
                        got = chunk.failure.code
        except ModelError as error:
            got = error.code
        except Exception as error:
            got = f"{causes(error)} (failures of a provider are raised as ModelError)"
        if got != code:
            self.broken.append(f"{said!r} has to fail with {code}, and gave {got}")


async def _next(stream: AsyncIterator[Chunk]) -> Chunk | None:
    """The next chunk, read inside a scope of ours, which does not close while one of the stream's is left open in it."""
    chunk: Chunk | None = None
    with trio.CancelScope() as scope:
        chunk = await anext(stream, None)
    assert not scope.cancelled_caught, "nobody has cancelled it"
    return chunk


class _closed:
    """Close a stream in this task, shielded and bounded as the runtime does."""

    def __init__(self, stream: AsyncIterator[Chunk], broken: list[str]) -> None:
        self._stream, self._broken = stream, broken

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *exc_info: object) -> None:
        with trio.CancelScope(deadline=trio.current_time() + CLOSE_S, shield=True) as scope:
            await self._close()
        if scope.cancelled_caught:
            self._broken.append(f"closing the stream took more than {CLOSE_S:g} s")

    async def _close(self) -> None:
        aclose = getattr(self._stream, "aclose", None)
        if aclose is None:
            return
        try:
            await aclose()
        except RuntimeError as error:
            if "ignored GeneratorExit" not in str(error):
                raise
            self._broken.append("the stream yields while it is closed: never catch GeneratorExit")
        except BaseExceptionGroup as group:  # a nursery wraps even what closes the generator it is open in
            if group.split(GeneratorExit)[1] is not None:
                raise
            self._broken.append(OPEN_SCOPE)
