"""A request's messages, as a rule-based model reads them: the questions asked so far, and every call with what it gave.

The demo's models see what any model sees and nothing else. They keep no state between calls, so a turn that a kill interrupts
goes on with the same decision: the same messages always lead to the same answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from ...storage.messages import Message, PluginSource, ToolCallBlock, ToolResultBlock

_Shape = TypeVar("_Shape")


class Called(Struct, frozen=True):
    """One call of the history, with its result. `turn` counts the questions up to it, from 1."""

    id: str
    name: str
    arguments: dict[str, Any]
    text: str
    failed: bool
    turn: int

    def read(self, shape: type[_Shape]) -> _Shape | None:
        """The result in this shape; None if the call failed or gave something else."""
        if self.failed:
            return None
        try:
            return msgspec.json.decode(self.text, type=shape)
        except msgspec.DecodeError:
            return None


class Dialogue(Struct, frozen=True):
    """What a model knows: the questions in order, the calls in order."""

    questions: tuple[str, ...] = ()
    calls: tuple[Called, ...] = ()

    @property
    def turn(self) -> int:
        """How many questions were asked; the last is the one to answer."""
        return len(self.questions)

    def of(self, name: str) -> list[Called]:
        """The calls of one tool, in order."""
        return [call for call in self.calls if call.name == name]

    def answered(self, name: str) -> Called | None:
        """The last call of this tool that settled: it succeeded, or it failed in this turn, where another try is no use."""
        return next((c for c in reversed(self.of(name)) if not c.failed or c.turn == self.turn), None)

    @property
    def last_turn(self) -> Dialogue:
        """The dialogue with the calls of its last turn alone."""
        return Dialogue(self.questions, tuple(call for call in self.calls if call.turn == self.turn))


def read_dialogue(messages: Sequence[Message]) -> Dialogue:
    """The dialogue in these messages; runtime context that plugins add is not a question."""
    results = {b.call_id: b for m in messages for b in m.content if type(b) is ToolResultBlock}
    questions: list[str] = []
    calls: list[Called] = []
    for message in messages:
        if message.role == "user" and type(message.source) is not PluginSource:
            questions.append(message.text)
        calls += [_called(block, results.get(block.id), len(questions)) for block in message.calls]
    return Dialogue(tuple(questions), tuple(calls))


def _called(block: ToolCallBlock, result: ToolResultBlock | None, turn: int) -> Called:
    try:
        arguments = msgspec.json.decode(block.arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        arguments = {}
    text, failed = (result.text, result.is_error) if result else ("", True)
    return Called(block.id, block.name, arguments, text, failed, turn)
