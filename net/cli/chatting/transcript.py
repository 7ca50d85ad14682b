"""From records to what a person sees of a conversation: pieces of text, each with a style. Pure.

Text of the model streams as it comes. All else begins on a row of its own. What the person here typed is not shown twice; what
others sent is. An attempt that broke off cannot be taken back from a terminal, so it is said that another follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ....actors.values import explain
from ....storage import events as e
from ....storage.messages import (
    BlockStart,
    Message,
    PluginSource,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    UserSource,
)
from ....storage.records import Record
from ..lines import shorten

Kind = Literal["text", "reasoning", "break", "tool", "result", "discard", "command", "message", "question", "note", "end"]
SEEN = frozenset(
    {
        "turn/start",
        "turn/resume",
        "turn/end",
        "user/message",
        "request/sent",
        "request/failed",
        "assistant/chunk",
        "assistant/message",
        "tool/call",
        "tool/result",
        "command/result",
        "approval/asked",
        "approval/answered",
        "child/spawned",
        "child/ended",
        "surface/replace",
    }
)
"""The types of records that say anything here."""


class Piece(NamedTuple):
    """Something to show. `streams`: it goes on where the last piece of its kind ended, else it has a row of its own."""

    kind: Kind
    text: str
    streams: bool = False
    failed: bool = False


class Transcript:
    """Records in, pieces out."""

    def __init__(self) -> None:
        self.sent: set[str] = set()
        """Ids of messages that this terminal sent, and has shown."""
        self.turn: int | None = None
        """The open turn."""
        self.began = 0
        """When it began, Unix ms."""
        self.tokens = 0
        """Used by turns that ended since this began to read."""
        self.questions: dict[str, str] = {}
        """Questions that wait for a person."""
        self._streamed = False
        self._puts: set[str] = set()

    def feed(self, record: Record) -> Iterator[Piece]:
        """What this record shows."""
        event: Any = record.event
        match event:
            case e.AssistantChunk(chunk=chunk):
                yield from self._chunk(chunk)
            case e.TurnStart(turn=turn):
                self.turn, self.began = turn, record.time
            case e.TurnResume():
                yield Piece("note", "This turn was interrupted, and goes on.")
            case e.RequestSent():
                self._streamed = False
            case e.RequestFailed():
                yield from self._failed(event)
            case e.AssistantMessage(message=message):
                whole = "" if self._streamed or event.interrupted else message.text
                yield Piece("text", whole) if whole else Piece("break", "")
            case e.TurnEnd():
                yield from self._end(event)
            case e.UserMessage(message=message):
                yield from self._message(message)
            case _:
                yield from self._beside(event)

    def _chunk(self, chunk: Any) -> Iterator[Piece]:
        match chunk:
            case TextDelta(text=text) | BlockStart(block=TextBlock(text=text)) if text:
                self._streamed = True
                yield Piece("text", text, streams=True)
            case ReasoningDelta(text=text) | BlockStart(block=ReasoningBlock(text=text)) if text:
                yield Piece("reasoning", text, streams=True)
            case _:
                pass

    def _failed(self, event: e.RequestFailed) -> Iterator[Piece]:
        if event.action != "retry":
            return
        again = "another try follows" if not event.delay_s else f"another try follows in {event.delay_s:.1f} s"
        yield Piece("discard", f"The answer broke off ({event.failure.code}); {again}.", failed=True)

    def _message(self, message: Message) -> Iterator[Piece]:
        if message.id in self.sent:
            self.sent.discard(message.id)
        elif isinstance(message.source, UserSource) or not isinstance(message.source, PluginSource):
            yield Piece("message", message.text)

    def _end(self, event: e.TurnEnd) -> Iterator[Piece]:
        self.turn = None
        self.tokens += event.usage.total
        match event.reason:
            case e.Completed():
                yield Piece("end", "")
            case e.Aborted(cause=cause) if cause.kind == "user":
                yield Piece("end", "Stopped.", failed=True)
            case reason:
                yield Piece("end", f"The turn {explain(reason)}.", failed=True)

    def _beside(self, event: Any) -> Iterator[Piece]:
        match event:
            case e.ToolCalled():
                yield Piece("tool", f"{event.name}({shorten(event.effective or event.arguments, 72)})")
            case e.ToolResult():
                text = Message("", "tool", event.content).text
                yield Piece("result", shorten(f"{event.error}: {text}" if event.error else text, 72), failed=bool(event.error))
            case e.CommandResult(id=id, text=text):
                self.sent.discard(id)
                yield Piece("command", text, failed=event.error is not None)
            case e.ApprovalAsked(id=id, question=question):
                self.questions[id] = question
                yield Piece("question", f"{question} (/allow, or /deny)")
            case e.ApprovalAnswered(id=id, verdict=verdict):
                self.questions.pop(id, None)
                yield Piece("note", f"Answered: {verdict}.")
            case e.ChildSpawned(name=name):
                yield Piece("note", f"{name} begins.")
            case e.ChildEnded(reason=reason):
                yield Piece("note", f"A child {explain(reason)}.")
            case e.SurfaceReplace(message=message) if message is not None:
                yield Piece("note", "A summary stands for what was said before.")
            case _:
                pass


def spoken(messages: Any, most: int) -> Iterator[Piece]:
    """The newest texts of a conversation, for whoever comes back to it."""
    said = [message for message in messages if message.text.strip() and _spoken(message)]
    for message in said[len(said) - most :] if most else ():
        yield Piece("message" if message.role == "user" else "text", message.text)


def _spoken(message: Message) -> bool:
    return message.role == "assistant" or (message.role == "user" and isinstance(message.source, UserSource))
