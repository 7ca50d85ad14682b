"""A ledger: what was spent together, and what is reserved for calls that run.

A call reserves what it may cost before it is made, and settles for what it did cost. Who finds no room waits for those that run:
they may need less than they have reserved. What an earlier process spent is read from the logs (`Books`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, cast

import trio

from ...storage.errors import CallboardError
from ...storage.events import (
    AssistantMessage,
    ChildEnded,
    ChildSpawned,
    Note,
    RequestContext,
    RequestFailed,
    RequestSent,
    TurnStart,
)
from ...storage.folds.usage import MODEL_CALL, usage_of
from ...storage.messages import Usage
from ...storage.records import Record
from ..seams import SeamContext

Costs = Callable[[str, str, Usage], float]
"""Provider, model, usage → money."""


class Spent(NamedTuple):
    """Model calls, tokens, money."""

    steps: int = 0
    tokens: int = 0
    cost: float = 0.0

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(self.steps + other.steps, self.tokens + other.tokens, self.cost + other.cost)


NOTHING = Spent()
Entry = tuple[float, Spent]
"""When, in Unix seconds, and what."""


def total(entries: Iterable[Entry]) -> Spent:
    """All of it together."""
    sum = NOTHING
    for _, spent in entries:
        sum = sum.plus(spent)
    return sum


class Reservation:
    """What one call may cost, until it is known what it did cost."""

    __slots__ = ("_ledger", "wanted")

    def __init__(self, ledger: Ledger, wanted: Spent) -> None:
        self._ledger, self.wanted = ledger, wanted

    def settle(self, spent: Spent, now: float) -> None:
        """The call is over: what it cost takes the place of what was reserved."""
        self._ledger.take_back(self)
        self._ledger.add(spent, now)

    def release(self) -> None:
        """The call was never made."""
        self._ledger.take_back(self)


class Ledger:
    """What counts together; with a window only what is recent does."""

    __slots__ = ("_recent", "_reserved", "_spent", "_window_s", "freed", "over", "since", "turn")

    def __init__(self, *, window_s: float | None, since: float, turn: int, before: Sequence[Entry] = ()) -> None:
        self._window_s = window_s
        self._spent = NOTHING if window_s is not None else total(before)
        self._recent: deque[Entry] = deque(sorted(before) if window_s is not None else ())
        self._reserved: set[Reservation] = set()
        self.since, self.turn = since, turn
        self.over = False
        """Whether the turn that this is the ledger of has ended."""
        self.freed = trio.lowlevel.ParkingLot()
        """Where those wait who found no room."""

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost with it but what the logs say."""
        return not self._reserved and not self.freed

    def reserve(self, wanted: Spent) -> Reservation:
        """A call is about to be made."""
        reservation = Reservation(self, wanted)
        self._reserved.add(reservation)
        return reservation

    def take_back(self, reservation: Reservation) -> None:
        """What was reserved is free again."""
        self._reserved.discard(reservation)
        self.freed.unpark_all()

    def add(self, spent: Spent, now: float) -> None:
        """This was spent."""
        if self._window_s is None:
            self._spent = self._spent.plus(spent)
        else:
            self._recent.append((now, spent))

    def spent(self, now: float) -> Spent:
        """What counts now."""
        if self._window_s is None:
            return self._spent
        while self._recent and self._recent[0][0] <= now - self._window_s:
            self._recent.popleft()
        return total(self._recent)

    @property
    def reserved(self) -> Spent:
        """What the calls that run may cost."""
        return total((0.0, reservation.wanted) for reservation in self._reserved)


_TYPES = {
    "turn/start",
    "request/context",
    "request/sent",
    "request/failed",
    "assistant/message",
    "child/spawned",
    "child/ended",
    "note",
}


class Books:
    """What logs say was spent, by an agent and, if asked for, by those below it."""

    def __init__(self, ctx: SeamContext, costs: Costs, *, tree: bool) -> None:
        self._ctx, self._costs, self._tree = ctx, costs, tree

    async def of_turn(self, agent: str) -> tuple[int, float, list[Entry]]:
        """The agent's last turn, when it began, and what was spent since."""
        records = await self._read(agent)
        start = next((n for n in reversed(range(len(records))) if isinstance(records[n].event, TurnStart)), None)
        if start is None:
            return 0, self._ctx.now.timestamp(), []
        opened = records[start]
        entries = await self._entries(records, opened.time, from_seq=opened.seq)
        return cast("TurnStart", opened.event).turn, opened.time / 1000, entries

    async def since(self, agent: str, time_s: float) -> list[Entry]:
        """What was spent since then."""
        return await self._entries(await self._read(agent), time_s * 1000)

    async def _read(self, agent: str) -> list[Record]:
        try:
            return await self._ctx.records(_TYPES, id=agent)
        except CallboardError:  # deleted: its log went with it
            return []

    async def _entries(self, records: Sequence[Record], since_ms: float, *, from_seq: int = 0) -> list[Entry]:
        entries: list[Entry] = []
        route, children = ("", ""), dict[str, ChildEnded | None]()
        for record in records:
            event: Any = record.event
            if isinstance(event, RequestContext):
                route = event.provider, event.model
            elif isinstance(event, ChildSpawned):
                children[event.child] = None
            elif isinstance(event, ChildEnded) and record.time < since_ms:
                children.pop(event.child, None)
            elif isinstance(event, ChildEnded):
                children[event.child] = event
            elif record.time >= since_ms and record.seq >= from_seq:
                spent = self._spent(event, route)
                if spent is not None:
                    entries.append((record.time / 1000, spent))
        for child, ended in children.items() if self._tree else ():
            entries.extend(await self._below(child, ended, since_ms))
        return entries

    async def _below(self, child: str, ended: ChildEnded | None, since_ms: float) -> list[Entry]:
        records = await self._read(child)
        if records or ended is None:
            return await self._entries(records, since_ms)
        return [(since_ms / 1000, Spent(0, ended.usage.total, 0.0))]  # its log is gone, its parent knows what it cost

    def _spent(self, event: Any, route: tuple[str, str]) -> Spent | None:
        if isinstance(event, RequestSent):
            return Spent(1)
        if isinstance(event, RequestFailed | AssistantMessage) and event.usage is not None:
            return Spent(0, event.usage.total, self._costs(*route, event.usage))
        if isinstance(event, Note) and event.kind == MODEL_CALL:
            usage = usage_of(event)
            return Spent(1, usage.total, self._costs(*_route_of(event.data), usage))
        return None


def _route_of(data: Any) -> tuple[str, str]:
    try:
        return str(data["provider"]), str(data["model"])
    except (KeyError, TypeError, IndexError):  # a note is free JSON of whoever wrote it
        return "", ""
