"""The chunk assembler: a stream of chunks in, the blocks of one answer out. Pure; no I/O, no clock.

A strict grammar is the adapter's contract, tolerance is this module's: whatever the order of the chunks, `feed` never
raises, and what the reader has seen as a delta is in the blocks. The rules:

* A block is known by its index and kind, so that an adapter that counts calls apart from text loses nothing. Blocks stand
  in the order in which they were first seen.
* A delta without a start opens its block. A second start is ignored.
* The first close wins: what comes after it for that block is ignored. After a finish only usage is taken.
* No finish means `stop`. The last finish and the last usage count.
* Every call leaves with an id of its own, and an id is never used twice in one answer (the runtime answers calls by id).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from ...storage.messages import (
    Block,
    BlockEnd,
    BlockStart,
    Chunk,
    Failure,
    File,
    Finish,
    FinishChunk,
    Image,
    Meta,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    Usage,
    UsageChunk,
)

NO_DISPATCH: frozenset[Finish] = frozenset({"max-tokens", "refusal", "content-filter"})
"""Finishes after which no call is dispatched: the model was stopped, so that even a call that looks whole may not be."""
DECLINED: Mapping[Finish, str] = {"refusal": "REFUSAL", "content-filter": "CONTENT_FILTER"}
"""Finishes that decline to answer, with the code of the failure that they are where nobody reads the model's words."""

Kind = Literal["text", "reasoning", "tool-call"]


class Assembled(Struct, frozen=True, gc=False):
    """What a stream came to. `failure` is there exactly if the finish is `error` or `aborted`."""

    blocks: tuple[Block, ...] = ()
    finish: Finish = "stop"
    usage: Usage | None = None
    failure: Failure | None = None

    @property
    def content(self) -> tuple[Block, ...]:
        """What the assistant message holds: the blocks, less the calls where the finish forbids their dispatch."""
        return without_calls(self.blocks) if self.finish in NO_DISPATCH else self.blocks

    @property
    def calls(self) -> tuple[ToolCallBlock, ...]:
        """The calls to dispatch, in the model's order: blocks decide, not the finish word."""
        return tuple(b for b in self.content if type(b) is ToolCallBlock)


class Assembler:
    """Builds one answer out of the chunks of one attempt; ask for `result` or `cut` at any time."""

    __slots__ = ("_finish", "_order", "_parts", "_texts", "usage")

    def __init__(self) -> None:
        self.usage: Usage | None = None
        """The last usage that the provider told."""
        self._finish: FinishChunk | None = None
        self._order: list[_Part | Image | File] = []
        self._texts: dict[int, _Part] = {}
        self._parts: dict[Kind, dict[int, _Part]] = {"text": self._texts, "reasoning": {}, "tool-call": {}}

    def __repr__(self) -> str:
        state = self._finish.reason if self._finish else "open"
        return f"<Assembler {len(self._order)} blocks, {state}>"

    def feed(self, *chunks: Chunk) -> None:
        """Take the next chunk, or the next ones."""
        texts = self._texts
        for chunk in chunks:
            # Most chunks are text: theirs is the short way.
            if type(chunk) is TextDelta and self._finish is None:
                part = texts.get(chunk.index) or self._open("text", chunk.index)
                if not part.closed:
                    part.pieces.append(chunk.text)
            else:
                self._feed_rarer(chunk)

    def _feed_rarer(self, chunk: Chunk) -> None:
        match chunk:
            case UsageChunk():
                self.usage = chunk.usage
            case FinishChunk():
                self._finish = chunk
            case _ if self._finish is not None:
                pass  # too late to be part of the answer
            case ToolCallDelta():
                self._part("tool-call", chunk.index).call(chunk.id, chunk.name, chunk.arguments)
            case ReasoningDelta():
                self._part("reasoning", chunk.index).reason(chunk.text, chunk.signature)
            case BlockStart():
                self._start(chunk.index, chunk.block)
            case BlockEnd():
                for parts in self._parts.values():
                    if part := parts.get(chunk.index):
                        part.close(chunk.meta)
            case _:
                pass  # no chunk at all: `sound` refuses those before they get here

    def _start(self, index: int, block: Block) -> None:
        match block:
            case TextBlock() if index not in self._texts:
                self._part("text", index).begin(block.text, block.meta)
            case ReasoningBlock() if index not in self._parts["reasoning"]:
                part = self._part("reasoning", index)
                part.begin(block.text, block.meta)
                part.signature = block.signature
            case ToolCallBlock() if index not in self._parts["tool-call"]:
                part = self._part("tool-call", index)
                part.begin("", block.meta)
                part.call(block.id, block.name, block.arguments)
            case Image() | File():
                self._order.append(block)
            case _:
                pass  # a second start; or a tool result, which no model can make

    def _part(self, kind: Kind, index: int) -> _Part:
        return self._parts[kind].get(index) or self._open(kind, index)

    def _open(self, kind: Kind, index: int) -> _Part:
        part = _Part(kind, index)
        self._parts[kind][index] = part
        self._order.append(part)
        return part

    def result(self) -> Assembled:
        """The answer, taken as whole: what is still open counts as closed, no finish as `stop`."""
        finish = self._finish.reason if self._finish else "stop"
        blocks = (block for part in self._order if (block := _whole(part)) is not None)
        return Assembled(tuple(_with_own_ids(blocks, self._indexes())), finish, self.usage, self._failure())

    def cut(self) -> tuple[Block, ...]:
        """The visible prefix of a stream that was cut: text and reasoning that show something; calls, half or whole, not."""
        return tuple(b for part in self._order if (b := _whole(part)) is not None and _shows(b))

    def _indexes(self) -> Iterator[int]:
        return (part.index for part in self._order if isinstance(part, _Part) and part.kind == "tool-call")

    def _failure(self) -> Failure | None:
        chunk = self._finish
        if chunk is None or chunk.reason not in ("error", "aborted"):
            return None
        if chunk.failure is not None:
            return chunk.failure
        if chunk.reason == "aborted":
            return Failure("ABORTED", "the provider aborted the stream and did not say why")
        return Failure("UNKNOWN", "the stream ended with an error that its adapter did not name")


