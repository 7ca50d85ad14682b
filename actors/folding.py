"""Folding a log from the store: the newest snapshot and what came after it, or the prefix up to a seq. No chunk is read."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import msgspec

from ..storage.errors import StoreError
from ..storage.records import refuse_unknown
from ..storage.store import NO_CHUNKS, Store
from .state import AgentState


async def fold_log(store: Store, agent: str) -> AgentState:
    """The state at the log's end.

    Raises:
        AgentNotFound: there is no such agent.
        UnknownRecord: a newer version has written what this one does not know.
        StoreError: what is on disk cannot be read.
    """
    with _readable(agent):
        snapshot = await store.snapshot(agent)
        state = AgentState() if snapshot is None else AgentState.load(snapshot.data)
        async for record in store.read(agent, -1 if snapshot is None else snapshot.seq, types=NO_CHUNKS):
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
        state = AgentState() if snapshot is None else AgentState.load(snapshot.data)
        async for record in store.read(agent, -1 if snapshot is None else snapshot.seq, upto, NO_CHUNKS):
            refuse_unknown(record, agent)
            state.apply(record.seq, record.time, record.event)
        async for record in store.read(agent, upto - 1, upto):
            time = record.time
    return state, time


@contextmanager
def _readable(agent: str) -> Generator[None]:
    try:
        yield
    except msgspec.DecodeError as error:
        text = f"the log of {agent!r} cannot be read: {error}; `callboard verify` says where, a backup has what was there"
        raise StoreError(text, agent=agent) from error
