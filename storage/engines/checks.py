"""What every engine checks before it writes, and the errors it names the loser with.

Two kinds of wrong: a batch that no correct caller makes (`UsageError`, raised before anything of the commit is written), and
a unit that lost a race (`FenceLost`, `StaleAppend`, answered in its place while the other units go on).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..errors import FenceLost, StaleAppend, UsageError
from ..records import Record
from ..runs import ChunkRun
from ..store import Batch, Delete, Fork, Unit

Item = Record | ChunkRun

LONGEST_NAME: Final = 480
"""Bytes of UTF-8 that an agent's id may have: what fits in a key of every engine."""


def size(item: Item) -> int:
    """How many records an item stands for."""
    return 1 if isinstance(item, Record) else len(item)


def first(item: Item) -> int:
    """The seq an item begins with."""
    return item.seq if isinstance(item, Record) else item.first


def end_time(item: Item) -> int:
    """The time of its last record."""
    return item.time if isinstance(item, Record) else item.times[-1]


def check_agent(agent: str) -> bytes:
    """The id as UTF-8. It is never normalised: two ids that differ in any character are two agents.

    Raises:
        UsageError: it is no text, empty, too long, or no valid Unicode.
    """
    if not isinstance(agent, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"an agent id is a text, not {agent!r}")
    try:
        name = agent.encode()
    except UnicodeEncodeError:
        raise UsageError(f"the agent id {agent!r} is not valid Unicode (it holds half of a surrogate pair)") from None
    if not name:
        raise UsageError("an agent id must not be empty")
    if len(name) > LONGEST_NAME:
        raise UsageError(f"an agent id may have {LONGEST_NAME} bytes of UTF-8; this one has {len(name)}: {agent[:40]!r}...")
    return name


def check_unit(unit: Unit) -> None:
    """Raise `UsageError` for a unit that no correct caller makes."""
    forked: set[str] = set()
    for part in unit:
        check_agent(part.agent)
        if type(part) is Fork:
            check_agent(part.source)
            forked.add(part.agent)
        elif type(part) is Batch:
            check_batch(part)
            if part.items:
                forked.discard(part.agent)
    if forked:
        raise UsageError(f"the fork {forked.pop()!r} needs its own first record in the same unit")


def check_batch(batch: Batch) -> None:
    """The batch's items must follow one another without a gap, and a new log's must not be empty."""
    seq = batch.follows
    for item in batch.items:
        start, count = (item.seq, 1) if isinstance(item, Record) else (item.first, len(item))
        if start != seq + 1 or not count:
            gap = f"seq {start} follows {seq}"
            raise UsageError(f"the records of {batch.agent!r} must be dense: {gap}", agent=batch.agent, seq=start)
        seq += count
    if seq < 0:
        raise UsageError(f"the first batch of {batch.agent!r} must hold a record", agent=batch.agent)


def fence_lost(part: Batch | Delete | Fork) -> FenceLost:
    """The error for a part written under an epoch that is not the agent's current one."""
    return FenceLost(
        f"{part.agent!r} has another owner by now (epoch {part.epoch} is over); nothing of this unit was written",
        agent=part.agent,
    )


def stale(batch: Batch, last: int) -> StaleAppend:
    """The error for a batch that does not follow the last record."""
    return StaleAppend(
        f"the log of {batch.agent!r} ends at seq {last}, not at {batch.follows}; read it again before writing",
        agent=batch.agent,
        seq=last,
    )


def gone(agent: str, what: str) -> StaleAppend:
    """The error for a part whose agent is not what the caller saw when it looked."""
    return StaleAppend(f"{agent!r} {what}; nothing of this unit was written", agent=agent)


def matches(labels: Mapping[str, str] | None, wanted: Mapping[str, str] | None) -> bool:
    """Whether an agent's labels hold all that are wanted."""
    return not wanted or (labels is not None and all(labels.get(k) == v for k, v in wanted.items()))
