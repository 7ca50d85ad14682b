"""The tables of the LMDB engine, their keys and rows.

The truth is `journal` and `chunks` (by position), `logs`, `snapshots`, `blobs`, `held`, `counts` and `reach`: what a commit
changes there is in its own transaction. `heads`, `flags`, `index` and `ids` are derived: they are written now and then, and
whoever opens the folder reads the journal's tail behind the position they are valid up to (some rows may be ahead of it). A head
row per commit would land on a page of its own for each agent; written lazily it costs a tenth.

    meta       name               -> format; session; state (valid position, changes, floors of position and log number)
    journal    position           -> frame                             one batch; appended
    chunks     position           -> packed runs of that frame         appended
    logs       log number         -> (agent or None, ancestry)         None: deleted, but a fork shares some of it
    heads      agent              -> Head row with the newest positions
    flags      a|t, agent         -> nothing                           attention, timer
    index      log, first seq     -> 32 positions
    ids        log, message id    -> seq
    snapshots  log                -> (seq, bytes)
    blobs      digest             -> bytes
    counts     digest             -> how many logs hold it
    held       log, digest        -> seq of the batch that brought it
    reach      log, sharing log   -> last seq shared
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from hashlib import sha256
from struct import Struct as Packing
from typing import Final

import msgspec
from msgspec import Struct

from ..store import Flag, Head, Summary

LAYOUT: Final = 1
"""The version of these tables."""
TABLES: Final = (
    "meta",
    "journal",
    "chunks",
    "logs",
    "heads",
    "flags",
    "index",
    "ids",
    "snapshots",
    "blobs",
    "counts",
    "held",
    "reach",
)
BLOCK: Final = 32
"""Frames to one row of the index."""

Ancestry = list[tuple[int, int]]
"""What a log shares, oldest first: (log number, last seq of it)."""

_one, _two = Packing(">Q"), Packing(">QQ")
key, pair = _one.pack, _two.pack
_encode = msgspec.msgpack.Encoder().encode


def unkey(data: bytes) -> int:
    """The number in a key."""
    return int.from_bytes(data[:8], "big")


def id_key(log: int, message_id: str) -> bytes:
    """The key of a message id: as it is, so that minted ones stay neighbours; a very long one by its digest."""
    raw = message_id.encode("utf-8", "surrogatepass")
    return key(log) + (b"=" + raw if len(raw) <= 400 else b"#" + sha256(raw).digest())


def flag_key(flag: Flag, agent: str) -> bytes:
    """The key under which an agent with this flag is found."""
    return flag[:1].encode() + agent.encode()


class Format(Struct, frozen=True):
    """What the folder says of itself; both numbers are refused if they are higher than ours."""

    callboard: int
    records: int


class State(Struct, frozen=True, array_like=True):
    """Derived tables hold everything up to position `valid`. `changes` counts deletes, which change them otherwise. The floors
    keep positions and log numbers from being given out twice after a delete."""

    valid: int = 0
    changes: int = 0
    position: int = 0
    log: int = 0


class LogRow(Struct, frozen=True, array_like=True):
    """Whose log a number is, and what it shares."""

    agent: str | None
    below: Ancestry


class _HeadRow(Struct, frozen=True, array_like=True):
    log: int
    last: int
    time: int
    epoch: int
    summary: Summary
    below: Ancestry
    recent: list[int]


_decode_head = msgspec.msgpack.Decoder(_HeadRow).decode
_decode_log = msgspec.msgpack.Decoder(LogRow).decode
_decode_places = msgspec.msgpack.Decoder(list[int]).decode
_decode_state = msgspec.msgpack.Decoder(State).decode
_decode_format = msgspec.msgpack.Decoder(Format).decode
_decode_snapshot = msgspec.msgpack.Decoder(tuple[int, bytes]).decode


class Row:
    """An agent's head in memory. `recent` and `full` are the positions that the index does not have yet, as flat pairs of
    (position, first seq); `stored` are the flags that the tables have, `since` is the oldest position that they do not have."""

    __slots__ = ("agent", "below", "epoch", "full", "last", "log", "recent", "since", "stored", "summary", "time")

    def __init__(self, agent: str, log: int, below: Ancestry) -> None:
        self.agent, self.log, self.below = agent, log, below
        self.last = below[-1][1] if below else -1
        self.time = self.epoch = self.since = 0
        self.summary, self.stored = Summary(), frozenset[Flag]()
        self.recent = array("q")
        self.full: list[array[int]] = []

    def add(self, position: int, first: int) -> None:
        """One more frame."""
        self.recent += array("q", (position, first))
        if len(self.recent) == 2 * BLOCK:
            self.full.append(self.recent)
            self.recent = array("q")

    def unindexed(self) -> array[int]:
        """The positions that the index does not have, oldest first."""
        places = array("q")
        for block in (*self.full, self.recent):
            places += block
        return places

    @property
    def flags(self) -> frozenset[Flag]:
        """The flags that the summary asks for."""
        found: list[Flag] = []
        if self.summary.attention:
            found.append("attention")
        if self.summary.timer is not None:
            found.append("timer")
        return frozenset(found)

    def head(self) -> Head:
        """The row as the store's callers see it."""
        return Head(self.agent, self.last, self.time, self.epoch, self.summary)

    def encode(self) -> bytes:
        """The row of the table `heads`."""
        return _encode(_HeadRow(self.log, self.last, self.time, self.epoch, self.summary, self.below, _to_steps(self.recent)))

    @classmethod
    def decode(cls, agent: str, data: bytes) -> Row:
        """The row that the table `heads` has."""
        stored = _decode_head(data)
        row = cls(agent, stored.log, stored.below)
        row.last, row.time, row.epoch, row.summary = stored.last, stored.time, stored.epoch, stored.summary
        row.recent = _from_steps(stored.recent)
        row.stored = row.flags
        return row


def _to_steps(places: Iterable[int]) -> list[int]:
    # Steps instead of positions: two bytes each instead of five.
    steps: list[int] = []
    position = first = 0
    flat = iter(places)
    for p, f in zip(flat, flat, strict=True):
        steps += (p - position, f - first)
        position, first = p, f
    return steps


def _from_steps(steps: list[int]) -> array[int]:
    places = array("q")
    position = first = 0
    for p, f in zip(steps[::2], steps[1::2], strict=True):
        position, first = position + p, first + f
        places.append(position)
        places.append(first)
    return places


def pairs(places: array[int]) -> Iterator[tuple[int, int]]:
    """Flat pairs as (position, first seq)."""
    return zip(places[::2], places[1::2], strict=True)


def encode_places(places: Iterable[int]) -> bytes:
    """A row of the table `index`."""
    return _encode(_to_steps(places))


def decode_places(data: bytes) -> array[int]:
    """The positions in a row of the table `index`."""
    return _from_steps(_decode_places(data))


def encode(value: State | LogRow | Format | tuple[int, bytes]) -> bytes:
    """Any other row."""
    return _encode(value)


def decode_log(data: bytes) -> LogRow:
    """A row of the table `logs`."""
    return _decode_log(data)


def decode_state(data: bytes | None) -> State:
    """The row `state`; a store that never wrote one begins at nothing."""
    return State() if data is None else _decode_state(data)


def decode_format(data: bytes) -> Format:
    """The row `format`."""
    return _decode_format(data)


def decode_snapshot(data: bytes) -> tuple[int, bytes]:
    """A row of the table `snapshots`."""
    return _decode_snapshot(data)
