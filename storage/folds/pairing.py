"""Which result belongs to which call, and where it stands: the rules that make the surface total.

A result belongs to the newest assistant message before it that asks under its id (some providers begin their ids anew with
every answer), and stands directly after that message. Rules for what a well-kept log never holds, so that no log can break
a request: a call without result gets a stand-in, a second result or one without a call is left out, the second of two calls
with one id in one answer is left out, calls in what is not the model's and results in what is are left out, and so is a
message with nothing to show.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from ..events import ToolResult
from ..messages import Block, File, Image, Message, TextBlock, ToolCallBlock, ToolResultBlock, ToolSource

NO_RESULT = "[no result]"
"""What the model reads where the log has no result of a call."""

Answers = dict[str, Message | None]
"""Call id → its result, in the model's order; None where there is none yet."""


class Part(NamedTuple):
    """What one recorded message brings: itself, as far as it is shown in its place; the calls it asks; results, each with its
    call."""

    shown: Message | None
    calls: tuple[str, ...] = ()
    results: tuple[tuple[str, Message], ...] = ()


class Arrangement(NamedTuple):
    """A whole surface. `placed`: messages in order, each with the index of the record it is from (None for a stand-in); the
    first `settled` of them can only change by a replace or a late result. `open`: calls of the last message, if it waits for
    results, and `asking` that message. `late`: calls that have a stand-in. `pairs`: (index of call, index of result)."""

    placed: list[tuple[int | None, Message]]
    settled: int
    open: Answers
    asking: Message | None
    late: set[str]
    pairs: list[tuple[int, int | None]]


def split(message: Message) -> Part:
    """What a recorded message brings to the surface."""
    if message.role == "assistant":
        return _split_answer(message)
    if message.role == "user" and not any(type(b) is ToolResultBlock or type(b) is ToolCallBlock for b in message.content):
        return Part(message if message.content else None)
    blocks = [b for b in message.content if type(b) is ToolResultBlock]
    rest = tuple(b for b in message.content if type(b) is not ToolResultBlock and type(b) is not ToolCallBlock)
    if len(blocks) == 1 and len(message.content) == 1 and message.role == "tool":
        return Part(None, (), ((blocks[0].call_id, message),))
    results = tuple((block.call_id, _carry(message, block)) for block in blocks)
    shown = msgspec.structs.replace(message, content=rest) if rest and message.role == "user" else None
    return Part(shown, (), results)


def _split_answer(message: Message) -> Part:
    calls: dict[str, None] = {}
    kept: list[Block] = []
    for block in message.content:
        if type(block) is ToolResultBlock or (type(block) is ToolCallBlock and block.id in calls):
            continue
        if type(block) is ToolCallBlock:
            calls[block.id] = None
        kept.append(block)
    if all(type(block) is TextBlock and not block.text for block in kept):
        return Part(None)
    shown = message if len(kept) == len(message.content) else msgspec.structs.replace(message, content=tuple(kept))
    return Part(shown, tuple(calls))


def _carry(message: Message, block: ToolResultBlock) -> Message:
    return Message(f"{message.id}:{block.call_id}", "tool", (block,), ToolSource(block.call_id))


def result_message(seq: int, event: ToolResult) -> Message:
    """The message that a `tool/result` stands for; its id comes from its place in the log, so that a rebuild has the same."""
    content = tuple(b for b in event.content if isinstance(b, TextBlock | Image | File))
    block = ToolResultBlock(event.call_id, content, event.error is not None)
    return Message(f"result:{seq}", "tool", (block,), ToolSource(event.call_id))


def stand_in(asking: Message, call: str) -> Message:
    """An error result in place of one that the log does not have."""
    block = ToolResultBlock(call, (TextBlock(NO_RESULT),), is_error=True)
    return Message(f"no-result:{asking.id}:{call}", "tool", (block,), ToolSource(call))


class _Group:
    """An assistant message that asks, and its results: call id → (index of the record, result)."""

    __slots__ = ("answers", "asking", "at")

    def __init__(self, at: int, asking: Message, calls: tuple[str, ...]) -> None:
        self.at, self.asking = at, asking
        self.answers: dict[str, tuple[int, Message] | None] = dict.fromkeys(calls)

    def results(self) -> Answers:
        return {call: answer and answer[1] for call, answer in self.answers.items()}

    def placed(self) -> list[tuple[int | None, Message]]:
        return [answer or (None, stand_in(self.asking, call)) for call, answer in self.answers.items()]


def arrange(recorded: list[Message]) -> Arrangement:
    """The surface of these messages, in the order in which they were recorded (or put in place of others)."""
    shown: list[tuple[int, Message]] = []
    groups: dict[int, _Group] = {}
    newest: dict[str, _Group] = {}
    for at, message in enumerate(recorded):
        part = split(message)
        for call, result in part.results:
            _match(newest.get(call), at, call, result)
        if part.shown is not None:
            shown.append((at, part.shown))
        if part.shown is not None and part.calls:
            groups[at] = _Group(at, part.shown, part.calls)
            newest.update(dict.fromkeys(part.calls, groups[at]))
    return _place(shown, groups, newest)


def _match(group: _Group | None, at: int, call: str, result: Message) -> None:
    if group is not None and group.answers[call] is None:
        group.answers[call] = (at, result)


def _place(shown: list[tuple[int, Message]], groups: dict[int, _Group], newest: dict[str, _Group]) -> Arrangement:
    placed: list[tuple[int | None, Message]] = []
    for at, message in shown:
        placed.append((at, message))
        if at in groups:
            placed.extend(groups[at].placed())
    last = groups.get(shown[-1][0]) if shown else None
    waits = last if last is not None and None in last.answers.values() else None
    return Arrangement(
        placed,
        len(placed) - (len(waits.answers) if waits else 0),
        waits.results() if waits else {},
        waits.asking if waits else None,
        {call for call, group in newest.items() if group is not waits and group.answers[call] is None},
        [(group.at, answer and answer[0]) for group in groups.values() for answer in group.answers.values()],
    )
