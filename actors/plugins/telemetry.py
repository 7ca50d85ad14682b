"""Telemetry: turns, steps, model calls, tool calls and questions as OpenTelemetry spans, made from the log.

It watches (`on_event`), so nothing waits for it, and what is exported is on disk. A span is exported when it ends, under an id
that the log gives it: so one trace goes across a restart, and the turn of a delegated child stands under the call, whichever
process runs it. A message with a `traceparent` in its `context` makes its turn part of that trace. What people, models and tools
said is not exported, except in the messages of errors.

What was committed and not seen when a process died is not exported again; the spans around it are.
"""

from __future__ import annotations

import copy
import importlib
from typing import TYPE_CHECKING, Any

import trio

from ...storage.errors import CallboardError, UsageError
from ...storage.records import Record
from ..seams import Plugin, SeamContext
from .spans import Born, Span, Turn, trace_id
from .trail import TYPES, Trail

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

KEEP = 1000
"""Agents at rest that are remembered, so that nothing has to be read when they go on."""


class Telemetry(Plugin):
    """Export spans to OpenTelemetry, by a provider of yours or the global one."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        """Take a `TracerProvider` of the OpenTelemetry SDK; None: the global one, when the system opens.

        It should hand spans on in a thread (`BatchSpanProcessor`). Shutting it down is yours, in a thread as well
        (`await trio.to_thread.run_sync(provider.shutdown)`).

        Raises:
            UsageError: OpenTelemetry is not installed.
        """
        try:
            importlib.import_module("opentelemetry.sdk.trace")
        except ImportError as error:
            raise UsageError("Telemetry needs OpenTelemetry: install it with pip install 'callboard[telemetry]'") from error
        self._provider: Any = provider
        self._tracer: Any = None
        self._ids = _Ids()
        self._trails: dict[str, Trail] = {}

    async def on_start(self, system: Any) -> None:
        """Take the global provider, if none was given."""
        from opentelemetry.trace import get_tracer_provider

        self._provider = self._provider or get_tracer_provider()
        # Providers share tracers: this one has ids of its own.
        self._tracer = copy.copy(self._provider.get_tracer("callboard"))
        self._tracer.id_generator = self._ids
        self._trails.clear()

    async def on_stop(self) -> None:
        """Let the provider hand on what it has, in a thread."""
        flush = getattr(self._provider, "force_flush", None)
        if flush is not None:
            await trio.to_thread.run_sync(flush)

    async def on_event(self, ctx: SeamContext, record: Record, /) -> None:
        """Follow the log; export what ends."""
        trail = self._trails.get(ctx.id)
        if trail is None:
            trail = self._trails[ctx.id] = Trail(ctx.id)
            self._forget()
        if trail.missing(record):
            trail = self._trails[ctx.id] = await self._read(ctx, ctx.id, before=record.seq)
        for span in trail.apply(record):
            await self._export(ctx, span)

    def _forget(self) -> None:
        if len(self._trails) > KEEP:
            for id in [id for id, trail in self._trails.items() if trail.idle][: max(1, KEEP // 10)]:
                del self._trails[id]

    async def _read(self, ctx: SeamContext, agent: str, *, before: int | None = None, child: str | None = None) -> Trail:
        """The trail of a log, up to a record or to the birth of a child."""
        trail = Trail(agent)
        async for record in ctx.peer(agent).read(upto=None if before is None else before - 1, types=TYPES):
            trail.apply(record)
            if child is not None and child in trail.born:
                break
        return trail

    # -- where a span belongs

    async def _export(self, ctx: SeamContext, span: Span) -> None:
        trace = await self._trace(ctx, ctx.id, span.turn)
        name, attributes = span.name, dict(span.attributes)
        if span.parent is None:
            info = await ctx.agent.info()
            name = f"invoke_agent {info.definition}"
            attributes["gen_ai.operation.name"] = "invoke_agent"
            attributes["gen_ai.agent.id"] = attributes["gen_ai.conversation.id"] = ctx.id
            attributes["gen_ai.agent.name"] = info.definition
            attributes.update({f"callboard.label.{key}": value for key, value in ctx.labels.items()})
        self._write(name, attributes, span, trace.context(span.parent))

    def _write(self, name: str, attributes: dict[str, Any], span: Span, parent: Context) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode

        kind = SpanKind.CLIENT if span.kind == "client" else SpanKind.INTERNAL
        self._ids.span, self._ids.trace = span.id, span.turn.trace.id
        made = self._tracer.start_span(name, parent, kind, attributes, start_time=span.start * 1_000_000)
        for moment, time in span.moments:
            made.add_event(moment, timestamp=time * 1_000_000)
        if span.error is not None:
            made.set_status(Status(StatusCode.ERROR, span.error))
        made.end(end_time=span.end * 1_000_000)

    async def _trace(self, ctx: SeamContext, agent: str, turn: Turn) -> _Trace:
        if turn.trace is None:
            turn.trace = await self._find_trace(ctx, agent, turn)
        found: _Trace = turn.trace
        return found

    async def _find_trace(self, ctx: SeamContext, agent: str, turn: Turn) -> _Trace:
        for origin in turn.origins:
            remote = _extract(origin.carrier)
            if remote is not None:
                return _Trace(remote.trace_id, remote)
            born = None if origin.sender is None else await self._born(ctx, origin.sender, agent)
            if origin.sender is not None and born is not None and born.task == origin.id:
                above = await self._trace(ctx, origin.sender, born.turn)
                return _Trace(above.id, above.point(born.span))
        id = trace_id(agent, turn)
        return _Trace(id, None, self._sampled(id))

    async def _born(self, ctx: SeamContext, sender: str, child: str) -> Born | None:
        """The call of the sender that spawned this agent, if it is its parent."""
        try:
            async for first in ctx.peer(child).read(upto=0):
                if getattr(first.event, "parent", None) != sender:
                    return None
            trail = self._trails.get(sender)
            if trail is None or child not in trail.born:
                trail = await self._read(ctx, sender, child=child)
            return trail.born.get(child)
        except CallboardError:  # deleted: the child's turn is a trace of its own
            return None

    def _sampled(self, trace: int) -> bool:
        """What the sampler says of a trace, asked before the turn's own span is made, which comes last."""
        sampler = getattr(self._tracer, "sampler", None)
        return sampler is None or sampler.should_sample(None, trace, "invoke_agent").decision.is_sampled()


