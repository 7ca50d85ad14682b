"""Follow and Deltas: an agent's committed records, as they come, from any seq on.

Both are plain async iterators and not generators: they hold nothing open between two steps (no scope, no transaction, no queue),
so a reader may break off, be cancelled, or simply forget them, and resume by seq in another process. There is no buffer behind
a slow reader either; it reads the log where it stands, one page at a time. Only committed records are seen: a seq that was shown
and then lost in a crash would be given out twice.

`Deltas` is what a chat shows: the same stream, folded by `DeltaFold` into text, tools and ends.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ..storage.errors import UsageError
from ..storage.events import (
    EVENTS,
    AssistantChunk,
    CommandResult,
    InboxClaim,
    RequestFailed,
    RequestSent,
    StepStart,
    ToolCalled,
    TurnEnd,
    TurnStart,
)
from ..storage.messages import BlockStart, Chunk, ReasoningBlock, ReasoningDelta, TextBlock, TextDelta
from ..storage.records import Record
from .checks import closest
from .values import Delta, DeltaKind


class Source(Protocol):
    """Where followers read: the committed part of one agent's log."""

    def last(self) -> int:
        """The seq of the last committed record, -1 if there is none."""
        ...

    async def read_page(self, after: int, types: Collection[str] | None) -> tuple[Sequence[Record], int]:
        """Some committed records with seq > `after`, of these types only, and the last seq that was looked at (`after`, if
        nothing is there yet). It is a checkpoint, so that a reader of a long log lets others run."""
        ...

    async def wait_beyond(self, seq: int) -> None:
        """Return when a record with a higher seq is committed.

        Raises:
            CallboardError: there will be none: the agent was deleted, or the system closed.
        """
        ...


class Follow:
    """Records after `after` in order, now and as they are committed; None: from now on. It ends only with its agent."""

    def __init__(self, source: Source, *, after: int | None = -1, types: Collection[str] | None = None) -> None:
        """Follow a source.

        Raises:
            UsageError: a type does not exist, or `types` is one text.
        """
        self._source = source
        self._types = None if types is None else _check_types(types)
        # `_at`: up to where pages were read. `_seen`: the last record handed out, if some of its page are still to come.
        self._at = self._seen = source.last() if after is None else after
        self._page: Sequence[Record] = ()
        self._next = 0

    @property
    def seq(self) -> int:
        """The seq up to which the log has been seen: follow `after` this to go on."""
        return self._at if self._next >= len(self._page) else self._seen

    def __aiter__(self) -> Follow:
        return self

    async def __anext__(self) -> Record:
        while self._next >= len(self._page):
            await self._turn_page()
        record = self._page[self._next]
        self._next, self._seen = self._next + 1, record.seq
        return record

    async def _turn_page(self) -> None:
        # Cancelled in either wait, nothing has moved: the next call asks for the same page again.
        page, upto = await self._source.read_page(self._at, self._types)
        if upto <= self._at:
            await self._source.wait_beyond(self._at)
            return
        self._page, self._next, self._at = page, 0, upto


def _check_types(types: Collection[str]) -> frozenset[str]:
    if isinstance(types, str):
        raise UsageError(f"types={types!r} is one text; give a list: types=[{types!r}]")
    for name in types:
        if name not in EVENTS:
            raise UsageError(f"there are no records of the type {name!r}{closest(name, EVENTS)}")
    return frozenset(types)


DELTA_TYPES = frozenset(
    {
        "turn/start",
        "inbox/claim",
        "step/start",
        "request/sent",
        "assistant/chunk",
        "request/failed",
        "tool/call",
        "command/result",
        "turn/end",
    }
)
"""The types of records that `DeltaFold` looks at."""


class DeltaFold:
    """Records in, deltas out: pure, one record makes one delta or none.

    A fold that begins in the middle of an attempt cannot know what was shown of it before; if that attempt fails, it says
    "discard" all the same, because the reader who resumes may have shown it.
    """

    def __init__(self) -> None:
        self._turn = self._step = 0
        self._claimed: tuple[str, ...] = ()
        self._shown = True

    def feed(self, record: Record) -> Delta | None:
        """What this record shows, if anything."""
        match record.event:
            case AssistantChunk(turn=turn, step=step, chunk=chunk):
                return self._chunk(record.seq, turn, step, chunk)
            case TurnStart(turn=turn):
                self._turn, self._step, self._claimed = turn, 0, ()
            case InboxClaim(turn=turn, ids=ids):
                self._turn, self._claimed = turn, ids
            case StepStart(turn=turn, step=step):
                self._turn, self._step = turn, step
            case RequestSent():
                self._shown = False
            case RequestFailed(turn=turn, step=step, action="retry"):
                shown, self._shown = self._shown, False
                return Delta(record.seq, turn, step, "discard") if shown else None
            case ToolCalled(turn=turn, step=step, name=name):
                return Delta(record.seq, turn, step, "tool", name)
            case CommandResult(id=id, text=text) if self._turn and not self._step and id in self._claimed:
                # The answer of a turn that is a command. One that a control command gave beside a turn is no part of it.
                return Delta(record.seq, self._turn, 0, "text", text)
            case TurnEnd(turn=turn, reason=reason):
                step = self._step if turn == self._turn else 0
                self._turn = self._step = 0
                return Delta(record.seq, turn, step, "end", reason=reason)
            case _:
                pass
        return None

    def _chunk(self, seq: int, turn: int, step: int, chunk: Chunk) -> Delta | None:
        kind, text = _visible(chunk)
        if kind is None or not text:
            return None
        self._turn, self._step, self._shown = turn, step, True
        return Delta(seq, turn, step, kind, text)


def _visible(chunk: Chunk) -> tuple[DeltaKind | None, str]:
    match chunk:
        case TextDelta(text=text) | BlockStart(block=TextBlock(text=text)):
            return "text", text
        case ReasoningDelta(text=text) | BlockStart(block=ReasoningBlock(text=text)):
            return "reasoning", text
        case _:
            return None, ""


class Deltas:
    """What an agent shows while it works, after seq `after`; None: from now on. See `Delta` for the kinds."""

    def __init__(self, source: Source, *, after: int | None = -1) -> None:
        self._records = Follow(source, after=after, types=DELTA_TYPES)
        self._fold = DeltaFold()

    @property
    def seq(self) -> int:
        """The seq up to which the log has been seen."""
        return self._records.seq

    def __aiter__(self) -> Deltas:
        return self

    async def __anext__(self) -> Delta:
        while True:
            delta = self._fold.feed(await self._records.__anext__())
            if delta is not None:
                return delta
