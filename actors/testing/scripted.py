"""A model that says what a script says: the way to test agents without a provider, a key, or a sleep.

`Reply` is one answer, built ahead as chunks; `ScriptedModel` plays one reply for each request and keeps the requests it
received. Nothing here waits, unless a reply says so (`hang`, `wait`), so that a test waits for events alone. Usage is
small but real: `input` is the number of messages of the request, `output` the number of deltas, unless the reply has its own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import trio
from msgspec import Struct

from ...storage import chunks as c
from ...storage.errors import ModelError, UsageError
from ...storage.messages import (
    Chunk,
    Failure,
    Finish,
    FinishChunk,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from ..failures import as_error
from ..models.model import Model, Prepared, RetryPolicy
from ..output import ANSWER

Call = tuple[str, str, Any]
"""Id, tool, arguments: a mapping or struct to be written as JSON, or a text to be sent as it is, be it JSON or not."""


class Reply(Struct, frozen=True, repr_omit_defaults=True, eq=False):
    """One answer of a script. Make it with its class methods: `Reply.text("hello")`."""

    label: str
    """How it was made; its repr."""
    opening: tuple[Chunk, ...] = ()
    """The chunks before usage and finish."""
    closing: FinishChunk | None = None
    """None: usage and finish are left to `opening`, or there are none."""
    usage: Usage | None = None
    """None: counted when played."""
    value: str | None = None
    """A typed answer as JSON: to a model that is offered the tool `answer` for it, a call of that."""
    failure: Failure | None = None
    exception: Exception | None = None
    hangs: bool = False
    event: trio.Event | None = None
    following: Reply | None = None

    @classmethod
    def text(cls, text: str, *, parts: int = 1, reasoning: str | None = None, usage: Usage | None = None) -> Reply:
        """Text in `parts` deltas, and a normal finish: block-start, the deltas, block-end, usage, finish."""
        if parts < 1:
            raise UsageError(f"Reply.text needs at least one part, not {parts}")
        opening = (*_reasoning(reasoning), *_text(text, parts, index=0 if reasoning is None else 1))
        return cls(f"text({_short(text)})", opening, c.finish("stop"), usage)

    @classmethod
    def tools(cls, *calls: Call, text: str | None = None, usage: Usage | None = None) -> Reply:
        """Calls, each `(id, tool, arguments)`, after a text if there is one."""
        names = ", ".join(f"{name}:{id}" for id, name, _ in calls)
        return cls(f"tools({names})", (*_maybe_text(text), *_calls(calls, text)), c.finish("tool-calls"), usage)

    @classmethod
    def max_tokens(cls, text: str = "", *calls: Call, usage: Usage | None = None) -> Reply:
        """Text (and calls) that reached the output cap."""
        return cls._stopped("max_tokens", "max-tokens", text, calls, usage)

    @classmethod
    def refusal(cls, text: str = "", *calls: Call, usage: Usage | None = None) -> Reply:
        """The model refuses, saying `text`."""
        return cls._stopped("refusal", "refusal", text, calls, usage)

    @classmethod
    def _stopped(cls, label: str, finish: Finish, text: str, calls: tuple[Call, ...], usage: Usage | None) -> Reply:
        said = text or None
        return cls(f"{label}({_short(text)})", (*_maybe_text(said), *_calls(calls, said)), c.finish(finish), usage)

    @classmethod
    def output(cls, value: Any, *, usage: Usage | None = None) -> Reply:
        """A value (struct, dataclass, mapping) as the answer of an agent with `output=`: JSON text, without fences, or a call
        of the tool `answer` where the request offers that instead of a schema."""
        text = msgspec.json.encode(value).decode()
        return cls(f"output({_short(text)})", tuple(_text(text, 1)), c.finish("stop"), usage, text)

    @classmethod
    def fail(
        cls,
        code: str,
        message: str = "",
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        request_id: str | None = None,
        after: str | None = None,
        usage: Usage | None = None,
    ) -> Reply:
        """The request fails with a `ModelError`; `after` is text that was streamed before. Usage only if given."""
        opening = _unfinished(after)
        if usage is not None:
            opening = (*opening, UsageChunk(usage))
        failure = Failure(code, message or f"scripted {code}", status, retry_after_s, request_id)
        return cls(f"fail({code})", opening, failure=failure)

    @classmethod
    def raises(cls, exception: Exception, *, after: str | None = None) -> Reply:
        """The adapter throws an exception of its own, as a broken one would."""
        return cls(f"raises({exception!r})", _unfinished(after), exception=exception)

    @classmethod
    def hang(cls, text: str = "") -> Reply:
        """Streams `text` and then stays open until it is cancelled or its deadline passes."""
        return cls(f"hang({_short(text)})", _unfinished(text or None), hangs=True)

    @classmethod
    def chunks(cls, chunks: Sequence[Chunk], *, hang: bool = False) -> Reply:
        """Exactly these chunks, and nothing of our own; with `hang` the stream stays open after them."""
        return cls(f"chunks({len(chunks)})", tuple(chunks), hangs=hang)

    @classmethod
    def wait(cls, event: trio.Event, then: Reply) -> Reply:
        """Plays `then` once the event is set: for a test that needs the model to be busy meanwhile."""
        return cls(f"wait({then!r})", event=event, following=then)

    def __repr__(self) -> str:
        return f"Reply.{self.label}"

    def chunks_for(self, request: Request) -> tuple[Chunk, ...]:
        """The chunks this reply streams in answer to `request`."""
        opening, closing = self.opening, self.closing
        if self.value is not None and any(tool.name == ANSWER for tool in request.tools):
            opening, closing = _calls([(ANSWER, ANSWER, self.value)], None), c.finish("tool-calls")
        if closing is None:
            return opening
        usage = self.usage or Usage(input=len(request.messages), output=sum(type(x) in _DELTAS for x in opening))
        return (*opening, UsageChunk(usage), closing)

    def error(self) -> Exception | None:
        """What the stream raises after its chunks; a new error each time it is played."""
        return self.exception if self.failure is None else as_error(self.failure)


_DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:39] + "…")


def _text(text: str, parts: int, *, index: int = 0) -> tuple[Chunk, ...]:
    edges = [round(len(text) * i / parts) for i in range(parts + 1)]
    deltas = [c.text_delta(index, text[a:b]) for a, b in pairwise(edges)]
    return (c.block_start(index, "text"), *deltas, c.block_end(index))


def _maybe_text(text: str | None) -> tuple[Chunk, ...]:
    return () if text is None else _text(text, 1)


def _unfinished(text: str | None) -> tuple[Chunk, ...]:
    return () if text is None else _text(text, 1)[:-1]


def _reasoning(text: str | None) -> tuple[Chunk, ...]:
    return () if text is None else (c.block_start(0, "reasoning"), c.reasoning_delta(0, text), c.block_end(0))


def _calls(calls: Sequence[Call], text: str | None) -> tuple[Chunk, ...]:
    out: list[Chunk] = []
    for index, (id, name, arguments) in enumerate(calls, start=0 if text is None else 1):
        written = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        out += [
            c.block_start(index, ToolCallBlock(id, name)),
            c.tool_call_delta(index, arguments=written),
            c.block_end(index),
        ]
    return tuple(out)


Answerer = Callable[[Request], Reply]
Script = Sequence[Reply | Answerer] | Answerer


class ScriptedModel(Model):
    """Plays a script: a list of replies and functions of the request, one for each request; or one function for all.

    A request takes its place in the script when its stream is first read. Copies made by `named` share the script and the
    list of requests. `paced` gives other tasks a turn before each chunk, as a network would. The other options are what
    `prepare` answers. `keep_requests=False` keeps no request, for long runs.
    """

    def __init__(
        self,
        script: Script,
        *,
        provider: str = "scripted",
        name: str = "demo",
        paced: bool = False,
        defaults: Mapping[str, Any] | None = None,
        context_window: int | None = None,
        retry: RetryPolicy | None = None,
        images: bool = True,
        schema: bool = False,
        keep_requests: bool = True,
    ) -> None:
        self.provider, self.name, self.paced = provider, name, paced
        self._knows: dict[str, Any] = {
            "defaults": dict(defaults or {}),
            "context_window": context_window,
            "retry": retry,
            "images": images,
            "schema": schema,
        }
        self._play = _Play(script, keep_requests)

    @property
    def requests(self) -> list[Request]:
        """Every request received, frozen as it was, in order."""
        return self._play.requests

    def prepare(self, request: Request) -> Prepared:
        """Answer what the options of the model say."""
        return Prepared(request, **self._knows)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Play the next reply."""
        reply = self._play.next(request)
        while reply.event is not None and reply.following is not None:
            await reply.event.wait()
            reply = reply.following
        for chunk in reply.chunks_for(request):
            if self.paced:
                await trio.lowlevel.checkpoint()
            yield chunk
        if reply.hangs:
            await trio.sleep_forever()
        if error := reply.error():
            raise error

    def assert_used_up(self) -> None:
        """Fail unless every reply of the list was played."""
        if left := self._play.left():
            raise AssertionError(f"{len(left)} replies of the script were never played: {', '.join(map(repr, left))}")

    def __repr__(self) -> str:
        return f"<ScriptedModel {self.provider}:{self.name}, {self._play.progress()}>"


