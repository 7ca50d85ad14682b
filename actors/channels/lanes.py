"""The order in which one channel's replies go out: pure, without clock and tasks.

A lane holds a queue for each place (chat and thread). Of each queue the head alone may be on its way, so a place is served in
order and one at a time, and a head that waits for its next try holds back those behind it and nobody else. Places take turns.

Every place with something in it is in exactly one of three states: ready, busy (its head is on its way, or an answer is being
edited there), or later (its head waits for a moment).
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque

from msgspec import Struct

from ...storage.events import OutboxPut, Route

Place = tuple[str, str | None]
"""Chat and thread."""


class Pending(Struct):
    """A reply on its way out, and what has become of it so far."""

    agent: str
    seq: int
    time: int
    put: OutboxPut
    left: bool = False
    """Whether another process left it unsent."""
    tries: int = 0
    taken: bool = False
    """Whether the channel has taken it, and only the record of that is missing."""
    forgotten: bool = False
    """Whether its agent was deleted while it was on its way: another of that name has nothing to do with it."""

    @property
    def delivery(self) -> str:
        """Its id."""
        return self.put.delivery

    @property
    def place(self) -> Place:
        """Where it goes."""
        return place_of(self.put.route)


def place_of(route: Route) -> Place:
    """The place that is served in order; which of its messages is answered makes no difference."""
    return route.chat, route.thread


class LaneQueue:
    """All that one channel has to deliver."""

    def __init__(self) -> None:
        self._queues: dict[Place, deque[Pending]] = {}
        self._ready: deque[Place] = deque()
        self._later: list[tuple[float, int, Place]] = []
        self._busy: set[Place] = set()
        self._known: set[str] = set()
        self._number = itertools.count()

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, delivery: str) -> bool:
        return delivery in self._known

    @property
    def ready(self) -> int:
        """How many places could be served now."""
        return len(self._ready)

    @property
    def later(self) -> int:
        """How many places wait for another try."""
        return len(self._later)

    @property
    def next_at(self) -> float | None:
        """When the first of those is due."""
        return self._later[0][0] if self._later else None

    def add(self, item: Pending) -> bool:
        """Put a reply behind those of its place; False if it is there already."""
        if item.delivery in self._known:
            return False
        self._known.add(item.delivery)
        queue = self._queues.setdefault(item.place, deque())
        queue.append(item)
        if len(queue) == 1 and item.place not in self._busy:
            self._ready.append(item.place)
        return True

    def take(self, now: float) -> Pending | None:
        """The reply that is next, at `now`; its place is busy until `done` or `retry`."""
        while self._later and self._later[0][0] <= now:
            self._ready.append(heapq.heappop(self._later)[2])
        if not self._ready:
            return None
        place = self._ready.popleft()
        self._busy.add(place)
        return self._queues[place][0]

    def done(self, item: Pending) -> None:
        """The reply is closed; the next of its place may go."""
        self._known.discard(item.delivery)
        self._queues[item.place].popleft()
        self.release(item.place)

    def retry(self, item: Pending, at: float) -> None:
        """The reply is to go again at `at`, and nothing of its place before."""
        self._busy.discard(item.place)
        heapq.heappush(self._later, (at, next(self._number), item.place))

    def forget(self, agent: str) -> None:
        """The agent is no more: what has not been taken out of it is dropped, and what has is not to go again."""
        for place, queue in list(self._queues.items()):
            moving = [queue.popleft()] if place in self._busy else []
            for item in moving:
                item.forgotten = item.forgotten or item.agent == agent
            kept = deque(moving + [item for item in queue if item.agent != agent])
            self._known.difference_update(item.delivery for item in queue if item.agent == agent)
            if kept:
                self._queues[place] = kept
            else:
                del self._queues[place]
                self._ready = deque(each for each in self._ready if each != place)
                self._later = [each for each in self._later if each[2] != place]
                heapq.heapify(self._later)

    def hold(self, place: Place) -> bool:
        """Take a place at which nothing waits, so that nothing is sent there until `release`; False if something does."""
        if place in self._queues or place in self._busy:
            return False
        self._busy.add(place)
        return True

    def release(self, place: Place) -> None:
        """The place is free: for what is waiting there, if anything is."""
        self._busy.discard(place)
        queue = self._queues.get(place)
        if queue:
            self._ready.append(place)
        elif queue is not None:
            del self._queues[place]
