"""What an inbox holds, and what became of what it held."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from ..storage.events import AskedBy, InboxPut, Lane, Route
from ..storage.events.base import FreeJson
from ..storage.messages import AgentSource, Message


class Item(Struct, frozen=True, omit_defaults=True, gc=False):
    """A pending message: what its `inbox/put` says, the `seq` of that record, and its `place` in the lane.

    Places are seqs too; an item that replaces another has the other's. `parked` is filled in for whoever lists the inbox.
    """

    seq: int
    place: int
    message: Message
    lane: Lane
    wake: bool = True
    sender: str | None = None
    route: Route | None = None
    context: FreeJson | None = None
    ask: AskedBy | None = None
    not_before: int | None = None
    parked: bool = False

    @property
    def id(self) -> str:
        """The message's id."""
        return self.message.id

    @property
    def may_park(self) -> bool:
        """Whether a cancelled or failed turn parks it: what wakes, unless another agent sent it."""
        return self.wake and type(self.message.source) is not AgentSource

    def ready(self, now: int | None) -> bool:
        """Whether its time has come; without a clock it has."""
        return self.not_before is None or now is None or self.not_before <= now


class Fate(Struct, frozen=True, omit_defaults=True, gc=False):
    """What became of a message: the `seq` of its put (or `command/run`), the `turn` that took it, `why` it was dropped."""

    kind: Literal["pending", "parked", "claimed", "dropped", "command"]
    seq: int
    turn: int | None = None
    why: Literal["withdrawn", "cancelled", "replaced"] | None = None


class Hole(Struct, frozen=True, gc=False):
    """The place of an item that was dropped as `replaced`, held for the put that replaces it (the next record)."""

    id: str
    lane: Lane
    place: int


class InboxState(Struct, frozen=True, omit_defaults=True):
    """An inbox as a snapshot keeps it; items are in order of place."""

    items: tuple[Item, ...] = ()
    parked_before: int = 0
    holes: tuple[Hole, ...] = ()


def item_of(seq: int, place: int, put: InboxPut) -> Item:
    """The item that an `inbox/put` makes."""
    return Item(
        seq=seq,
        place=place,
        message=put.message,
        lane=put.lane,
        wake=put.wake,
        sender=put.sender,
        route=put.route,
        context=put.context,
        ask=put.ask,
        not_before=put.not_before,
    )