class _Part:
    """One block while it is being built. Pieces are joined once, at the end: an answer may have thousands."""

    __slots__ = ("closed", "id", "index", "kind", "meta", "name", "pieces", "signature")

    def __init__(self, kind: Kind, index: int) -> None:
        self.kind, self.index = kind, index
        self.pieces: list[str] = []
        self.id = self.name = ""
        self.signature: str | None = None
        self.meta: Meta | None = None
        self.closed = False

    def begin(self, text: str, meta: Meta | None) -> None:
        if not self.closed:
            self.pieces.append(text)
            self.meta = meta

    def reason(self, text: str, signature: str | None) -> None:
        if not self.closed:
            self.pieces.append(text)
            self.signature = signature or self.signature

    def call(self, id: str | None, name: str | None, arguments: str) -> None:
        if not self.closed:
            self.pieces.append(arguments)
            self.id, self.name = id or self.id, name or self.name

    def close(self, meta: Meta | None) -> None:
        if not self.closed:
            self.closed = True
            self.meta = {**(self.meta or {}), **meta} if meta else self.meta

    def block(self) -> TextBlock | ReasoningBlock | ToolCallBlock:
        text = "".join(self.pieces)
        if self.kind == "text":
            return TextBlock(text, self.meta)
        if self.kind == "reasoning":
            return ReasoningBlock(text, self.signature, self.meta)
        return ToolCallBlock(self.id, self.name, text, self.meta)


def _whole(part: _Part | Image | File) -> Block | None:
    """The part as a block; None for one that holds nothing (providers refuse empty blocks in a history)."""
    if not isinstance(part, _Part):
        return part
    block = part.block()
    match block:
        case TextBlock(text="", meta=None) | ReasoningBlock(text="", signature=None, meta=None):
            return None
        case _:
            return block


def _shows(block: Block) -> bool:
    """Whether a reader of the cut stream saw this block."""
    match block:
        case TextBlock() | ReasoningBlock():
            return bool(block.text.strip())
        case Image() | File():
            return True
        case _:
            return False


def _with_own_ids(blocks: Iterable[Block], indexes: Iterator[int]) -> Iterator[Block]:
    """Give calls without an id, and later ones with an id already used, one of their own: `call_<index>`, `<id>~2`."""
    blocks = tuple(blocks)
    # Ids that the model gave are reserved first, so that a made-up one never takes the id of a later call.
    given = {b.id for b in blocks if type(b) is ToolCallBlock and b.id}
    used: set[str] = set()
    for block in blocks:
        if type(block) is not ToolCallBlock:
            yield block
            continue
        index = next(indexes)
        own = block.id if block.id and block.id not in used else _fresh(block.id or f"call_{index}", given | used)
        used.add(own)
        yield block if own == block.id else msgspec.structs.replace(block, id=own)


def _fresh(id: str, taken: set[str]) -> str:
    number, fresh = 1, id
    while fresh in taken:
        number += 1
        fresh = f"{id}~{number}"
    return fresh


def without_calls(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """The blocks less the calls, for an answer whose calls must not be dispatched."""
    return tuple(b for b in blocks if type(b) is not ToolCallBlock)
