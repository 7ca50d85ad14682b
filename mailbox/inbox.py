"""The Inbox: what waits for an agent, in two lanes, as a fold of its log; and what may be done about it.

The fold says what is pending, in which order, and what of it is *due*: a waking item is due unless it is parked, that is, a
`turn/cancel` or a `turn/end` with `park` was written after its put and no waking put after that which `releases` what is parked
(commands do not). All of one moment is parked together and all is woken together, so parking is one number: the seq before
which puts are parked.

Beside the fold stands what is only in memory: *reservations*. A turn reserves its prompt, a boundary what it takes; nobody
else can take, withdraw or replace those. The claim is written later, with the decision; a crash before that leaves the items
pending, which is all that is needed to give them back.

Nothing here waits, appends or looks at a clock: operations return the events that the caller appends, or the items it asked
for. Places are seqs, so a lane's order survives any snapshot; a replacement takes the place of what it replaces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import ClassVar

import msgspec

from ..storage.events import (
    CommandRun,
    Event,
    InboxClaim,
    InboxDrop,
    InboxPut,
    Lane,
    LogForked,
    Route,
    TurnCancel,
    TurnEnd,
)
from ..storage.folds.fold import Fold, Handler
from .items import Fate, Hole, InboxState, Item, item_of

LANES: tuple[Lane, Lane] = ("next-step", "next-turn")
"""Both lanes, in the order in which a first boundary takes them."""


class Inbox(Fold):
    """An agent's mailbox."""

    __slots__ = ("_by_id", "_gone", "_holes", "_lanes", "_parked_before", "_prompt", "_timed", "reserved")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._lanes: dict[Lane, dict[int, Item]] = {lane: {} for lane in LANES}
        self._by_id: dict[str, Item] = {}
        self._holes: dict[str, Hole] = {}
        self._gone: dict[str, tuple[int, Fate]] = {}
        self._timed: set[str] = set()
        self._parked_before = 0
        self._prompt: Item | None = None
        self.reserved: set[str] = set()
        """Ids that a turn or a boundary has taken and not yet claimed."""

    # -- the fold

    def fork(self) -> None:
        """A fork begins with an empty inbox, and knows none of its origin's ids."""
        self._clear()

    def dump(self) -> InboxState:
        """The state for a snapshot. Ids that were taken are left out: what is on disk is found there (`Store.find`)."""
        items = sorted(self._by_id.values(), key=lambda item: item.place)
        return InboxState(tuple(items), self._parked_before, tuple(self._holes.values()))

    @classmethod
    def load(cls, dumped: InboxState) -> Inbox:
        """The inbox in a snapshot."""
        inbox = cls()
        for item in dumped.items:
            inbox._insert(item)
        inbox._parked_before = dumped.parked_before
        inbox._holes = {hole.id: hole for hole in dumped.holes}
        return inbox

    def _put(self, seq: int, time: int, put: InboxPut) -> None:
        if put.message.id in self._by_id:
            return
        hole = self._holes.pop(put.replaces or "", None)
        in_place = hole is not None and hole.lane == put.lane
        self._gone.pop(put.message.id, None)
        self._insert(item_of(seq, hole.place if hole and in_place else seq, put))
        if in_place:
            self._lanes[put.lane] = dict(sorted(self._lanes[put.lane].items()))
        if put.wake and put.releases:
            self._parked_before = 0

    def _insert(self, item: Item) -> None:
        self._by_id[item.id] = item
        self._lanes[item.lane][item.place] = item
        if item.not_before is not None:
            self._timed.add(item.id)

    def _claim(self, seq: int, time: int, event: InboxClaim) -> None:
        self._leave(seq, event.ids, Fate("claimed", 0, turn=event.turn))

    def _cancel(self, seq: int, time: int, event: TurnCancel) -> None:
        self._leave(seq, event.ids, Fate("dropped", 0, why="cancelled"))
        self._parked_before = seq

    def _turn_end(self, seq: int, time: int, event: TurnEnd) -> None:
        if event.park:
            self._parked_before = seq

    def _leave(self, seq: int, ids: Collection[str], fate: Fate) -> None:
        for id in ids:
            item = self._by_id.pop(id, None)
            if item is None:
                continue
            del self._lanes[item.lane][item.place]
            self._timed.discard(id)
            self.reserved.discard(id)
            self._gone[id] = seq, msgspec.structs.replace(fate, seq=item.seq)

    def _drop(self, seq: int, time: int, event: InboxDrop) -> None:
        dropped = [self._by_id[id] for id in event.ids if id in self._by_id]
        self._leave(seq, event.ids, Fate("dropped", 0, why=event.why))
        if event.why == "replaced":
            self._holes = {item.id: Hole(item.id, item.lane, item.place) for item in dropped}

    def _command(self, seq: int, time: int, event: CommandRun) -> None:
        if event.id not in self._by_id and event.id not in self._gone:
            self._gone[event.id] = seq, Fate("command", seq)

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {
        InboxPut: _put,
        InboxClaim: _claim,
        InboxDrop: _drop,
        TurnCancel: _cancel,
        TurnEnd: _turn_end,
        CommandRun: _command,
        LogForked: Fold.on_fork,
    }

    # -- looking

    def pending(self, lane: Lane | None = None) -> tuple[Item, ...]:
        """What waits, next-step before next-turn, each in its order; `parked` is filled in."""
        lanes = LANES if lane is None else (lane,)
        return tuple(self._shown(item) for each in lanes for item in self._lanes[each].values())

    def __len__(self) -> int:
        return len(self._by_id)

    def count(self, lane: Lane) -> int:
        """How many of them wait in this lane."""
        return len(self._lanes[lane])

    def _shown(self, item: Item) -> Item:
        return msgspec.structs.replace(item, parked=True) if self._parked(item) else item

    def _parked(self, item: Item) -> bool:
        return item.seq < self._parked_before and item.may_park

    def _free(self, lane: Lane, now: int | None) -> Iterator[Item]:
        """What a boundary may take: neither parked nor reserved, and its time has come."""
        for item in self._lanes[lane].values():
            if item.id not in self.reserved and item.ready(now) and not self._parked(item):
                yield item

    def due(self, now: int | None) -> bool:
        """Whether something should wake the agent, at `now` (Unix ms)."""
        if not self._by_id:  # the usual case, asked several times a turn
            return False
        for item in self._by_id.values():
            if item.wake and item.id not in self.reserved and item.ready(now) and not self._parked(item):
                return True
        return False

    def next_wake(self, now: int) -> int | None:
        """The earliest `not_before` still to come of a waking item that is not parked."""
        if not self._timed:
            return None
        waiting = (self._by_id[id] for id in self._timed if id not in self.reserved)
        return min((_time(item) for item in waiting if item.wake and _time(item) > now and not self._parked(item)), default=None)

    def steering(self, now: int | None = None) -> bool:
        """Whether next-step holds something that a later boundary of a running turn would take."""
        return bool(self._lanes["next-step"]) and next(self._free("next-step", now), None) is not None

    def prompts(self, now: int | None) -> bool:
        """Whether a prompt waits whose time has come, parked or not: what comes behind it must not overtake it."""
        return any(item.wake and item.ready(now) for item in self._lanes["next-turn"].values())

    def check_full(self, lane: Lane, limit: int) -> bool:
        """Whether the lane holds `limit` items or more: then the next send from outside is refused (`InboxFull`)."""
        return len(self._lanes[lane]) >= limit

    def get(self, id: str) -> Item | None:
        """The pending item with this id."""
        item = self._by_id.get(id)
        return None if item is None else self._shown(item)

    def seen(self, id: str) -> int | None:
        """The seq of this id's put (or `command/run`), if it is pending or was taken lately; older ones are on disk."""
        fate = self.fate(id)
        return None if fate is None else fate.seq

    def fate(self, id: str) -> Fate | None:
        """What became of a message; None if it is unknown, or was taken so long ago that it has to be looked up on disk."""
        item = self._by_id.get(id)
        if item is not None:
            return Fate("parked" if self._parked(item) else "pending", item.seq)
        gone = self._gone.get(id)
        return None if gone is None else gone[1]

    def forget_ids(self, upto: int) -> None:
        """Drop the ids of messages taken at or before seq `upto`, which is on disk, so that memory stays flat."""
        while self._gone:
            id = next(iter(self._gone))
            if self._gone[id][0] > upto:
                return
            del self._gone[id]

    # -- taking

    def reserve_prompt(self, now: int | None) -> Item | None:
        """Reserve the first due item of next-turn for a turn that starts; None for a turn of steers alone."""
        self._prompt = next((item for item in self._free("next-turn", now) if item.wake), None)
        if self._prompt is not None:
            self.reserved.add(self._prompt.id)
        return self._prompt

    def turn_route(self, prompt: Item | None, now: int | None = None) -> Route | None:
        """The route of the turn: its prompt's, or that of the first steer that has one."""
        if prompt is not None:
            return prompt.route
        return next((item.route for item in self._free("next-step", now) if item.route is not None), None)

    def reserve_boundary(self, first: bool, limit: int, now: int | None = None) -> tuple[Item, ...]:
        """Reserve what a boundary takes: up to `limit` items of next-step in order, then at the first the turn's prompt."""
        taken: list[Item] = []
        if self._lanes["next-step"]:
            taken.extend(islice(self._free("next-step", now), limit))
            self.reserved.update(item.id for item in taken)
        prompt = self._prompt if first else None
        if prompt is not None and prompt.id in self._by_id and prompt.id in self.reserved:
            taken.append(prompt)
        return tuple(taken)

    def release(self) -> None:
        """Forget all reservations: a turn that ends without claiming leaves what it had reserved pending."""
        self.reserved.clear()
        self._prompt = None

    # -- changing

    def withdraw(self, id: str) -> InboxDrop | None:
        """The event that withdraws a pending item; None if it is unknown, taken or reserved."""
        return InboxDrop(ids=(id,), why="withdrawn") if self._changeable(id) else None

    def replace(self, id: str, put: InboxPut) -> tuple[InboxDrop, InboxPut] | None:
        """The events, for one append, that put another message in the place of a pending one; None if that is too late.

        The new message needs an id of its own. Lane and wake stay those of the old one, and so do sender, route, context and
        time where `put` has none: an answer still goes to where the first version came from. Who asked is told it was dropped.
        """
        if not self._changeable(id):
            return None
        old = self._by_id[id]
        new = msgspec.structs.replace(
            put,
            lane=old.lane,
            wake=old.wake,
            replaces=id,
            sender=old.sender if put.sender is None else put.sender,
            route=old.route if put.route is None else put.route,
            context=old.context if put.context is None else put.context,
            not_before=old.not_before if put.not_before is None else put.not_before,
        )
        return InboxDrop(ids=(id,), why="replaced"), new

    def _changeable(self, id: str) -> bool:
        return id in self._by_id and id not in self.reserved

    def cancel_ids(self, keep: Collection[str] = ()) -> tuple[str, ...]:
        """What a cancel drops: all that is pending (also what is reserved), as it would be claimed, less `keep`."""
        return tuple(item.id for lane in LANES for item in self._lanes[lane].values() if item.id not in keep)


def _time(item: Item) -> int:
    return item.not_before or 0
