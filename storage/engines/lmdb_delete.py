"""The work of a commit that must look before it writes: deleting a log, and holding a blob.

A deleted log loses its name at once, and every frame and blob that no fork reaches. What forks share stays until the last of
them goes: each log that shares has a row in `reach`, so a delete knows without a search how much has to stay.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from ..codec import cut_frame
from .lmdb_layout import (
    BLOCK,
    Ancestry,
    LogRow,
    decode_log,
    decode_places,
    encode,
    encode_places,
    flag_key,
    key,
    pair,
    pairs,
    unkey,
)

if TYPE_CHECKING:
    from .lmdb_env import Tables, Transaction


class Doomed(NamedTuple):
    """A log to delete; `places` are the positions that the index may not have."""

    agent: str
    log: int
    below: Ancestry
    places: array[int]


def hold_blob(tables: Tables, log: int, digest: str, data: bytes, seq: int, txn: Transaction) -> None:
    """Store the blob, once, and count that this log holds it."""
    name = digest.encode()
    if not txn.put(key(log) + name, key(seq), overwrite=False, db=tables["held"]):
        return
    txn.put(name, data, overwrite=False, db=tables["blobs"])
    count = unkey(txn.get(name, key(0), db=tables["counts"]))
    txn.put(name, key(count + 1), db=tables["counts"])


def delete_log(tables: Tables, doomed: Doomed, txn: Transaction) -> None:
    """Remove the agent, and of its log and of those below it what nobody reaches any more."""
    name = doomed.agent.encode()
    txn.delete(name, db=tables["heads"])
    txn.delete(flag_key("attention", doomed.agent), db=tables["flags"])
    txn.delete(flag_key("timer", doomed.agent), db=tables["flags"])
    txn.delete(key(doomed.log), db=tables["snapshots"])
    for raw, _ in _with_prefix(txn, tables["ids"], key(doomed.log)):
        txn.delete(raw, db=tables["ids"])
    _cut(tables, txn, doomed.log, doomed.places)
    for log, _ in doomed.below:
        txn.delete(pair(log, doomed.log), db=tables["reach"])
        stored = txn.get(key(log), db=tables["logs"])
        if stored is not None and decode_log(stored).agent is None:
            _cut(tables, txn, log, array("q"))


def _cut(tables: Tables, txn: Transaction, log: int, more: array[int]) -> None:
    """Cut a log without a name back to what other logs reach of it."""
    upto = max((unkey(value) for _, value in _with_prefix(txn, tables["reach"], key(log))), default=-1)
    _cut_frames(tables, txn, log, more, upto)
    _cut_blobs(tables, txn, log, upto)
    if upto < 0:
        txn.delete(key(log), db=tables["logs"])
    else:
        # Its ancestry is of no use any more: whoever shares this log lists those below it too.
        txn.put(key(log), encode(LogRow(None, [])), db=tables["logs"])


def _cut_frames(tables: Tables, txn: Transaction, log: int, more: array[int], upto: int) -> None:
    places = dict(pairs(more))
    for raw, value in _with_prefix(txn, tables["index"], key(log)):
        places.update(pairs(decode_places(value)))
        txn.delete(raw, db=tables["index"])
    kept = array("q")
    for position, first in sorted(places.items()):
        if first > upto:
            txn.delete(key(position), db=tables["journal"])
            txn.delete(key(position), db=tables["chunks"])
        else:
            kept.extend((position, first))
    if kept:
        _cut_last(tables, txn, kept[-2], upto)
    for at in range(0, len(kept), 2 * BLOCK):
        block = kept[at : at + 2 * BLOCK]
        txn.put(pair(log, block[1]), encode_places(block), db=tables["index"])


def _cut_last(tables: Tables, txn: Transaction, position: int, upto: int) -> None:
    # The last frame that stays may hold more than what is shared.
    name = key(position)
    frame = txn.get(name, db=tables["journal"])
    assert frame is not None
    chunks = txn.get(name, db=tables["chunks"])
    left, chunks_left = cut_frame(frame, chunks, upto)
    txn.put(name, left, db=tables["journal"])
    if chunks_left is not None:
        txn.put(name, chunks_left, db=tables["chunks"])
    else:
        txn.delete(name, db=tables["chunks"])


def _cut_blobs(tables: Tables, txn: Transaction, log: int, upto: int) -> None:
    for raw, value in _with_prefix(txn, tables["held"], key(log)):
        if unkey(value) <= upto:
            continue
        digest = raw[8:]
        txn.delete(raw, db=tables["held"])
        count = unkey(txn.get(digest, key(1), db=tables["counts"])) - 1
        if count:
            txn.put(digest, key(count), db=tables["counts"])
        else:
            txn.delete(digest, db=tables["counts"])
            txn.delete(digest, db=tables["blobs"])


def _with_prefix(txn: Transaction, table: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All rows whose key begins so; a list, since the caller deletes while it looks."""
    cursor = txn.cursor(db=table)
    found: list[tuple[bytes, bytes]] = []
    if cursor.set_range(prefix):
        for raw, value in cursor.iternext():
            if not raw.startswith(prefix):
                break
            found.append((raw, value))
    return iter(found)
