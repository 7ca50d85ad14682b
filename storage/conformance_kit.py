"""What the conformance checks are made of: the bench an engine's author provides, and makers of batches.

See `conformance.py` for the checks themselves.
"""

from __future__ import annotations

from collections.abc import Awaitable, Container, Mapping, Sequence
from typing import Protocol

from .errors import StoreError
from .events import InboxPut, LogCreated, LogForked, Note
from .messages import Message, TextBlock, TextDelta
from .records import Record
from .runs import ChunkRun
from .store import Batch, Fork, Results, Store, Summary, Unit


class Bench(Protocol):
    """What an engine's author provides."""

    async def open(self) -> Store:
        """A store; the first one is empty, later ones are over the same data."""
        ...

    async def reopen(self, store: Store) -> Store:
        """Close the store and open the same data again."""
        ...

    async def crash(self, store: Store) -> Store:
        """What another process would find if this one were killed now; `store` is not used again."""
        ...


# -- making batches


def note(seq: int, text: str = "", *, time: int = 0) -> Record:
    """A record that means nothing."""
    return Record(seq, time or 1000 + seq, Note(kind="test", data=text))


def created(agent: str) -> Record:
    """The first record of a log."""
    return Record(0, 1000, LogCreated(format=1, agent=agent, name="tester"))


def put(seq: int, message_id: str) -> Record:
    """A message in the inbox."""
    return Record(seq, 1000 + seq, InboxPut(message=Message(message_id, "user", (TextBlock("hello"),)), lane="next-turn"))


def chunks(first: int, count: int, *, turn: int = 1, step: int = 1) -> ChunkRun:
    """A run of text."""
    run = ChunkRun(turn, step, first)
    for i in range(count):
        run.times.append(1000 + first + i // 3)
        run.chunks.append(TextDelta(0, f"piece {first + i} "))
    return run


def batch(
    agent: str,
    epoch: int,
    items: Sequence[Record | ChunkRun],
    *,
    summary: Summary | None = None,
    ids: Mapping[str, int] | None = None,
    snapshot: bytes | None = None,
    blobs: Mapping[str, bytes] | None = None,
    follows: int | None = None,
) -> Batch:
    """A batch of these items."""
    if follows is None:
        follows = (items[0].first if isinstance(items[0], ChunkRun) else items[0].seq) - 1
    return Batch(agent, epoch, follows, items, summary or Summary(name="tester"), ids or {}, snapshot, blobs or {})


async def write(store: Store, *units: Unit) -> None:
    """Commit units that must all pass."""
    results = await store.commit(units)
    assert results == [None] * len(units), results


async def create(store: Store, agent: str, count: int = 1, *, summary: Summary | None = None) -> int:
    """A new agent with `count` records, owned; answers the epoch."""
    epoch = await store.own(agent)
    items = [created(agent), *(note(seq, f"{agent} {seq}") for seq in range(1, count))]
    await write(store, [batch(agent, epoch, items, summary=summary)])
    return epoch


async def fork(store: Store, agent: str, source: str, at: int) -> int:
    """A fork with its first record, owned; answers the epoch."""
    epoch = await store.own(agent)
    first = Record(at + 1, 2000 + at, LogForked(agent=agent, name="tester", source=source, at=at))
    await write(store, [Fork(agent, epoch, source, at), batch(agent, epoch, [first])])
    return epoch


async def seqs(
    store: Store, agent: str, after: int = -1, upto: int | None = None, types: Container[str] | None = None
) -> list[int]:
    """The seqs that a read gives."""
    return [record.seq async for record in store.read(agent, after, upto, types)]


async def texts(store: Store, agent: str) -> list[str]:
    """The texts of an agent's notes."""
    return [str(r.event.data) async for r in store.read(agent) if isinstance(r.event, Note)]


def names(results: Results) -> list[tuple[type[StoreError], str | None] | None]:
    """The errors of a commit as (class, agent)."""
    return [None if e is None else (type(e), e.agent) for e in results]


async def expect(error: type[Exception], awaitable: Awaitable[object]) -> None:
    """The awaitable raises just this."""
    try:
        await awaitable
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")
