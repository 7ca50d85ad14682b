"""Folding a log from the store: the newest snapshot and what came after it, or the prefix up to a seq. No chunk is read."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from ..storage.errors import StoreError
from ..storage.records import refuse_unknown
from ..storage.store import NO_CHUNKS, Snapshot, Store
from .state import AgentState

_log = logging.getLogger("callboard")


async def fold_log(store: Store, agent: str) -> AgentState:
    """The state at the log's end.

    Raises:
        AgentNotFound: there is no such agent.
        UnknownRecord: a newer version has written what this one does not know.
        StoreError: what is on disk cannot be read.
    """
    with _readable(agent):
        state, after = _begin(agent, await store.snapshot(agent))
        async for record in store.read(agent, after, types=NO_CHUNKS):
            refuse_unknown(record, agent)
            state.apply(record.seq, record.time, record.event)
    return state


async def fold_prefix(store: Store, agent: str, upto: int) -> tuple[AgentState, int]:
    """The state at seq `upto`, and the time of that record (Unix ms).

    Raises:
        AgentNotFound, UnknownRecord, StoreError: as for `fold_log`.
    """
    time = 0
    with _readable(agent):
        snapshot = await store.snapshot(agent)
        if snapshot is not None and snapshot.seq > upto:
            snapshot = None  # there is no other; what came before it is folded from the beginning
        state, after = _begin(agent, snapshot)
        async for record in store.read(agent, after, upto, NO_CHUNKS):
            refuse_unknown(record, agent)
            state.apply(record.seq, record.time, record.event)
        async for record in store.read(agent, upto - 1, upto):
            time = record.time
    return state, time


def _begin(agent: str, snapshot: Snapshot | None) -> tuple[AgentState, int]:
    """What to fold on from, and behind which seq. A snapshot only saves time: one that cannot be read here is passed over."""
    if snapshot is not None:
        try:
            return AgentState.load(snapshot.data), snapshot.seq
        except msgspec.DecodeError as error:
            _log.warning("the snapshot of %r is of no use here, so its whole log is folded: %s", agent, error)
    return AgentState(), -1


@contextmanager
def _readable(agent: str) -> Generator[None]:
    try:
        yield
    except msgspec.DecodeError as error:
        text = f"the log of {agent!r} cannot be read: {error}; `callboard verify` says where, a backup has what was there"
        raise StoreError(text, agent=agent) from error
