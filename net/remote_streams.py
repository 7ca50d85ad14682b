"""Streams of a remote agent: follow, deltas, read; and listings. Plain iterators, as the local ones; streams resume by seq.

A stream holds the seq up to which it has given records out, and nothing else that matters. When its connection breaks, it opens
another behind that seq on the next one, so nothing comes twice and nothing is missed. It takes a page at a time and acknowledges
it when the next is wanted: a reader that stops costs a window of pages here, and one page and a place in the log at the service.
None is a generator: one that is left half-way would be closed whenever the collector finds it, with a warning.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Generic, TypeVar

from ..actors.streams import DELTA_TYPES, DeltaFold
from ..actors.values import Delta
from ..storage.errors import CallboardError
from ..storage.records import Record, from_json
from .link import Feed, Link
from .wire import methods as m

WINDOW = 4
T = TypeVar("T")


class RemoteFollow:
    """Records after `after` in order, now and as they are committed; None: from now on. It ends only with its agent."""

    def __init__(self, link: Link, agent: str, *, after: int | None, types: Collection[str] | None) -> None:
        self._link, self._agent = link, agent
        self._types = None if types is None else [types] if isinstance(types, str) else sorted(types)
        self._after = after
        self._feed: Feed | None = None
        self._page: Sequence[Record] = ()
        self._next = 0
        self._head = -1

    @property
    def seq(self) -> int:
        """The seq up to which the log has been seen: follow `after` this to go on. -1 for "from now on" before the first step."""
        if self._next < len(self._page):
            return self._page[self._next].seq - 1
        return -1 if self._after is None else self._after

    @property
    def caught_up(self) -> bool:
        """Whether there was nothing more when the service last said something."""
        return self._after is not None and self.seq >= self._head >= 0

    def __aiter__(self) -> RemoteFollow:
        return self

    async def __anext__(self) -> Record:
        while self._next >= len(self._page):
            await self._turn_page()
        record = self._page[self._next]
        self._next += 1
        return record

    async def _turn_page(self) -> None:
        feed = self._feed
        if feed is None or (feed.lost and not feed.pages):
            params = m.Follow(agent=self._agent, stream=0, after=self._after, types=self._types, window=WINDOW)
            self._feed, self._after = await self._link.follow(params)
            return
        try:
            page = await feed.next()
        except CallboardError:
            self._feed = None  # whoever asks again opens it again
            raise
        if page is not None:
            after = -1 if self._after is None else self._after
            self._page = [record for record in map(from_json, page.records) if record.seq > after]
            self._next, self._after, self._head = 0, page.upto, page.head


class RemoteDeltas:
    """What a remote agent shows while it works, after seq `after`; None: from now on. See `Delta` for the kinds."""

    def __init__(self, link: Link, agent: str, *, after: int | None) -> None:
        self._records = RemoteFollow(link, agent, after=after, types=DELTA_TYPES)
        self._fold = DeltaFold()

    @property
    def seq(self) -> int:
        """The seq up to which the log has been seen."""
        return self._records.seq

    def __aiter__(self) -> RemoteDeltas:
        return self

    async def __anext__(self) -> Delta:
        while True:
            delta = self._fold.feed(await self._records.__anext__())
            if delta is not None:
                return delta


class RemoteReader:
    """Records of a remote agent up to a seq, or to the end; page by page, nothing held between two."""

    def __init__(self, link: Link, agent: str, *, after: int, upto: int | None, types: Collection[str] | None) -> None:
        self._link, self._agent, self._after, self._upto = link, agent, after, upto
        self._types = None if types is None else sorted(types)
        self._page: Sequence[Record] = ()
        self._next = 0
        self._more = True

    def __aiter__(self) -> RemoteReader:
        return self

    async def __anext__(self) -> Record:
        while self._next >= len(self._page):
            if not self._more:
                raise StopAsyncIteration
            params = m.Read(agent=self._agent, after=self._after, upto=self._upto, types=self._types)
            page: m.RecordsPage = await self._link.call("read", params)
            self._page, self._next = [from_json(bytes(record)) for record in page.records], 0
            self._after, self._more = page.upto, page.more
        record = self._page[self._next]
        self._next += 1
        return record

    async def aclose(self) -> None:
        """Nothing is held; here because readers of stores have it."""
        self._page, self._next, self._more = (), 0, False


class RemoteListing(Generic[T]):
    """What is on the pages that `turn` gets: it is called with the place behind which the page begins, None at first, and gives
    with the page that of the next one, None if it was the last."""

    def __init__(self, turn: Callable[[str | None], Awaitable[tuple[Sequence[T], str | None]]]) -> None:
        self._turn = turn
        self._found: deque[T] = deque()
        self._after: str | None = None
        self._over = False

    def __aiter__(self) -> RemoteListing[T]:
        return self

    async def __anext__(self) -> T:
        while not self._found:
            if self._over:
                raise StopAsyncIteration
            page, self._after = await self._turn(self._after)
            self._over = self._after is None
            self._found.extend(page)
        return self._found.popleft()