class _Trace:
    """Where the spans of a turn belong: the trace, and what the turn itself stands under."""

    def __init__(self, id: int, above: Any, sampled: bool = True) -> None:
        self.id, self._above = id, above
        self._flags = above.trace_flags if above is not None else int(sampled)
        self._state = None if above is None else above.trace_state

    def point(self, span: int) -> Any:
        """A span of this trace, as a parent."""
        from opentelemetry.trace import SpanContext, TraceFlags

        return SpanContext(self.id, span, is_remote=False, trace_flags=TraceFlags(self._flags), trace_state=self._state)

    def context(self, parent: int | None) -> Context:
        """The context in which a span is made: under this one, or under what the turn stands under."""
        from opentelemetry.context import Context
        from opentelemetry.trace import NonRecordingSpan, set_span_in_context

        point = self._above if parent is None else self.point(parent)
        return Context() if point is None else set_span_in_context(NonRecordingSpan(point), Context())


def _extract(carrier: Any) -> Any:
    """The span in a message's `traceparent`; None if there is none that makes sense."""
    from opentelemetry.context import Context
    from opentelemetry.trace import get_current_span
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    found = get_current_span(TraceContextTextMapPropagator().extract(carrier, Context())).get_span_context()
    return found if found.is_valid else None


class _Ids:
    """What a tracer asks for ids: it gives those that the log says."""

    def __init__(self) -> None:
        self.trace = self.span = 0

    def generate_span_id(self) -> int:
        """The span's."""
        return self.span

    def generate_trace_id(self) -> int:
        """The trace's, for a span without a parent."""
        return self.trace

    def is_trace_id_random(self) -> bool:
        """It is made of what stands in the log."""
        return False
