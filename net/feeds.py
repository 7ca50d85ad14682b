"""Pages of records for those who follow: read once, encoded once, however many follow the same agent.

A thousand followers of one agent are mostly at the same seq. The first to ask for what comes after it reads and encodes the
page; those who ask meanwhile wait for that, and those who ask later find it here, as long as there is room. Nothing is kept for
a reader that is slow: it reads the log where it stands, one page at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import trio
from msgspec import Struct

from ..actors.ref import AgentRef, LogSource
from ..storage.records import to_json
from ..storage.store import Store

PAGE = 256
Types = frozenset[str] | None
_Key = tuple[str, int, int, Types]


class FeedPage(Struct, frozen=True):
    """Encoded records: a list of JSON objects without its brackets, up to which seq was looked, and how many there are."""

    records: str
    upto: int
    count: int


class Feeds:
    """The pages that followers of one service share."""

    def __init__(self, store: Store, *, page_bytes: int, cache_bytes: int = 8 * 2**20) -> None:
        self._store, self._page_bytes, self._room = store, page_bytes, cache_bytes
        self._pages: OrderedDict[_Key, FeedPage] = OrderedDict()
        self._reading: dict[_Key, trio.Event] = {}
        self._held = 0
        self.encoded = 0

    def statistics(self) -> Mapping[str, Any]:
        """Records encoded so far, and how much is kept."""
        return {"encoded": self.encoded, "pages": len(self._pages), "bytes": self._held}

    async def after(self, ref: AgentRef[Any], source: LogSource, seq: int, types: Types) -> FeedPage:
        """The page behind `seq`, as soon as there is one.

        Raises:
            CallboardError: there will be none: the agent was deleted, or the system closed.
        """
        await source.wait_beyond(seq)
        # The epoch keeps pages of a deleted agent from one that has its id now.
        key = (ref.id, source.epoch(), seq, types)
        while True:
            page = self._pages.get(key)
            if page is not None:
                self._pages.move_to_end(key)
                return page
            reading = self._reading.get(key)
            if reading is None:
                return await self._read(key, source.last())
            await reading.wait()

    async def _read(self, key: _Key, head: int) -> FeedPage:
        done = self._reading[key] = trio.Event()
        try:
            page = await self.page(key[0], key[2], head, key[3])
            self._keep(key, page)
            return page
        finally:
            del self._reading[key]
            done.set()

    async def page(self, agent: str, after: int, upto: int, types: Types) -> FeedPage:
        """A page straight from the log: at most 256 records, and not many more bytes than allowed."""
        texts: list[str] = []
        size = 0
        async for record in self._store.read(agent, after, upto, types):
            text = to_json(record).decode()
            texts.append(text)
            size += len(text)
            if size >= self._page_bytes or len(texts) == PAGE:
                upto = record.seq
                break
        self.encoded += len(texts)
        return FeedPage(",".join(texts), upto, len(texts))

    def _keep(self, key: _Key, page: FeedPage) -> None:
        self._pages[key] = page
        self._held += len(page.records)
        while self._held > self._room:
            self._held -= len(self._pages.popitem(last=False)[1].records)
