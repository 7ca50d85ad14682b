"""A store that fails on demand is, but for its faults, the store it wraps: tests above it must not see another one."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.storage.conformance_kit import batch, create, note, seqs, write
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import StoreFull
from callboard.storage.store import Store
from callboard.storage.testing import FaultyStore


async def test_everything_else_is_the_inner_store() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner)
    assert isinstance(store, Store)
    epoch = await create(store, "a")
    await write(store, [batch("a", epoch, [note(1)], ids={"m": 1}, snapshot=b"state", blobs={"digest": b"data"})])
    assert (store.name, store.readonly) == (inner.name, False)
    assert await seqs(store, "a") == [0, 1]
    assert await store.head("a") == await inner.head("a")
    assert await store.snapshot("a") == await inner.snapshot("a")
    assert await store.find("a", "m") == 1
    assert await store.blob("digest") == b"data"
    assert await store.arrivals("a") == []
    assert [head.agent for head in await store.agents()] == ["a"]
    assert store.statistics() == inner.statistics()
    assert len(store.commits) == 2
    await store.aclose()


async def test_faults_are_for_so_many_commits_and_write_nothing() -> None:
    store = FaultyStore(MemoryStore())
    epoch = await create(store, "a")
    store.fail_next(StoreFull("no space"), times=2)
    for _ in range(2):
        with pytest.raises(StoreFull):
            await store.commit([[batch("a", epoch, [note(1)])]])
    await write(store, [batch("a", epoch, [note(1)])])
    assert await seqs(store, "a") == [0, 1]


async def test_what_is_held_goes_on_when_it_is_released() -> None:
    store = FaultyStore(MemoryStore())
    epoch = await create(store, "a")
    store.hold()
    store.hold()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, store, [batch("a", epoch, [note(1)])])
        await wait_all_tasks_blocked()
        assert (store.waiting, await seqs(store, "a")) == (1, [0])
        store.release()
        store.release()
    assert (store.waiting, await seqs(store, "a")) == (0, [0, 1])
