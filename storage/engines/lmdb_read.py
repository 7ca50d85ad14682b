"""Reading one log: positions from the index and the overlay, frames from the journal, a page at a time.

A page is read in one transaction and copied; between two pages nothing is held, so the log may grow, the map may move and the
agent may go. Chunks lie in a table of their own and are fetched only for those who ask for them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator
from typing import TYPE_CHECKING, Final

import trio

from ..codec import StoredFrame, chunk_record, decode_frame, places, record_of, type_of_raw, unpack_runs
from ..errors import AgentDeleted, AgentNotFound, StoreFormat
from ..records import Record
from ..runs import ChunkRun
from .lmdb_layout import Row, decode_places, key, pair, pairs

if TYPE_CHECKING:
    from .lmdb_env import Folder, Transaction

PAGE: Final = 256
"""Records, or frames without any that are wanted, after which a page ends; it ends with a frame."""
CHUNK: Final = "assistant/chunk"


class LmdbReader:
    """Records of one agent, in order. `folder` is called at each page, so that a closed store says so."""

    def __init__(
        self, folder: Callable[[], Folder], agent: str, after: int, upto: int | None, types: Container[str] | None
    ) -> None:
        self._folder, self._agent, self._upto, self._types = folder, agent, upto, types
        self._chunks = types is None or CHUNK in types
        self._after, self._log, self._looked = max(after, -1), 0, 0
        self._page: Iterable[Record] = iter(())
        self._closed = False

    def __aiter__(self) -> LmdbReader:
        return self

    async def __anext__(self) -> Record:
        while True:
            for record in self._page:
                return record
            await trio.lowlevel.checkpoint()
            if self._closed:
                raise StopAsyncIteration
            start = self._after
            self._page = iter(self._next_page())
            if self._after == start:
                raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop reading."""
        await trio.lowlevel.checkpoint()
        self._page, self._closed = iter(()), True

    def _next_page(self) -> list[Record]:
        folder = self._folder()
        found: list[Record] = []
        self._looked = 0
        with folder.view() as txn:
            row = self._row(folder, txn)
            start, end = 0, row.last if self._upto is None else min(self._upto, row.last)
            for log, upto in (*row.below, (row.log, row.last)):
                if start <= end and self._after < min(upto, end) and not self._full(found):
                    self._read_part(folder, txn, row, log, min(upto, end), found)
                start = upto + 1
        return found

    def _full(self, found: list[Record]) -> bool:
        return len(found) >= PAGE or self._looked >= PAGE

    def _row(self, folder: Folder, txn: Transaction) -> Row:
        row = folder.overlay.row(txn, self._agent)
        if self._log == 0:
            if row is None:
                raise AgentNotFound(f"there is no agent {self._agent!r} in {folder.path}", agent=self._agent)
            self._log = row.log
        if row is None or row.log != self._log:
            raise AgentDeleted(f"{self._agent!r} was deleted while its log was read", agent=self._agent)
        return row

    def _read_part(self, folder: Folder, txn: Transaction, row: Row, log: int, upto: int, found: list[Record]) -> None:
        """The frames of one log number up to `upto`, until the page is full."""
        journal = folder.tables["journal"]
        for position, first in positions(folder, txn, row, log, self._after + 1):
            if first > upto or self._full(found):
                return
            data = txn.get(key(position), db=journal)
            if data is None:
                raise StoreFormat(f"frame {position} of {self._agent!r} is missing from {folder.path}", agent=self._agent)
            folder.counters["frames_read"] += 1
            self._looked += 1
            frame = decode_frame(data)
            stop = min(frame.last, upto)
            if stop > self._after:
                runs = self._runs(folder, txn, position, frame)
                found += self._records(frame, runs, stop)
                self._after = stop

    def _runs(self, folder: Folder, txn: Transaction, position: int, frame: StoredFrame) -> dict[int, ChunkRun]:
        if not (self._chunks and frame.runs):
            return {}
        data = txn.get(key(position), db=folder.tables["chunks"])
        if data is None:
            raise StoreFormat(f"the chunks of frame {position} of {self._agent!r} are missing", agent=self._agent)
        folder.counters["chunk_rows_read"] += 1
        return {run.first: run for run in unpack_runs(data)}

    def _records(self, frame: StoredFrame, runs: dict[int, ChunkRun], stop: int) -> Iterator[Record]:
        after, types = self._after, self._types
        for seq, time, event, count in places(frame):
            if seq > stop:
                return
            if event is None:
                if seq in runs:
                    for at in range(max(seq, after + 1), min(seq + count - 1, stop) + 1):
                        yield chunk_record(runs[seq], at)
            elif seq > after and (types is None or type_of_raw(event) in types):
                yield record_of(seq, time, event)


def positions(folder: Folder, txn: Transaction, row: Row, log: int, seq: int) -> Iterator[tuple[int, int]]:
    """(position, first seq) of a log's frames, from the one that holds `seq` on. `row` is the head of the reading agent.

    While a commit is being settled, index and memory may know the same ones: those come twice, and the reader is past them.
    """
    yield from _indexed(folder, txn, log, seq)
    if log != row.log:
        name = folder.owner_of(txn, log)
        owner = folder.overlay.row(txn, name) if name is not None else None
        if owner is None or owner.log != log:
            return  # deleted: the index has all that is left
        row = owner
    waiting = row.unindexed()
    at = max(bisect_right(waiting[1::2], seq) - 1, 0)
    yield from pairs(waiting[2 * at :])


def _indexed(folder: Folder, txn: Transaction, log: int, seq: int) -> Iterator[tuple[int, int]]:
    cursor = txn.cursor(db=folder.tables["index"])
    prefix = key(log)
    # The block that holds `seq` begins at or before it.
    found = cursor.prev() if cursor.set_range(pair(log, seq + 1)) else cursor.last()
    if not found or not cursor.key().startswith(prefix):
        found = cursor.set_range(prefix)
    while found and cursor.key().startswith(prefix):
        block = decode_places(cursor.value())
        at = max(bisect_right(block[1::2], seq) - 1, 0)
        yield from pairs(block[2 * at :])
        found = cursor.next()
