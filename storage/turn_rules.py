"""The rules of turns and steps, checked one record at a time.

One end for each start (an open last turn aside); steps nest and count from 1; what belongs to a step lies inside it; every
request has one end; an answer cites exactly the chunks of its attempt; each call of a closed step has one result, and none
before its `tool/call`, where there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from .events import (
    AssistantChunk,
    AssistantMessage,
    Event,
    InboxClaim,
    RequestFailed,
    RequestSent,
    StepEnd,
    StepStart,
    ToolCalled,
    ToolResult,
    TurnCancel,
    TurnEnd,
    TurnResume,
    TurnStart,
    TurnSuspend,
    kind_of,
    type_of,
)

Broken = Iterator[str]
Numbered = AssistantChunk | AssistantMessage | RequestSent | RequestFailed | ToolCalled | ToolResult


class TurnRules:
    """Turns and steps open and close in order, and hold what belongs to them."""

    def __init__(self) -> None:
        self.turns = 0
        self._open = self._cancelled = False
        self._turn = 0
        self._left_open: int | None = None
        self._begin_step(0, False)

    def _begin_step(self, step: int, is_open: bool = True) -> None:
        self._step, self._step_open = step, is_open
        self._attempts = 0
        self._request: int | None = None
        self._chunks: list[int] = []
        self._answered = False
        self._calls: dict[str, tuple[bool, bool]] = {}

    def see(self, seq: int, event: Event) -> Broken:
        """Check the record against the open turn and step."""
        if isinstance(event, Numbered):
            if not self._step_open or (event.turn, event.step) != (self._turn, self._step):
                yield f"{type_of(event)} of turn {event.turn} step {event.step} lies {self._where()}"
            if type(event) is AssistantChunk:
                self._chunks.append(seq)
                return
        handler = self._RULES.get(type(event))
        if handler is not None:
            yield from handler(self, event)

    def _where(self) -> str:
        if not self._open:
            return "outside any turn"
        return f"in turn {self._turn} step {self._step}" if self._step_open else f"in turn {self._turn} outside any step"

    def _turn_start(self, event: TurnStart) -> Broken:
        if self._open:
            yield f"turn {event.turn} starts while turn {self._turn} is open"
        if event.turn != self._turn + 1:
            yield f"turn {event.turn} follows turn {self._turn}"
        self._open, self._cancelled, self._turn, self._left_open = True, False, event.turn, None
        self.turns += 1
        self._begin_step(0, False)

    def _turn_end(self, event: TurnEnd) -> Broken:
        yield from self._in_turn(event)
        if self._step_open:
            yield f"turn {event.turn} ends inside its step {self._step}"
        if self._left_open is not None and kind_of(event.reason) not in ("aborted", "interrupted"):
            yield f"turn {event.turn} ends {kind_of(event.reason)!r}, and attempt {self._left_open} of its request has no end"
        self._open = self._step_open = False

    def _turn_cancel(self, event: TurnCancel) -> Broken:
        if event.turn is not None:
            yield from self._in_turn(event)
            self._cancelled = True

    def _in_turn(self, event: Any) -> Broken:
        if not self._open or event.turn != self._turn:
            yield f"{type_of(event)} of turn {event.turn} lies {self._where()}"

    def _step_start(self, event: StepStart) -> Broken:
        yield from self._in_turn(event)
        if self._step_open:
            yield f"step {event.step} starts while step {self._step} is open"
        if event.step != self._step + 1:
            yield f"step {event.step} follows step {self._step}: steps count from 1"
        if self._left_open is not None:
            yield f"step {event.step} starts, and attempt {self._left_open} of the request before has no end"
        self._begin_step(event.step)

    def _step_end(self, event: StepEnd) -> Broken:
        if not self._step_open or (event.turn, event.step) != (self._turn, self._step):
            yield f"step/end of turn {event.turn} step {event.step} lies {self._where()}"
        for call, (_, has_result) in self._calls.items():
            if not has_result:
                yield f"step {event.step} ends, and call {call!r} has no result"
        self._left_open, self._step_open = self._request, False

    def _sent(self, event: RequestSent) -> Broken:
        if self._request is not None:
            yield f"attempt {event.attempt} is sent while attempt {self._request} has no end"
        if event.attempt != self._attempts + 1:
            yield f"attempt {event.attempt} follows attempt {self._attempts}"
        if self._cancelled:
            yield f"a request is sent after turn {event.turn} was cancelled"
        if self._answered:
            yield f"a request is sent after step {event.step} was answered"
        self._attempts, self._request, self._chunks = event.attempt, event.attempt, []

    def _failed(self, event: RequestFailed) -> Broken:
        if event.attempt != self._request:
            yield f"attempt {event.attempt} fails, which is not open"
        self._request = None

    def _answer(self, event: AssistantMessage) -> Broken:
        if self._answered:
            yield f"step {event.step} is answered a second time"
        if self._request is None and not (event.interrupted and self._attempts):
            yield "there is no open request that this would answer"
        if event.sources != tuple(self._chunks):
            yield f"cites {len(event.sources)} chunks that are not exactly the {len(self._chunks)} of its attempt"
        self._request, self._answered = None, True
        self._calls = {call.id: (False, False) for call in event.message.calls}
        if len(self._calls) < len(event.message.calls):
            yield "holds two calls with one id"

    def _called(self, event: ToolCalled) -> Broken:
        called, has_result = self._calls.get(event.call_id, (False, False))
        if event.call_id not in self._calls:
            yield f"calls {event.call_id!r}, which the answer of the step does not hold"
        if called:
            yield f"calls {event.call_id!r} a second time"
        if has_result:
            yield f"calls {event.call_id!r} after its result"
        if event.call_id in self._calls:
            self._calls[event.call_id] = True, has_result

    def _result(self, event: ToolResult) -> Broken:
        called, has_result = self._calls.get(event.call_id, (False, False))
        if event.call_id not in self._calls:
            yield f"is the result of call {event.call_id!r}, which the answer of the step does not hold"
        if has_result:
            yield f"is a second result of call {event.call_id!r}"
        if event.call_id in self._calls:
            self._calls[event.call_id] = called, True

    _RULES: ClassVar[dict[type[Event], Any]] = {
        TurnStart: _turn_start,
        TurnEnd: _turn_end,
        TurnCancel: _turn_cancel,
        TurnSuspend: _in_turn,
        TurnResume: _in_turn,
        InboxClaim: _in_turn,
        StepStart: _step_start,
        StepEnd: _step_end,
        RequestSent: _sent,
        RequestFailed: _failed,
        AssistantMessage: _answer,
        ToolCalled: _called,
        ToolResult: _result,
    }
