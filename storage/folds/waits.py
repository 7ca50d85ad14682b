"""What an agent waits for as far as its log says, as kinds that the store's index can be searched for.

Most of it other folds know: a question, a child, a request that is tried again. What is folded here is who was asked: an `ask` is
mail, and its answer stands in the other's log, so in this one it lasts until the call that asked has its result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from ..events import Event, LogForked, MailSent, StepEnd, TurnEnd
from .approvals import Approvals
from .children import Children
from .fold import Fold, Handler
from .position import Position

KINDS = ("approval", "ask", "child", "retry", "timer")
"""Kinds that begin and end with records, so that the index has them. A model, a tool, a commit end in memory alone."""
KEEP = 64
"""Asks of one step that are remembered; a body that asks in a loop is known by its newest."""


class Asked(Struct, frozen=True):
    """Mail that somebody waits for the answer to: which message, to whom, and when (Unix ms)."""

    message_id: str
    to: str
    time: int


class AsksState(Struct, frozen=True, omit_defaults=True):
    """The fold as a snapshot keeps it; also its whole state."""

    asked: tuple[Asked, ...] = ()


class Asks(Fold):
    """The asks of the open step."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = AsksState()

    @property
    def asked(self) -> tuple[Asked, ...]:
        """The oldest first."""
        return self._state.asked

    def _sent(self, seq: int, time: int, event: MailSent) -> None:
        if event.kind == "ask" and not event.dead:
            self._state = AsksState((*self._state.asked, Asked(event.message_id, event.to, time))[-KEEP:])

    def _over(self, seq: int, time: int, event: StepEnd | TurnEnd) -> None:
        if self._state.asked:
            self.fork()

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {MailSent: _sent, StepEnd: _over, TurnEnd: _over, LogForked: Fold.on_fork}

    def fork(self) -> None:
        """A fork has asked nobody."""
        self._state = AsksState()

    def dump(self) -> AsksState:
        """The state for a snapshot."""
        return self._state

    @classmethod
    def load(cls, dumped: AsksState) -> Asks:
        """The fold in a snapshot."""
        fold = cls()
        fold._state = dumped
        return fold


def wait_kinds(at: Position, approvals: Approvals, asks: Asks, children: Children, *, timed: bool) -> tuple[str, ...]:
    """Which of `KINDS` hold: of the open turn, or of an agent at rest, which may wait for a clock (`timed`) and for children that
    work in the background."""
    if not at.open:
        if not timed and not children.living:
            return ()  # as usual
        found = {"child"} if any(child.background for child in children.alive()) else set[str]()
        return _sorted({"timer", *found} if timed else found)
    if at.retry_at is None and not (approvals.open or asks.asked or children.living):
        return ()  # the usual case, asked at every commit
    found = {"approval"} if approvals.open else set[str]()
    if at.retry_at is not None:
        found.add("retry")
    started = {call.id for call in at.calls if call.state == "started"}
    if started and asks.asked:
        found.add("ask")
    if started and any(child.call_id in started and not child.background for child in children.alive()):
        found.add("child")
    return _sorted(found)


def _sorted(found: set[str]) -> tuple[str, ...]:
    return tuple(sorted(found)) if found else ()
