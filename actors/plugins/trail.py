"""A trail: the fold of one agent's log into spans, each handed out with the record that ends it.

Nothing is kept open anywhere but here, so nothing is lost with a process: read again, the log gives the same spans under the same
ids. No OpenTelemetry in here, and no trio.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from ...storage.events import (
    Aborted,
    ApprovalAnswered,
    ApprovalAsked,
    AssistantChunk,
    AssistantMessage,
    ChildSpawned,
    InboxClaim,
    InboxDrop,
    InboxPut,
    RequestContext,
    RequestFailed,
    RequestHeader,
    RequestSent,
    StepEnd,
    StepStart,
    ToolCalled,
    ToolResult,
    TurnCancel,
    TurnEnd,
    TurnResume,
    TurnStart,
)
from ...storage.messages import ModelSource, Settings
from ...storage.records import Record
from .spans import Born, Open, Origin, Span, Turn, failure_of, span_id, usage_attributes

TYPES = frozenset(
    {"inbox/put", "inbox/claim", "inbox/drop", "turn/start", "turn/resume", "turn/cancel", "turn/end", "step/start", "step/end"}
    | {"request/header", "request/context", "request/sent", "request/failed", "assistant/message", "tool/call", "tool/result"}
    | {"child/spawned", "approval/asked", "approval/answered"}
)
"""What has to be read of a log to know where it stands."""
_FIRST = "gen_ai.response.time_to_first_chunk"
_INSIDE = frozenset(
    {TurnResume, TurnEnd, StepStart, StepEnd, RequestSent, RequestFailed, AssistantChunk, AssistantMessage}
    | {ToolCalled, ToolResult, ChildSpawned, ApprovalAsked, ApprovalAnswered}
)
"""What happens in a turn alone."""


class Trail:
    """The fold of one agent's log into spans."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self.turn: Turn | None = None
        self.route: tuple[str, str] | None = None
        """Provider and model, and how to sample, as far as anybody has seen a record that says so."""
        self.settings = Settings()
        self.puts: dict[str, Origin | None] = {}
        """Pending messages; None where they bring nothing along."""
        self.born: dict[str, Born] = {}
        """The children that the last turn spawned."""
        self._handlers: Mapping[type, Callable[[Record, Any], list[Span]]] = {
            InboxPut: self._put,
            InboxClaim: self._claimed,
            InboxDrop: self._dropped,
            TurnStart: self._turn_start,
            TurnResume: self._resumed,
            TurnCancel: self._dropped,
            TurnEnd: self._turn_end,
            StepStart: self._step_start,
            StepEnd: self._step_end,
            RequestContext: self._routed,
            RequestHeader: self._header,
            RequestSent: self._sent,
            RequestFailed: self._failed,
            AssistantChunk: self._chunk,
            AssistantMessage: self._answered,
            ToolCalled: self._called,
            ToolResult: self._result,
            ChildSpawned: self._spawned,
            ApprovalAsked: self._asked,
            ApprovalAnswered: self._verdict,
        }

    @property
    def idle(self) -> bool:
        """Whether nothing is open or pending that has to be remembered."""
        return self.turn is None and not self.puts

    def missing(self, record: Record) -> bool:
        """Whether the record is about something that began before anybody looked: then the log has to be read."""
        event: Any = record.event
        if isinstance(event, InboxClaim):
            return self.turn is None or any(id not in self.puts for id in event.ids)
        return self.turn is None and type(event) in _INSIDE

    def apply(self, record: Record) -> list[Span]:
        """Take in one record; the spans that end with it."""
        handler = self._handlers.get(type(record.event))
        return [] if handler is None else handler(record, record.event)

    # -- what opens

    def _put(self, record: Record, event: InboxPut) -> list[Span]:
        context = event.context or {}
        carrier = {
            key: value for key, value in context.items() if key in ("traceparent", "tracestate") and isinstance(value, str)
        }
        self.puts[event.message.id] = Origin(event.message.id, carrier, event.sender) if carrier or event.sender else None
        return []

    def _dropped(self, record: Record, event: InboxDrop | TurnCancel) -> list[Span]:
        for id in event.ids:
            self.puts.pop(id, None)
        if isinstance(event, TurnCancel):
            self._moment("turn/cancel", record)
        return []

    def _claimed(self, record: Record, event: InboxClaim) -> list[Span]:
        found = [self.puts.pop(id, None) for id in event.ids]
        if self.turn is not None:
            self.turn.origins.extend(origin for origin in found if origin is not None)
        return []

    def _turn_start(self, record: Record, event: TurnStart) -> list[Span]:
        self.turn = Turn(event.turn, self._open(record, {"callboard.turn": event.turn}), record.seq, record.time)
        self.born = {}
        return []

    def _resumed(self, record: Record, event: TurnResume) -> list[Span]:
        self._moment("turn/resume", record)
        return []

    def _moment(self, name: str, record: Record) -> None:
        if self.turn is not None:
            self.turn.moments.append((name, record.time))

    def _step_start(self, record: Record, event: StepStart) -> list[Span]:
        turn = self.turn
        if turn is not None:
            turn.step = self._open(record, {"callboard.step": event.step}, f"step {event.step}", turn.span.id)
            turn.calls, turn.questions = {}, {}
        return []

    def _routed(self, record: Record, event: RequestContext) -> list[Span]:
        self.route = event.provider, event.model
        return []

    def _header(self, record: Record, event: RequestHeader) -> list[Span]:
        if event.header is not None:
            self.route, self.settings = (event.header.provider, event.header.model), event.header.settings
        return []

    def _sent(self, record: Record, event: RequestSent) -> list[Span]:
        turn = self.turn
        if turn is not None:
            attributes: dict[str, Any] = {
                "gen_ai.operation.name": "chat",
                "gen_ai.request.stream": True,
                "callboard.attempt": event.attempt,
            }
            for name in ("max_tokens", "temperature"):
                value = getattr(self.settings, name)
                if value is not None:
                    attributes[f"gen_ai.request.{name}"] = value
            turn.request = self._open(record, attributes, "chat", self._inner(turn))
        return []

    def _chunk(self, record: Record, event: AssistantChunk) -> list[Span]:
        request = None if self.turn is None else self.turn.request
        if request is not None and _FIRST not in request.attributes:
            request.attributes[_FIRST] = (record.time - request.start) / 1000
        return []

    def _called(self, record: Record, event: ToolCalled) -> list[Span]:
        if self.turn is not None:
            attributes = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": event.name,
                "gen_ai.tool.call.id": event.call_id,
                "gen_ai.tool.type": "function",
            }
            name = f"execute_tool {event.name}"
            self.turn.calls[event.call_id] = self._open(record, attributes, name, self._inner(self.turn))
        return []

    def _asked(self, record: Record, event: ApprovalAsked) -> list[Span]:
        if self.turn is not None:
            attributes = {"callboard.approval.id": event.id, "gen_ai.tool.call.id": event.call_id}
            self.turn.questions[event.id] = self._open(record, attributes, "approval", self._inner(self.turn))
        return []

    def _spawned(self, record: Record, event: ChildSpawned) -> list[Span]:
        if self.turn is not None:
            call = self.turn.calls.get(event.call_id or "")
            span = self._inner(self.turn) if call is None else call.id
            self.born[event.child] = Born(self.turn, span, event.task)
        return []

    # -- what ends

    def _failed(self, record: Record, event: RequestFailed) -> list[Span]:
        attributes: dict[str, Any] = {"error.type": event.failure.code, **usage_attributes(event.usage)}
        if event.failure.status is not None:
            attributes["http.response.status_code"] = event.failure.status
        return self._end_request(record, attributes, event.failure.message or event.failure.code)

    def _answered(self, record: Record, event: AssistantMessage) -> list[Span]:
        attributes: dict[str, Any] = {"gen_ai.response.finish_reasons": (event.finish,), **usage_attributes(event.usage)}
        source = event.message.source
        if isinstance(source, ModelSource):
            self.route = source.provider, source.model
        return self._end_request(record, attributes)

    def _end_request(self, record: Record, attributes: Mapping[str, Any], error: str | None = None) -> list[Span]:
        turn = self.turn
        if turn is None or turn.request is None:
            return []
        request, turn.request = turn.request, None
        if self.route is not None:
            request.name = f"chat {self.route[1]}"
            request.attributes["gen_ai.provider.name"], request.attributes["gen_ai.request.model"] = self.route
        return [self._close(turn, request, record, attributes, error, client=True)]

    def _result(self, record: Record, event: ToolResult) -> list[Span]:
        turn = self.turn
        call = None if turn is None else turn.calls.pop(event.call_id, None)
        if turn is None or call is None:
            return []
        attributes = {} if event.error is None else {"error.type": event.error}
        return [self._close(turn, call, record, attributes, event.error)]

    def _verdict(self, record: Record, event: ApprovalAnswered) -> list[Span]:
        turn = self.turn
        question = None if turn is None else turn.questions.pop(event.id, None)
        if turn is None or question is None:
            return []
        return [self._close(turn, question, record, {"callboard.approval.verdict": event.verdict})]

    def _step_end(self, record: Record, event: StepEnd) -> list[Span]:
        turn = self.turn
        if turn is None or turn.step is None:
            return []
        cut = self._end_request(record, {"error.type": "ABORTED"}, "cut with its turn")
        step, turn.step = turn.step, None
        return [*cut, self._close(turn, step, record, {})]

    def _turn_end(self, record: Record, event: TurnEnd) -> list[Span]:
        turn, self.turn = self.turn, None
        if turn is None:
            return []
        attributes: dict[str, Any] = {"callboard.reason": event.reason.kind, **usage_attributes(event.usage)}
        error = failure_of(event.reason)
        if error is not None:
            attributes["error.type"] = error[0]
        if isinstance(event.reason, Aborted):
            attributes["callboard.cause"] = event.reason.cause.kind
        return [self._close(turn, turn.span, record, attributes, None if error is None else error[1])]

    # -- spans

    def _open(self, record: Record, attributes: dict[str, Any], name: str = "", parent: int | None = None) -> Open:
        return Open(span_id(self._agent, record), record.time, attributes, name, parent)

    @staticmethod
    def _inner(turn: Turn) -> int:
        return turn.span.id if turn.step is None else turn.step.id

    @staticmethod
    def _close(
        turn: Turn, opened: Open, record: Record, more: Mapping[str, Any], error: str | None = None, *, client: bool = False
    ) -> Span:
        attributes = {**opened.attributes, **more}
        moments = turn.moments if opened is turn.span else ()
        kind: Literal["client", "internal"] = "client" if client else "internal"
        return Span(opened.id, opened.parent, kind, opened.name, opened.start, record.time, attributes, turn, error, moments)
