"""Logs for tests of folds and rules: one written as the loop would write it, and any log at all (hypothesis)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from callboard.storage import events as e
from callboard.storage import messages as m
from callboard.storage.digest import header_digest, request_digest
from callboard.storage.folds.surface import Surface
from callboard.storage.records import FORMAT, Record

HEADER = m.Header("acme", "large", system="Be kind.")


def text(id: str, role: m.Role = "user", content: str = "") -> m.Message:
    """A message with one text block."""
    return m.Message(id, role, (m.TextBlock(content or id),))


def asking(id: str, *calls: str) -> m.Message:
    """An answer that asks these calls."""
    return m.Message(id, "assistant", (m.TextBlock("Let me see."), *(m.ToolCallBlock(call, "echo", "{}") for call in calls)))


class Script:
    """Writes a log, record by record, as the loop would."""

    def __init__(self, agent: str = "a") -> None:
        self.records: list[Record] = []
        self.surface = Surface()
        self.header = HEADER
        self.turn = self.step = self.attempt = 0
        self._chunks: list[int] = []
        self._messages = 0
        self.add(e.LogCreated(format=FORMAT, agent=agent, name="n"))

    @property
    def last(self) -> int:
        """The newest seq."""
        return len(self.records) - 1

    def add(self, *events: e.Event) -> int:
        """Append events; the seq of the last."""
        for event in events:
            self.records.append(Record(len(self.records), 1000 + len(self.records), event))
            if isinstance(event, Surface.EVENTS):
                self.surface.apply(self.last, 0, event)
        return self.last

    def put(self, id: str, **rest: Any) -> int:
        """`inbox/put`."""
        return self.add(e.InboxPut(message=text(id), lane="next-turn", **rest))

    def begin(self, id: str) -> None:
        """`put TS claim SS U`: a turn up to its first request."""
        self.put(id)
        self.turn, self.step = self.turn + 1, 1
        self.attempt = 0
        self.add(e.TurnStart(turn=self.turn), e.InboxClaim(turn=self.turn, ids=(id,)))
        self.add(e.StepStart(turn=self.turn, step=self.step), e.UserMessage(message=text(id)))

    def next_step(self) -> None:
        """`SE SS`."""
        self.close_step()
        self.step, self.attempt = self.step + 1, 0
        self.add(e.StepStart(turn=self.turn, step=self.step))

    def headers(self, reason: Any = "initial") -> None:
        """`H X`."""
        self.add(
            e.RequestHeader(reason=reason, digest=header_digest(self.header), header=self.header),
            e.RequestContext(provider="acme", model="large", context_window=1000),
        )

    def send(self, *, digest: str | None = None, upto: int | None = None) -> int:
        """`Q C C`, derived from all there is."""
        self.attempt += 1
        right = request_digest(self.surface.messages(), self.header)
        last = self.last if upto is None else upto
        at = self.add(e.RequestSent(turn=self.turn, step=self.step, attempt=self.attempt, digest=digest or right, upto=last))
        for delta in "ab":
            self.add(e.AssistantChunk(turn=self.turn, step=self.step, chunk=m.TextDelta(0, delta)))
        self._chunks = [self.last - 1, self.last]
        return at

    def fail(self, action: Any = "retry") -> None:
        """`F`."""
        failure = m.Failure("SERVER")
        self.add(e.RequestFailed(turn=self.turn, step=self.step, attempt=self.attempt, failure=failure, action=action))

    def answer(self, message: m.Message | None = None, **rest: Any) -> int:
        """`A`."""
        sources = tuple(rest.pop("sources", self._chunks))
        answer = message or text(f"answer{self.last}", "assistant")
        return self.add(e.AssistantMessage(turn=self.turn, step=self.step, message=answer, sources=sources, **rest))

    def call(self, call: str) -> int:
        """`call`."""
        return self.add(e.ToolCalled(turn=self.turn, step=self.step, call_id=call, name="echo", arguments="{}"))

    def result(self, call: str, **rest: Any) -> int:
        """`res`."""
        content = (m.TextBlock(f"result of {call}"),)
        return self.add(e.ToolResult(turn=self.turn, step=self.step, call_id=call, content=content, **rest))

    def close_step(self) -> None:
        """`SE`."""
        self.add(e.StepEnd(turn=self.turn, step=self.step))

    def end(self, reason: e.EndReason | None = None) -> None:
        """`SE TE`."""
        self.close_step()
        self.add(e.TurnEnd(turn=self.turn, reason=reason or e.Completed()))

    def simple(self, id: str) -> None:
        """A whole turn with one step."""
        self.begin(id)
        if self.turn == 1:
            self.headers()
        self.send()
        self.answer()
        self.end()

    def with_tools(self, id: str, *calls: str) -> None:
        """A whole turn whose first step asks these calls."""
        self.begin(id)
        if self.turn == 1:
            self.headers()
        self.send()
        self.answer(asking(f"ask{self.last}", *calls))
        for call in calls:
            self.call(call)
        for call in calls:
            self.result(call)
        self.next_step()
        self.send()
        self.answer()
        self.end()


# -- any log at all

_ids = st.sampled_from(["c1", "c2", "c3"])
_texts = st.builds(m.TextBlock, st.sampled_from(["", "x"]))
_calls = st.builds(m.ToolCallBlock, _ids, st.just("echo"))
_results = st.builds(m.ToolResultBlock, _ids, st.lists(_texts, max_size=1).map(tuple))
_blocks = st.lists(st.one_of(_texts, _calls, _calls, _results), max_size=3).map(tuple)
_roles = st.sampled_from(["user", "assistant", "assistant", "tool"])
_messages = st.builds(m.Message, st.uuids().map(str), _roles, _blocks)
_answers = st.builds(
    m.Message, st.uuids().map(str), st.just("assistant"), st.lists(st.one_of(_texts, _calls), max_size=3).map(tuple)
)
_seqs = st.integers(0, 25)

surface_events: st.SearchStrategy[e.Event] = st.one_of(
    st.builds(e.UserMessage, message=_messages),
    st.builds(e.AssistantMessage, turn=st.just(1), step=st.just(1), message=_answers),
    st.builds(e.AssistantMessage, turn=st.just(1), step=st.just(1), message=_answers),
    st.builds(e.ToolResult, turn=st.just(1), step=st.just(1), call_id=_ids, content=st.lists(_texts, max_size=1).map(tuple)),
    st.builds(e.ToolResult, turn=st.just(1), step=st.just(1), call_id=_ids, content=st.just(())),
    st.builds(e.SurfaceReplace, start=_seqs, end=_seqs, message=st.none() | _messages),
)
"""Whatever may stand on the surface, well-kept or not."""

other_events: st.SearchStrategy[e.Event] = st.one_of(
    st.builds(e.StepEnd, turn=st.just(1), step=st.just(1)),
    st.builds(e.Note, kind=st.just("k")),
    st.builds(e.ToolCalled, turn=st.just(1), step=st.just(1), call_id=_ids, name=st.just("echo"), arguments=st.just("")),
    st.builds(e.InboxPut, message=_messages, lane=st.just("next-step")),
    st.builds(e.TurnResume, turn=st.just(1)),
)
"""Records that are not messages."""


def fold(fold: Any, events: Sequence[e.Event], first: int = 0) -> Any:
    """Apply those events that the fold reads; seqs from `first` on."""
    for seq, event in enumerate(events, first):
        if isinstance(event, fold.EVENTS):
            fold.apply(seq, 1000 + seq, event)
    return fold
