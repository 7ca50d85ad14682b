"""The strict grammar of a model's stream: what an adapter promises, chunk by chunk. Pure.

The assembler is tolerant, because a turn must not fail over a block that was closed twice. An adapter has no such excuse: what it
gets wrong here is a text that appears twice, or a call without a name, at somebody's desk a month later. Each broken rule is one
sentence that says what came and what was due.
"""

from __future__ import annotations

from ...storage.errors import ModelError
from ...storage.messages import (
    Block,
    BlockEnd,
    BlockStart,
    Chunk,
    FinishChunk,
    ReasoningBlock,
    ReasoningDelta,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    UsageChunk,
)
from ..models.soundness import sound

Delta = TextDelta | ReasoningDelta | ToolCallDelta
_OF: dict[type[Delta], type[Block]] = {TextDelta: TextBlock, ReasoningDelta: ReasoningBlock, ToolCallDelta: ToolCallBlock}


class Grammar:
    """Feed it every chunk, then `end` it; `broken` holds a sentence for each rule that did not hold."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.text = ""
        """The visible text so far."""
        self._open: dict[int, Block] = {}
        self._known: set[int] = set()
        self._names: dict[int, tuple[bool, bool]] = {}
        self._usage = False
        self._finish: FinishChunk | None = None

    def feed(self, chunk: Chunk) -> None:
        """One more chunk."""
        try:
            sound(chunk)
        except ModelError as error:
            self.broken.append(str(error))
            return
        if self._finish is not None:
            self.broken.append(f"finish is the last chunk, and {_shown(chunk)} came after it")
        match chunk:
            case BlockStart():
                self._start(chunk)
            case BlockEnd(index=index):
                self._end(index)
            case UsageChunk(usage=usage):
                self._usage = True
                if min(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning) < 0:
                    self.broken.append(f"usage counts tokens and is never negative: {usage}")
            case FinishChunk():
                self._finished(chunk)
            case _:
                self._delta(chunk)

    def end(self) -> list[str]:
        """The stream is over: what was due and never came; all broken rules."""
        if self._finish is None:
            self.broken.append("the stream ended without finish: yield one, as the last chunk")
        if not self._usage:
            self.broken.append("the stream told no usage: yield it before finish, so that budgets can count")
        return self.broken

    def _start(self, chunk: BlockStart) -> None:
        index, block = chunk.index, chunk.block
        if index in self._known:
            self.broken.append(f"block {index} starts a second time; each block has an index of its own")
        if _content(block):
            self.broken.append(f"block {index} starts with content in it; start its empty shape and send the rest as deltas")
        self._known.add(index)
        self._open[index] = block
        if isinstance(block, ToolCallBlock):
            self._names[index] = bool(block.id), bool(block.name)

    def _delta(self, chunk: Delta) -> None:
        block = self._open.get(chunk.index)
        if block is None:
            state = "has ended" if chunk.index in self._known else "has not started"
            self.broken.append(f"{_shown(chunk)} is for block {chunk.index}, which {state}")
            return
        if not isinstance(block, _OF[type(chunk)]):
            self.broken.append(f"{_shown(chunk)} does not fit block {chunk.index}, which is {_shown(block)}")
        if isinstance(chunk, TextDelta):
            self.text += chunk.text
        if isinstance(chunk, ToolCallDelta):
            id, name = self._names.get(chunk.index, (False, False))
            self._names[chunk.index] = id or bool(chunk.id), name or bool(chunk.name)

    def _end(self, index: int) -> None:
        block = self._open.pop(index, None)
        if block is None:
            state = "ends a second time" if index in self._known else "ends and has not started"
            self.broken.append(f"block {index} {state}")
        if isinstance(block, ToolCallBlock) and not all(self._names[index]):
            self.broken.append(f"the call in block {index} has no id or no name: they come with its start or a delta")

    def _finished(self, chunk: FinishChunk) -> None:
        self._finish = chunk
        if self._open:
            self.broken.append(f"finish comes while block {min(self._open)} is open: end every block first")
        if (chunk.reason in ("error", "aborted")) != (chunk.failure is not None):
            has = "has no" if chunk.failure is None else "brings a"
            self.broken.append(f"finish {chunk.reason!r} {has} failure; error and aborted bring one, and nothing else")


def _content(block: Block) -> str:
    if isinstance(block, TextBlock | ReasoningBlock):
        return block.text
    return block.arguments if isinstance(block, ToolCallBlock) else ""


def _shown(value: Chunk | Block) -> str:
    tag = value.__struct_config__.tag
    return f"a {tag}" if isinstance(tag, str) else type(value).__name__
