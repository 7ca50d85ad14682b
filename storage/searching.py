"""Searching: where in a log something was said, also where the model does not see it any more. Pure.

A text is found in whatever record holds it: messages, calls and results, summaries, commands, replies, notes. The same message
stands in a log twice, as it was accepted and as it entered the view, and so does an answer, as it was given and as it went out;
each is found once. Case does not matter, nor how blanks and line ends fall.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from .errors import UsageError
from .events import (
    ApprovalAnswered,
    ApprovalAsked,
    AssistantMessage,
    CommandResult,
    CommandRun,
    Event,
    InboxPut,
    Note,
    OutboxPut,
    SurfaceReplace,
    TimerSet,
    ToolCalled,
    ToolResult,
    UserMessage,
)
from .messages import Block, Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock
from .records import Record

AROUND = 60
"""Characters that are shown on either side of what was found."""


class Hit(Struct, frozen=True):
    """One record that holds the text: the place in it, and what stands around."""

    seq: int
    time: int
    type: str
    context: str


class Search:
    """Looks for one text in one log, record by record, in their order; with `words` for all of its words, wherever they stand."""

    def __init__(self, text: str, *, around: int = AROUND, words: bool = False) -> None:
        """`around`: characters to show on either side.

        Raises:
            UsageError: the text is empty, and stands everywhere.
        """
        wanted = text.casefold().split()
        if not wanted:
            raise UsageError("there is nothing to search for; give a text")
        self._wanted, self._around = wanted if words else [" ".join(wanted)], around
        self._found: set[str] = set()
        """Ids of messages that were found as they were accepted."""
        self._given: dict[type[Event], str] = {}
        """The newest answers that were found as they were given: the model's, and a command's."""

    def see(self, record: Record) -> Hit | None:
        """What the record has of it; None if it has nothing, or nothing new."""
        event: Any = record.event
        message_id = event.message.id if isinstance(event, InboxPut | UserMessage) else None
        if message_id in self._found or (isinstance(event, OutboxPut) and _whole(event) in self._given.values()):
            return None
        context = next(filter(None, map(self.around, texts_of(event))), None)
        if context is None:
            return None
        if message_id is not None:
            self._found.add(message_id)
        elif isinstance(event, AssistantMessage | CommandResult):
            self._given[type(event)] = _whole(event)
        return Hit(record.seq, record.time, record.type, context)

    def around(self, text: str) -> str | None:
        """The place in a text where it stands, with its surroundings on one line; None if it does not."""
        flat = " ".join(text.split())
        folded = flat.casefold()
        if not all(wanted in folded for wanted in self._wanted):
            return None
        at = min(folded.find(self._wanted[0]), len(flat))  # a letter may be longer folded than it is written
        start, end = max(0, at - self._around), at + len(self._wanted[0]) + self._around
        return f"{'…' if start else ''}{flat[start:end]}{'…' if end < len(flat) else ''}"


def _whole(event: AssistantMessage | CommandResult | OutboxPut) -> str:
    """What was answered, all of it."""
    match event:
        case CommandResult(text=text):
            return text
        case AssistantMessage(message=message):
            return message.text
        case OutboxPut(content=content):
            return "".join(block.text for block in content if isinstance(block, TextBlock))


def texts_of(event: Event | Any) -> Iterator[str]:
    """Every text in a record that somebody wrote or read; chunks have none of their own."""
    match event:
        case (
            InboxPut(message=message)
            | UserMessage(message=message)
            | AssistantMessage(message=message)
            | TimerSet(message=message)
        ):
            yield from _message(message)
        case SurfaceReplace(message=Message() as message):
            yield from _message(message)
        case ToolCalled(name=name, arguments=arguments, effective=effective):
            yield f"{name} {effective or arguments}"
        case ToolResult(content=content) | OutboxPut(content=content):
            yield from _blocks(content)
        case CommandRun(name=name, args=args):
            yield f"{name} {args}"
        case CommandResult(text=text):
            yield text
        case ApprovalAsked(question=question):
            yield question
        case ApprovalAnswered(text=str() as text):
            yield text
        case Note(kind=kind, data=data):
            yield f"{kind} {msgspec.json.encode(data).decode()}"
        case _:
            return


def _message(message: Message) -> Iterator[str]:
    yield from _blocks(message.content)


def _blocks(blocks: Iterable[Block]) -> Iterator[str]:
    for block in blocks:
        match block:
            case TextBlock(text=text) | ReasoningBlock(text=text):
                yield text
            case ToolCallBlock(name=name, arguments=arguments):
                yield f"{name} {arguments}"
            case ToolResultBlock(content=content):
                yield from _blocks(content)
            case _:
                pass


SEARCHED = frozenset(
    str(event.__struct_config__.tag)
    for event in (
        InboxPut,
        UserMessage,
        AssistantMessage,
        TimerSet,
        SurfaceReplace,
        ToolCalled,
        ToolResult,
        OutboxPut,
        CommandRun,
        CommandResult,
        ApprovalAsked,
        ApprovalAnswered,
        Note,
    )
)
"""The types of records that hold texts."""
