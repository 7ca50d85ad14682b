"""What only the memory engine can show: two owners over one lot of data, and images of a crash."""

from __future__ import annotations

import pytest
import trio

from callboard.storage.conformance_kit import batch, chunks, create, created, fork, names, note, put, seqs, write
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import FenceLost
from callboard.storage.store import Arrival, Delete, Unit


async def test_c278_an_input_for_an_agent_owned_elsewhere_arrives_with_the_senders_commit() -> None:
    mine = MemoryStore("mine")
    yours = mine.join("yours")
    sender, receiver = await create(mine, "sender"), await create(yours, "receiver")
    results = await mine.commit([[batch("receiver", receiver, [put(1, "m")])]])
    assert names(results) == [(FenceLost, "receiver")]
    await write(mine, [Arrival("receiver", b"m1"), batch("sender", sender, [note(1)])])
    assert await yours.arrivals("receiver") == [b"m1"]
    assert await mine.arrivals("sender") == []
    stale: Unit = [Arrival("receiver", b"lost"), batch("sender", sender, [note(9)])]
    assert (await mine.commit([stale]))[0] is not None
    assert await yours.arrivals("receiver") == [b"m1"]


async def test_c278_the_owner_moves_it_into_the_log_once() -> None:
    mine = MemoryStore("mine")
    yours = mine.join("yours")
    sender, receiver = await create(mine, "sender"), await create(yours, "receiver")
    await write(mine, [Arrival("receiver", b"m1"), batch("sender", sender, [note(1)])])
    await write(yours, [batch("receiver", receiver, [note(1, "did not look")])])
    assert await yours.arrivals("receiver") == [b"m1"]
    await write(mine, [Arrival("receiver", b"m2"), batch("sender", sender, [note(2)])])
    await yours.commit([[batch("receiver", receiver, [put(7, "stale")])]])
    assert (await yours.arrivals("receiver"))[:1] == [b"m1"]
    await write(mine, [Arrival("receiver", b"m3"), batch("sender", sender, [note(3)])])
    await write(yours, [batch("receiver", receiver, [put(2, "m1"), put(3, "m2")])])
    assert await yours.arrivals("receiver") == [b"m3"]
    crashed = mine.copy()
    assert await crashed.arrivals("receiver") == [b"m3"]
    await write(yours, [Delete("receiver", receiver)])
    assert await yours.arrivals("receiver") == []


async def test_ownership_moves_between_two_owners() -> None:
    mine = MemoryStore("mine")
    yours = mine.join("yours")
    first = await create(mine, "a")
    second = await yours.own("a")
    assert names(await mine.commit([[batch("a", first, [note(1)])]])) == [(FenceLost, "a")]
    assert names(await mine.commit([[batch("a", second, [note(1)])]])) == [(FenceLost, "a")]
    await write(yours, [batch("a", second, [note(1)])])
    await mine.aclose()
    assert await seqs(yours, "a") == [0, 1]


async def test_a_copy_is_independent_in_both_directions() -> None:
    store = MemoryStore()
    epoch = await create(store, "a", 4)
    forked = await fork(store, "f", "a", 2)
    copy = store.copy()
    theirs = await copy.own("a")
    await write(store, [batch("a", epoch, [note(4)])], [Delete("f", forked)])
    await write(copy, [batch("a", theirs, [note(4, "theirs"), note(5)])])
    assert await seqs(store, "a") == [0, 1, 2, 3, 4]
    assert await seqs(copy, "a") == [0, 1, 2, 3, 4, 5]
    await write(copy, [Delete("a", theirs)])
    assert await seqs(copy, "f") == [0, 1, 2, 3]
    assert await seqs(store, "a") == [0, 1, 2, 3, 4]


async def test_a_batch_is_taken_as_it_is_when_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that goes on growing after the commit was asked for does not grow in the store."""
    store = MemoryStore()
    epoch = await store.own("a")
    run, checkpoint = chunks(1, 2), trio.lowlevel.checkpoint

    async def meanwhile() -> None:
        run.times.append(run.times[-1])
        run.chunks.append(run.chunks[0])
        await checkpoint()

    with monkeypatch.context() as patch:
        patch.setattr(trio.lowlevel, "checkpoint", meanwhile)
        await write(store, [batch("a", epoch, [created("a"), run])])
    assert await seqs(store, "a") == [0, 1, 2]
