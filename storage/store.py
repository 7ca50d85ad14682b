"""The seam under every log: what an engine must do.

A commit is a list of *units*. A unit is one batch, or several that stand or fall together (mail, a spawn, a child's end). A
unit whose agent is fenced or stale fails alone, by name; only an error of the engine itself fails the whole commit.

The engine knows nothing of agents' meaning: the `Summary` of a batch is what its index needs, made by those who do know.
Every engine passes the suite in `conformance.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct

from .errors import StoreError
from .messages import NO_USAGE, Usage
from .records import Record
from .runs import ChunkRun

Flag = Literal["attention", "timer"]
"""`attention`: has an open turn, due input, unsent replies or a child at work. `timer`: has a timer set, or input that waits for
its time."""


class Summary(Struct, frozen=True, omit_defaults=True, gc=False):
    """What the index knows of an agent without reading its log; it goes with every batch and replaces the last one."""

    name: str = ""
    labels: dict[str, str] | None = None
    parent: str | None = None
    depth: int = 0
    turn: int = 0
    """The last turn's number."""
    open: bool = False
    """Whether that turn is open."""
    due: bool = False
    """Whether pending input should wake the agent."""
    outbox: int = 0
    """Replies not yet delivered."""
    timer: int | None = None
    """When the next timer, or input that must wait for its time, is due; Unix ms."""
    usage: Usage = NO_USAGE
    """Its own, without that of its children, which the index has too: so a sum counts nothing twice."""
    waits: tuple[str, ...] = ()
    """What it waits for, in kinds that begin and end with records (`folds.waits.KINDS`): `approval`, `ask`, `child` and `retry`
    of an open turn; `timer` and `child` (in the background) of an agent at rest."""

    @property
    def attention(self) -> bool:
        """Whether start-up has to look at this agent. Also if it waits for a child: its end may have found nobody to tell."""
        return self.open or self.due or self.outbox > 0 or "child" in self.waits


class Head(Struct, frozen=True, gc=False):
    """Where an agent's log ends: its last seq, that record's time, the epoch that wrote it, and the index's summary."""

    agent: str
    last: int
    time: int
    epoch: int
    summary: Summary


class Snapshot(Struct, frozen=True):
    """Folded state after record `seq`, as bytes that only the writer of the batch understands."""

    seq: int
    data: bytes


class Batch(Struct, frozen=True, gc=False):
    """Records of one agent, to be written as they are or not at all.

    `follows` is the seq before the first of `items` (-1 for a new log); with a last seq other than that the unit is stale.
    `ids` are the message ids that these records make findable (`Store.find`), each with its seq. `snapshot`, if there is
    one, is of the state after the last item. `blobs`: digest (sha256, hex) → bytes.
    """

    agent: str
    epoch: int
    follows: int
    items: Sequence[Record | ChunkRun]
    summary: Summary
    ids: Mapping[str, int] = {}
    snapshot: bytes | None = None
    blobs: Mapping[str, bytes] = {}


class Delete(Struct, frozen=True):
    """Remove an agent: its name, its index entries, and every record and blob that no fork reaches."""

    agent: str
    epoch: int


class Fork(Struct, frozen=True):
    """Give a new agent the records of `source` up to `at`, without copying them; a `Batch` in the same unit follows with its
    own first record (seq `at` + 1)."""

    agent: str
    epoch: int
    source: str
    at: int


class Arrival(Struct, frozen=True):
    """An input for an agent that this process does not own; its owner takes it from the queue (`Store.arrivals`)."""

    agent: str
    data: bytes


Unit = Sequence[Batch | Delete | Fork | Arrival]
Results = list[StoreError | None]
"""One entry for each unit: None if it is on disk."""


class _AllBut:
    """Every type but one: unknown types of a newer version are in it, which no list of names could say."""

    def __init__(self, excluded: str) -> None:
        self._excluded = excluded

    def __contains__(self, type: object) -> bool:
        return type != self._excluded


NO_CHUNKS: Container[str] = _AllBut("assistant/chunk")
"""The types to read for folding: all but chunks."""


class Reader(Protocol):
    """Records in order, page by page; no transaction is held between two. A plain iterator: stop whenever you like."""

    def __aiter__(self) -> AsyncIterator[Record]: ...
    async def __anext__(self) -> Record: ...
    async def aclose(self) -> None: ...


@runtime_checkable
class Store(Protocol):
    """An engine. Every method may be called from any task of one trio run; none is called from two threads."""

    @property
    def name(self) -> str:
        """The folder or address, for messages to people."""
        ...

    @property
    def readonly(self) -> bool:
        """Whether `own` and `commit` are refused."""
        ...

    async def own(self, agent: str) -> int:
        """Take the agent over: an epoch from one counter of the store, never reused. Older epochs lose their fence."""
        ...

    async def commit(self, units: Sequence[Unit]) -> Results:
        """Write the units in one transaction, durable on return.

        Raises:
            StoreFull: there is no space; nothing was written.
            StoreError: the engine failed; nothing was written.
        """
        ...

    async def head(self, agent: str) -> Head | None:
        """The end of the agent's log; None if there is no such agent. Reads no records."""
        ...

    async def snapshot(self, agent: str) -> Snapshot | None:
        """The newest snapshot, if there is one."""
        ...

    def read(self, agent: str, after: int = -1, upto: int | None = None, types: Container[str] | None = None) -> Reader:
        """Committed records with `after` < seq ≤ `upto`, of these types only (asked by `in` alone, see `NO_CHUNKS`). Chunks are
        not touched unless `"assistant/chunk" in types`, or `types` is None.

        The first `__anext__` raises AgentNotFound for an agent that does not exist.
        """
        ...

    async def find(self, agent: str, message_id: str) -> int | None:
        """The seq of the `inbox/put` or `command/run` with this id, in the agent's own part of its log; of a message that a
        timer will put, that of the `timer/set`."""
        ...

    async def agents(
        self,
        prefix: str = "",
        labels: Mapping[str, str] | None = None,
        flag: Flag | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> list[Head]:
        """One page of agents in order of id, from the index; `after` is the last id of the page before."""
        ...

    async def blob(self, digest: str) -> bytes:
        """A big value by its digest.

        Raises:
            StoreError: there is none.
        """
        ...

    async def arrivals(self, agent: str) -> list[bytes]:
        """Inputs that others queued for this agent, oldest first. They leave the queue with the owner's next commit of the
        agent (LMDB, which has one owner, never has any)."""
        ...

    async def aclose(self) -> None:
        """Close; what was committed stays."""
        ...

    def statistics(self) -> Mapping[str, Any]:
        """Counters for people and tests: commits, flushes, frames and rows read and written."""
        ...
