"""A run of chunks: consecutive `assistant/chunk` records of one step, kept as columns.

Chunks are most of a log. As records of their own, 24 of them cost more than all the rest of a turn; as columns they cost
two list appends each, and a packed run is a sixth of the bytes. Only a reader sees records again.
"""

from __future__ import annotations

from collections.abc import Iterator

from .events import AssistantChunk
from .messages import Chunk
from .records import Record


class ChunkRun:
    """Chunks with consecutive seqs from `first` on; `times` in Unix ms, one for each chunk."""

    __slots__ = ("chunks", "first", "step", "times", "turn")

    def __init__(self, turn: int, step: int, first: int) -> None:
        self.turn, self.step, self.first = turn, step, first
        self.times: list[int] = []
        self.chunks: list[Chunk] = []

    def __len__(self) -> int:
        return len(self.chunks)

    @property
    def last(self) -> int:
        """The seq of the last chunk."""
        return self.first + len(self.chunks) - 1

    def records(self) -> Iterator[Record]:
        """The chunks as the records they stand for."""
        for i, (time, chunk) in enumerate(zip(self.times, self.chunks, strict=True)):
            yield Record(self.first + i, time, AssistantChunk(turn=self.turn, step=self.step, chunk=chunk))
