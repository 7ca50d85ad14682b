"""Writing the derived tables out in parts: with each commit some rows, however much is waiting.

Everything that waits could be written in one commit, and everybody who waits for that commit would wait for all of it: thousands
of rows behind the three of a turn. So a goal is set, the end of the journal as it is now, and each commit goes a part of the way,
oldest first, and further than it moves the end. The ids of an agent may go in several parts; its head goes behind them, in one
with its flags and its blocks of the index. Only the last part says that the tables are valid up to the goal. Until then they are
ahead of what they say, which is harmless: who opens the folder reads the journal from there on, and finds some of it known.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from .lmdb_layout import Row, State, encode, encode_places, flag_key, id_key, key, pair

if TYPE_CHECKING:
    from .lmdb_env import Transaction
    from .lmdb_overlay import Overlay

Rows = dict[str, list[tuple[bytes, bytes]]]


class Part:
    """Some of what the derived tables lack: `heads` whole, some of the `ids` of each log number, flags to take `off`; `state` if
    nothing is left before the goal."""

    def __init__(self) -> None:
        self.rows: Rows = {"heads": [], "index": [], "ids": [], "flags": []}
        self.heads: list[Row] = []
        self.ids: dict[int, list[str]] = {}
        self.state: State | None = None
        self.off: list[bytes] = []

    @property
    def size(self) -> int:
        """Rows that it writes or removes."""
        return sum(map(len, self.rows.values())) + len(self.off)

    def take_ids(self, log: int, ids: dict[str, int], most: int) -> bool:
        """At most so many ids of a log; whether these were all."""
        taken = dict(islice(ids.items(), most))
        self.rows["ids"] += [(id_key(log, name), key(seq)) for name, seq in taken.items()]
        if taken:
            self.ids[log] = list(taken)
        return len(taken) == len(ids)

    def take_head(self, row: Row) -> None:
        """An agent's head, and what has to be with it."""
        self.rows["index"] += [(pair(row.log, block[1]), encode_places(block)) for block in row.full]
        self.rows["flags"] += [(flag_key(flag, row.agent), b"") for flag in row.flags - row.stored]
        self.off += [flag_key(flag, row.agent) for flag in row.stored - row.flags]
        self.rows["heads"].append((row.agent.encode(), row.encode()))
        self.heads.append(row)

    def finish(self, state: State | None) -> None:
        """Nothing more will be taken; rows go in order of their keys, which touches each page once."""
        self.rows = {table: sorted(rows) for table, rows in self.rows.items() if rows}
        if state is not None:
            self.state = state
            self.rows["meta"] = [(b"state", encode(state))]

    def unflag(self, flags: Any, txn: Transaction) -> None:
        """Remove the flags that are over from their table."""
        for raw in self.off:
            txn.delete(raw, db=flags)


def next_part(overlay: Overlay, most: int) -> Part:
    """At most so many rows of the way to the overlay's goal; a head may add its own. Memory stays as it is."""
    goal, part, old = overlay.goal, Part(), overlay.state
    assert goal is not None
    reached = True
    for row in overlay.dirty.values():  # oldest first: whoever is written out goes to the end with its next frame
        if row.since > goal.position:
            break
        left = most - part.size
        if left <= 0 or not part.take_ids(row.log, overlay.ids.get(row.log, {}), left):
            reached = False
            break
        part.take_head(row)
    part.finish(State(goal.position, old.changes, old.position, old.log) if reached else None)
    return part
