"""`verify`: fold every log again and compare it with what it says of itself.

Each request is rebuilt from the records before it and must have the digest that was written at dispatch; beside it the rules of
`rules.py` are checked. It reads a store, live or closed, and changes nothing: of a live one it checks what was there when
it began to read each log. What cannot be read is a problem of that agent, and no reason to leave out the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import aclosing

import msgspec
import trio
from msgspec import Struct

from .errors import AgentDeleted, AgentNotFound, StoreError
from .events import EVENTS, type_of
from .folds.surface import Surface
from .records import Record, UnknownEvent
from .rules import Doubt, InboxRules, OrderRules, RequestRules, mismatch
from .store import Store
from .turn_rules import TurnRules

STRIDE = 500
"""Records between two checkpoints (and calls of `progress`)."""

SURFACE = tuple(type for type, event in EVENTS.items() if event in Surface.EVENTS)
"""The records that a request's messages are folded from."""

Progress = Callable[[str, int], object]


class Problem(Struct, frozen=True):
    """A rule that record `seq` of an agent's log breaks, in one sentence."""

    agent: str
    seq: int
    what: str

    def __str__(self) -> str:
        return f"{self.agent!r} seq {self.seq}: {self.what}"


class Report(Struct, frozen=True):
    """What was checked, and what was found."""

    ok: bool
    problems: tuple[Problem, ...] = ()
    agents: int = 0
    records: int = 0
    requests: int = 0
    turns: int = 0


class LogCheck:
    """All rules over one log; pure, so that a test may feed it any records."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.problems: list[Problem] = []
        self.records = 0
        self.order, self.turns, self.requests = OrderRules(), TurnRules(), RequestRules()
        self._inbox = InboxRules()

    def see(self, record: Record) -> None:
        """Check one record."""
        self.records += 1
        for what in self.order.see(record):
            self.add(record.seq, what)
        event = record.event
        if isinstance(event, UnknownEvent):
            return
        for rules in (self.turns, self._inbox, self.requests):
            for what in rules.see(record.seq, event):
                self.add(record.seq, what)

    def add(self, seq: int, what: str) -> None:
        """Note a problem."""
        self.problems.append(Problem(self.agent, seq, what))


async def verify(store: Store, agents: Iterable[str] | None = None, *, progress: Progress | None = None) -> Report:
    """Check the logs of these agents, or of all.

    `progress` is called with an agent's id and the number of its records seen, now and then and at its end.

    Raises:
        AgentNotFound: one of `agents` does not exist.
    """
    await trio.lowlevel.checkpoint()
    checks: list[LogCheck] = []
    for agent in await _all(store) if agents is None else agents:
        check = await _check(store, agent, progress)
        if check is not None:
            checks.append(check)
        elif agents is not None:
            raise AgentNotFound(f"there is no agent {agent!r} to verify in {store.name}", agent=agent)
    return _report(checks)


def check_records(agent: str, records: Iterable[Record]) -> Report:
    """Check records that are at hand, as `verify` does."""
    kept = list(records)
    check = LogCheck(agent)
    for record in kept:
        check.see(record)
    for doubt in check.requests.doubts:
        _settle(check, doubt, (record for record in kept if record.seq <= doubt.sent.upto))
    return _report([check])


def _report(checks: list[LogCheck]) -> Report:
    problems = tuple(problem for check in checks for problem in check.problems)
    return Report(
        ok=not problems,
        problems=problems,
        agents=len(checks),
        records=sum(check.records for check in checks),
        requests=sum(check.requests.requests for check in checks),
        turns=sum(check.turns.turns for check in checks),
    )


async def _all(store: Store) -> list[str]:
    agents: list[str] = []
    while page := await store.agents(after=agents[-1] if agents else None):
        agents.extend(head.agent for head in page)
    return agents


async def _check(store: Store, agent: str, progress: Progress | None) -> LogCheck | None:
    """The check of one log; None if there is none (it may have been deleted since it was listed)."""
    check = LogCheck(agent)
    head = await store.head(agent)
    if head is None:
        return None
    try:
        await _read(store, check, progress)
    except (AgentNotFound, AgentDeleted):
        return None
    except (StoreError, msgspec.DecodeError) as error:
        check.add(check.order.last + 1, f"cannot be read: {error}")
    else:
        if check.order.last < head.last:
            check.add(check.order.last, f"is the last that can be read, but the store says that seq {head.last} was written")
    if progress is not None:
        progress(agent, check.records)
    return check


async def _read(store: Store, check: LogCheck, progress: Progress | None) -> None:
    async with aclosing(store.read(check.agent)) as reader:
        async for record in reader:
            check.see(record)
            if check.records % STRIDE == 0:
                await trio.lowlevel.checkpoint()
                if progress is not None:
                    progress(check.agent, check.records)
    for doubt in check.requests.doubts:
        async with aclosing(store.read(check.agent, upto=doubt.sent.upto, types=SURFACE)) as reader:
            _settle(check, doubt, [record async for record in reader])


def _settle(check: LogCheck, doubt: Doubt, prefix: Iterable[Record]) -> None:
    """Rebuild a request whose view of the history was replaced before it was sent."""
    surface = Surface()
    for record in prefix:
        if not isinstance(record.event, UnknownEvent) and type_of(record.event) in SURFACE:
            surface.apply(record.seq, record.time, record.event)
    if surface.digest(doubt.header_line) != doubt.sent.digest:
        check.add(doubt.seq, mismatch(doubt.sent))
