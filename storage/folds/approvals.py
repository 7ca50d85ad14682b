"""Questions that a person decides, and the verdicts on the calls of the open step.

A verdict counts for the call it was asked about, in the step it was asked in: some providers begin their call ids anew with
every answer, and yesterday's "allow" must not let today's call through. So both go when the step (or the turn) ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct, structs

from ..events import ApprovalAnswered, ApprovalAsked, Event, LogForked, StepEnd, TurnEnd, TurnResume
from .fold import Fold, Handler


class Question(Struct, frozen=True, omit_defaults=True):
    """A question that waits: about which call, since when (Unix ms), and until when if it expires."""

    id: str
    call_id: str
    question: str
    seq: int
    asked: int
    expires: int | None = None
    effective: str | None = None
    """The arguments it is about, where a plugin put others in the place of the model's."""


class Verdict(Struct, frozen=True):
    """What a person (or the clock, or a cancel) said about a call, at which seq, and where a process took the turn up since."""

    question: Question
    answer: ApprovalAnswered
    seq: int = -1
    resumed: int | None = None

    def may_have_run(self, opened_at: int) -> bool:
        """Whether a process that wrote up to seq `opened_at` and ended may have run the call by this word."""
        if self.answer.verdict != "allow":
            return False
        if self.answer.offline:
            return self.resumed is not None and self.resumed <= opened_at
        return self.seq <= opened_at


class ApprovalsState(Struct, frozen=True, omit_defaults=True):
    """The fold as a snapshot keeps it."""

    open: tuple[Question, ...] = ()
    verdicts: tuple[Verdict, ...] = ()


class Approvals(Fold):
    """Open questions by id, and verdicts by call id."""

    __slots__ = ("open", "verdicts")

    def __init__(self) -> None:
        self.open: dict[str, Question] = {}
        """Questions without an answer, by id, oldest first."""
        self.verdicts: dict[str, Verdict] = {}
        """Call id → the newest verdict, for the calls of the open step."""

    def by_call(self, call_id: str) -> Question | None:
        """The open question about this call."""
        return next((question for question in self.open.values() if question.call_id == call_id), None)

    def oldest(self, now: int) -> Question | None:
        """The open question that waits longest and has not expired at `now`, Unix ms."""
        return next((question for question in self.open.values() if question.expires is None or question.expires > now), None)

    @property
    def next_expiry(self) -> int | None:
        """When the next open question expires, Unix ms."""
        return min((question.expires for question in self.open.values() if question.expires is not None), default=None)

    def _ask(self, seq: int, time: int, event: ApprovalAsked) -> None:
        self.open[event.id] = Question(event.id, event.call_id, event.question, seq, time, event.expires, event.effective)

    def _answer(self, seq: int, time: int, event: ApprovalAnswered) -> None:
        question = self.open.pop(event.id, None)
        if question is not None:
            self.verdicts[question.call_id] = Verdict(question, event, seq)

    def _resume(self, seq: int, time: int, event: TurnResume) -> None:
        for call_id, verdict in self.verdicts.items():
            if verdict.resumed is None:
                self.verdicts[call_id] = structs.replace(verdict, resumed=seq)

    def _over(self, seq: int, time: int, event: StepEnd | TurnEnd) -> None:
        if self.open or self.verdicts:
            self.fork()

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {
        ApprovalAsked: _ask,
        ApprovalAnswered: _answer,
        TurnResume: _resume,
        StepEnd: _over,
        TurnEnd: _over,
        LogForked: Fold.on_fork,
    }

    def fork(self) -> None:
        """A fork asks nobody: what was open is forgotten, and so are verdicts."""
        self.open, self.verdicts = {}, {}

    def dump(self) -> ApprovalsState:
        """The state for a snapshot."""
        return ApprovalsState(tuple(self.open.values()), tuple(self.verdicts.values()))

    @classmethod
    def load(cls, dumped: ApprovalsState) -> Approvals:
        """The fold in a snapshot."""
        fold = cls()
        fold.open = {question.id: question for question in dumped.open}
        fold.verdicts = {verdict.question.call_id: verdict for verdict in dumped.verdicts}
        return fold
