"""An agent's state: all folds of its log, composed, with what the store's index and a snapshot need of them.

A log folds into this one object record by record; nothing else of the runtime remembers anything about an agent. Folds that a
fork must not inherit (inbox, outbox, children, timers, approvals, usage) begin anew after `log/forked`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, cast

import msgspec
from msgspec import Struct

from ..mailbox.inbox import Inbox
from ..mailbox.items import InboxState
from ..storage.events import EVENTS, Event, InboxPut, LogCreated, LogForked, Note, TurnResume, TurnStart
from ..storage.folds import (
    Approvals,
    ApprovalsState,
    Asks,
    AsksState,
    Children,
    ChildrenState,
    Choices,
    ChoicesState,
    Headers,
    HeadersState,
    Outbox,
    OutboxState,
    Position,
    Restarts,
    RestartsState,
    Surface,
    Timers,
    TimersState,
    UsageFold,
    UsageState,
    wait_kinds,
)
from ..storage.folds.fold import Fold, Handler
from ..storage.folds.handoffs import handed_to
from ..storage.store import Summary
from .gauge import UNKNOWN, Gauge, GaugeState
from .turns.runtime_context import RuntimeContext


class Identity(Struct):
    """Who the agent is, from its first record."""

    agent: str = ""
    name: str = ""
    labels: dict[str, str] | None = None
    parent: str | None = None
    depth: int = 0
    first: str = ""
    """The name of the definition that it was made by; `name` is that of the one it goes on under."""


class Dump(Struct, frozen=True):
    """A snapshot of all folds."""

    identity: Identity
    position: Position
    surface: msgspec.Raw
    """A `SurfaceState`, which nobody decodes before it is needed."""
    headers: HeadersState
    inbox: InboxState
    outbox: OutboxState
    children: ChildrenState
    timers: TimersState
    approvals: ApprovalsState
    usage: UsageState
    forked_idle: bool = False
    told: str | None = None
    restarts: RestartsState = RestartsState()
    asks: AsksState = AsksState()
    choices: ChoicesState = ChoicesState()
    gauge: GaugeState = UNKNOWN


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Dump)

LONG_TAIL = 400
"""Records whose folding takes a few milliseconds."""


class AgentState:
    """Everything a log says about its agent, folded."""

    __slots__ = (
        "approvals",
        "asks",
        "children",
        "choices",
        "context",
        "forked_idle",
        "gauge",
        "headers",
        "identity",
        "inbox",
        "outbox",
        "position",
        "restarts",
        "since_snapshot",
        "surface",
        "timers",
        "usage",
    )

    def __init__(self) -> None:
        self.identity = Identity()
        self.position = Position()
        self.surface = Surface()
        self.headers = Headers()
        self.inbox = Inbox()
        self.outbox = Outbox()
        self.children = Children()
        self.timers = Timers()
        self.approvals = Approvals()
        self.usage = UsageFold()
        self.restarts = Restarts()
        self.asks = Asks()
        self.choices = Choices()
        self.context = RuntimeContext(self.surface)
        self.gauge = Gauge(self.surface, self.headers)
        self.since_snapshot = 0
        self.forked_idle = False
        """Whether this is a fork that nothing has taken up yet: start-up leaves it alone."""

    def apply(self, seq: int, time: int, event: Any) -> None:
        """Fold one record in; unknown types pass by."""
        self.since_snapshot += 1
        for name, handler in _TABLE.get(cast("type[Event]", type(event)), ()):
            handler(getattr(self, name), seq, time, event)

    @property
    def _itself(self) -> AgentState:
        return self

    def _taken_up(self, seq: int, time: int, event: TurnStart | TurnResume) -> None:
        self.forked_idle = False

    def _put(self, seq: int, time: int, event: InboxPut) -> None:
        if event.wake:
            self.forked_idle = False

    def _noted(self, seq: int, time: int, event: Note) -> None:
        self.identity.name = handed_to(event) or self.identity.name

    def _created(self, seq: int, time: int, event: LogCreated) -> None:
        self.identity = Identity(event.agent, event.name, event.labels, event.parent, event.depth, event.name)

    def _forked(self, seq: int, time: int, event: LogForked) -> None:
        labels = event.labels if event.labels is not None else self.identity.labels
        self.identity = Identity(event.agent, event.name, labels, None, 0, event.name)
        for name, _ in FOLDS:
            getattr(self, name).fork()
        self.forked_idle = True

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {
        LogCreated: _created,
        LogForked: _forked,
        Note: _noted,
        TurnStart: _taken_up,
        TurnResume: _taken_up,
        InboxPut: _put,
    }

    def next_due(self, now: int) -> int | None:
        """When the clock next has something for the agent: a timer, or input whose time comes after `now` (both Unix ms)."""
        timer, waiting = self.timers.next_due, self.inbox.next_wake(now)
        if timer is None or waiting is None:
            return waiting if timer is None else timer
        return min(timer, waiting)

    # -- for the store

    def summary(self) -> Summary:
        """What the index should know now."""
        identity, at, timer = self.identity, self.position, self.next_due(0)
        waits = () if self.forked_idle else wait_kinds(at, self.approvals, self.asks, self.children, timed=timer is not None)
        return Summary(
            identity.name,
            identity.labels,
            identity.parent,
            identity.depth,
            at.turn,
            at.open and not self.forked_idle,
            self.inbox.due(0),
            len(self.outbox),
            timer,
            self.usage.own,
            waits,
        )

    def dump(self) -> bytes:
        """All folds as bytes."""
        self.since_snapshot = 0
        return _encoder.encode(
            Dump(
                self.identity,
                self.position,
                self.surface.pack(),
                self.headers.dump(),
                self.inbox.dump(),
                self.outbox.dump(),
                self.children.dump(),
                self.timers.dump(),
                self.approvals.dump(),
                self.usage.dump(),
                self.forked_idle,
                self.context.told,
                self.restarts.dump(),
                self.asks.dump(),
                self.choices.dump(),
                self.gauge.dump(),
            )
        )

    @classmethod
    def load(cls, data: bytes) -> AgentState:
        """The state in a snapshot."""
        dump = _decoder.decode(data)
        state = cls()
        state.identity, state.position = dump.identity, dump.position
        state.surface = Surface.packed(dump.surface)
        state.headers = Headers.load(dump.headers)
        state.inbox = Inbox.load(dump.inbox)
        state.outbox = Outbox.load(dump.outbox)
        state.children = Children.load(dump.children)
        state.timers = Timers.load(dump.timers)
        state.approvals = Approvals.load(dump.approvals)
        state.usage = UsageFold.load(dump.usage)
        state.restarts = Restarts.load(dump.restarts)
        state.asks = Asks.load(dump.asks)
        state.choices = Choices.load(dump.choices)
        state.forked_idle = dump.forked_idle
        state.context = RuntimeContext(state.surface, dump.told)
        state.gauge = Gauge(state.surface, state.headers, dump.gauge)
        return state

    @property
    def worth_a_snapshot(self) -> bool:
        """Whether the records since the last snapshot outweigh writing another: its cost is that of the visible messages. (A
        request costs as much, and there is one for every few records: an eighth keeps both the tail and the cost small.)"""
        return self.long_tail and self.since_snapshot > LONG_TAIL + len(self.surface) // 8

    @property
    def long_tail(self) -> bool:
        """Whether so much came after the last snapshot that an agent which goes to rest is worth one: it may be a long one, and
        the next opening has to fold the tail."""
        return self.since_snapshot > LONG_TAIL


FOLDS: tuple[tuple[str, type[Fold]], ...] = (
    ("position", Position),
    ("surface", Surface),
    ("headers", Headers),
    ("inbox", Inbox),
    ("outbox", Outbox),
    ("children", Children),
    ("timers", Timers),
    ("approvals", Approvals),
    ("usage", UsageFold),
    ("restarts", Restarts),
    ("asks", Asks),
    ("choices", Choices),
    ("context", RuntimeContext),
    ("gauge", Gauge),
)
"""The folds in their order: one that looks at another comes behind it."""


def _handlers(kind: type[Event]) -> Iterator[tuple[str, Handler]]:
    """Who takes in a record of this type, the state itself first."""
    for name, handlers in (("_itself", AgentState.HANDLERS), *((name, fold.HANDLERS) for name, fold in FOLDS)):
        if kind in handlers:
            yield name, handlers[kind]


_TABLE: Mapping[type[Event], tuple[tuple[str, Handler], ...]] = {kind: tuple(_handlers(kind)) for kind in EVENTS.values()}
"""One look-up for a record, and a call for each fold that reads it: fourteen folds read two or three types each."""