class _Play:
    """Where a script stands; shared by all the copies of a model."""

    def __init__(self, script: Script, keep_requests: bool) -> None:
        self.requests: list[Request] = []
        self._keep = keep_requests
        self._played = 0
        self._answer = script if callable(script) else None
        self._replies = () if callable(script) else tuple(_entry(x) for x in script)

    def next(self, request: Request) -> Reply:
        if self._keep:
            self.requests.append(request)
        self._played += 1
        if self._answer is not None:
            return _reply(self._answer(request))
        if self._played > len(self._replies):
            raise ModelError(
                "SCRIPT_EXHAUSTED",
                f"the script holds {len(self._replies)} replies and this is request {self._played}; add a Reply to it",
            )
        entry = self._replies[self._played - 1]
        return entry if isinstance(entry, Reply) else _reply(entry(request))

    def left(self) -> tuple[Reply | Answerer, ...]:
        return self._replies[self._played :]

    def progress(self) -> str:
        return f"{self._played} played" if self._answer else f"{self._played} of {len(self._replies)} played"


def _entry(entry: Reply | Answerer) -> Reply | Answerer:
    if isinstance(entry, Reply) or (callable(entry) and not isinstance(entry, type)):
        return entry
    raise _no_reply(entry)


def _reply(value: object) -> Reply:
    if isinstance(value, Reply):
        return value
    raise _no_reply(value)


def _no_reply(value: object) -> UsageError:
    hint = f"; write Reply.text({_short(value)})" if isinstance(value, str) else ""
    return UsageError(f"a script is made of Reply objects and functions that return one, not {value!r}{hint}")
