"""Pages of records for those who follow: read once, encoded once, however many follow the same agent.

A thousand followers of one agent are mostly at the same seq. One of them, the *leader*, waits for the log; when something is
committed it reads and encodes the page and hands it round. A follower whose socket takes the page at once is not even woken: to
wake a thousand tasks would take longer than to send. Whoever cannot be served so (its client reads slowly, its window is full,
its connection is encrypted) is woken, and finds the page here as long as there is room. Nothing is kept for a reader that is
slow: it reads the log where it stands, one page at a time.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import trio
from msgspec import Struct

from ..actors.ref import AgentRef
from ..actors.sources import LogSource
from ..storage.records import to_json
from ..storage.store import Store
from .websocket import AT_ONCE

PAGE = 256
FRAMES = 2
"""How many forms of one page are kept: streams of other numbers have another. Of a long page none is: it goes to those who catch
up, each at a place of its own, and would take the room of many."""
PAGE_COSTS, HEAD_COSTS = 1024, 256
"""What a kept page takes beside its records, and a frame beside its page, in bytes: small pages are mostly that."""
ROUND = 64
"""After so many followers others of the process may run: a long round must not hold up everybody else."""
Types = frozenset[str] | None
_Key = tuple[str, int, int, Types]


class FeedPage(Struct, frozen=True):
    """Encoded records: a list of JSON objects without its brackets, up to which seq was looked, and how many there are."""

    records: str
    upto: int
    count: int
    costs: int = 0
    """The most memory that it takes while it is kept, in bytes: with the frames that may be made of it."""
    short: bool = False
    """Whether those are kept."""
    frames: dict[tuple[int, int], bytes] = {}
    """What was made of it for the socket, by stream and head: followers mostly want the same. It is counted beforehand."""

    @property
    def keeps_frames(self) -> bool:
        """Whether frames that were made of it are kept, and there is room for another."""
        return self.short and len(self.frames) < FRAMES


class Place:
    """Where one follower stands, while it waits for what comes after `seq`."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.leads = False
        """Whether it was woken to lead."""
        self._woken = trio.Event()
        self._error: Exception | None = None

    def offer(self, page: FeedPage) -> bool:
        """Take a page that follows on `seq`, without waiting; False if that cannot be, and then nothing has happened."""
        return False

    async def wait(self) -> None:
        """Until somebody wakes it.

        Raises:
            Exception: what the leader's wait ended with.
        """
        self._woken, self.leads = trio.Event(), False
        await self._woken.wait()
        if self._error is not None:
            raise self._error

    def wake(self, *, leads: bool = False, error: Exception | None = None) -> None:
        """Let its task look for itself, or lead; with an error, there is nothing to look for any more."""
        self.leads, self._error = leads, error
        self._woken.set()


class _Hub:
    """Those who wait for the same agent's next records of the same types. As long as any waits, one leads or is woken to."""

    def __init__(self) -> None:
        self.led = False
        self._waiting: dict[Place, None] = {}

    @property
    def idle(self) -> bool:
        """Whether nobody leads or waits."""
        return not self.led and not self._waiting

    async def wait(self, place: Place) -> bool:
        """Until there is something to do; whether that is to lead."""
        self._waiting[place] = None
        try:
            await place.wait()
        except BaseException:
            if place.leads:  # chosen in the moment in which it was cancelled
                self.pass_on()
            raise
        finally:
            self._waiting.pop(place, None)
        return place.leads

    async def hand_round(self, seq: int, page: FeedPage) -> None:
        """Give the page to all who stand at `seq`; wake those who cannot take it so, and those for whom there is another."""
        for number, place in enumerate(list(self._waiting), 1):
            if place in self._waiting and place.seq < page.upto and not (place.seq == seq and place.offer(page)):
                self._wake(place)
            if number % ROUND == 0:
                await trio.lowlevel.checkpoint()

    def fail(self, error: Exception) -> None:
        """There will be nothing more."""
        for place in list(self._waiting):
            self._wake(place, error=error)

    def pass_on(self) -> None:
        """The leader has something else to do: another one leads, if any waits."""
        self.led = bool(self._waiting)
        for place in self._waiting:
            self._wake(place, leads=True)
            break

    def _wake(self, place: Place, *, leads: bool = False, error: Exception | None = None) -> None:
        del self._waiting[place]
        place.wake(leads=leads, error=error)


class Feeds:
    """The pages that followers of one service share."""

    def __init__(self, store: Store, *, page_bytes: int, cache_bytes: int = 8 * 2**20) -> None:
        self._store, self._page_bytes, self._room = store, page_bytes, cache_bytes
        self._pages: OrderedDict[_Key, FeedPage] = OrderedDict()
        self._reading: dict[_Key, trio.Event] = {}
        self._hubs: dict[tuple[str, Types], _Hub] = {}
        self._held = 0
        self.encoded = 0

    def statistics(self) -> Mapping[str, Any]:
        """Records encoded so far, and how much is kept, in bytes: the most that it may take."""
        return {"encoded": self.encoded, "pages": len(self._pages), "bytes": self._held}

    async def after(self, ref: AgentRef[Any], source: LogSource, place: Place, types: Types) -> FeedPage:
        """The page behind the place, as soon as there is one. What was taken by `offer` meanwhile is behind it already.

        Raises:
            CallboardError: there will be none: the agent was deleted, or the system closed.
        """
        leads = False
        while True:
            if not leads and source.last() > place.seq:
                await source.wait_beyond(place.seq)
                return await self._shared(ref.id, source, place.seq, types)
            key = (ref.id, types)
            hub = self._hubs.setdefault(key, _Hub())
            if leads or not hub.led:
                return await self._lead(key, hub, source, place.seq)
            try:
                leads = await hub.wait(place)
            finally:
                self._forget(key, hub)

    async def _lead(self, key: tuple[str, Types], hub: _Hub, source: LogSource, seq: int) -> FeedPage:
        hub.led = True
        try:
            await source.wait_beyond(seq)
            page = await self._shared(key[0], source, seq, key[1])
            await hub.hand_round(seq, page)
            return page
        except Exception as error:
            hub.fail(error)
            raise
        finally:
            hub.pass_on()
            self._forget(key, hub)

    def _forget(self, key: tuple[str, Types], hub: _Hub) -> None:
        if hub.idle and self._hubs.get(key) is hub:
            del self._hubs[key]

    async def _shared(self, agent: str, source: LogSource, seq: int, types: Types) -> FeedPage:
        # The epoch keeps pages of a deleted agent from one that has its id now.
        key = (agent, source.epoch(), seq, types)
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
        texts: list[bytes] = []
        size = 0
        async for record in self._store.read(agent, after, upto, types):
            text = to_json(record)
            texts.append(text)
            size += len(text) + 1
            if size >= self._page_bytes or len(texts) == PAGE:
                upto = record.seq
                break
        self.encoded += len(texts)
        return _page_of(b",".join(texts), upto, len(texts))

    def _keep(self, key: _Key, page: FeedPage) -> None:
        self._pages[key] = page
        self._held += page.costs
        while self._held > self._room:
            self._held -= self._pages.popitem(last=False)[1].costs


def _page_of(data: bytes, upto: int, count: int) -> FeedPage:
    records, frame = data.decode(), len(data) + HEAD_COSTS
    short = count > 0 and frame <= AT_ONCE
    return FeedPage(records, upto, count, PAGE_COSTS + sys.getsizeof(records) + FRAMES * frame * short, short)
