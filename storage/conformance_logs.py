"""The conformance checks about logs that share: forks, deletes, and the blobs that go with them.

See `conformance.py` for the rest, and for how to run them.
"""

from __future__ import annotations

from .conformance_kit import Bench, batch, chunks, create, created, expect, fork, names, note, put, seqs, texts, write
from .errors import AgentDeleted, AgentNotFound, FenceLost, StaleAppend, StoreError, UsageError
from .events import AssistantChunk
from .store import Delete, Fork, Reader, Summary


async def forks_share_and_part(bench: Bench) -> None:
    """C237: each reads the prefix and its own, never the other's; a fork of a fork likewise, also at the same seq."""
    store = await bench.open()
    epoch = await store.own("a")
    await write(store, [batch("a", epoch, [created("a"), note(1, "a1"), chunks(2, 6), note(8, "a8")])])
    await fork(store, "mid", "a", 4)
    mid = await store.own("mid")
    await write(store, [batch("mid", mid, [note(6, "m6"), note(7, "m7")])], [batch("a", epoch, [note(9, "a9")])])
    await fork(store, "low", "mid", 2)
    await fork(store, "high", "mid", 6)
    await fork(store, "end", "high", 7)
    for _ in range(2):
        assert await texts(store, "a") == ["a1", "a8", "a9"]
        assert await texts(store, "mid") == ["a1", "m6", "m7"]
        assert await texts(store, "high") == ["a1", "m6"]
        assert await seqs(store, "low") == list(range(4))
        assert await seqs(store, "end") == list(range(9))
        assert await seqs(store, "end", 3, 6) == [4, 5, 6]
        prefix = [r async for r in store.read("mid", upto=4)]
        assert prefix == [r async for r in store.read("a", upto=4)]
        assert isinstance(prefix[4].event, AssistantChunk)
        assert [r.type async for r in store.read("end", types={"log/forked"})] == ["log/forked"] * 3
        store = await bench.reopen(store)
    await store.aclose()


async def forks_that_cannot_be(bench: Bench) -> None:
    """A fork of nobody, past the end, over an existing agent, or without a first record."""
    store = await bench.open()
    await create(store, "a", 3)
    await create(store, "b")
    f, b = await store.own("f"), await store.own("b")
    first = batch("f", f, [note(4)])
    assert names(await store.commit([[Fork("f", f, "nobody", 0), batch("f", f, [note(1)])]])) == [(StaleAppend, "nobody")]
    assert names(await store.commit([[Fork("f", f, "a", 3), first]])) == [(StaleAppend, "a")]
    assert names(await store.commit([[Fork("b", b, "a", 1), batch("b", b, [note(2)])]])) == [(StaleAppend, "b")]
    assert names(await store.commit([[Fork("f", f - 1, "a", 1), batch("f", f, [note(2)])]])) == [(FenceLost, "f")]
    await expect(UsageError, store.commit([[Fork("f", f, "a", 1)]]))
    assert await store.head("f") is None
    await store.aclose()


async def a_deleted_agent_is_gone(bench: Bench) -> None:
    """C238: nothing of it is found; late records are refused; the id begins again at seq 0 under a higher epoch."""
    store = await bench.open()
    old = await create(store, "a", 300, summary=Summary(name="a", open=True, timer=7))
    await write(store, [batch("a", old, [put(300, "m")], ids={"m": 300}, snapshot=b"s", blobs={"ab" * 32: b"b"})])
    reader = store.read("a")
    assert (await anext(reader)).seq == 0
    results = await store.commit([[batch("a", old, [note(301, "last words")]), Delete("a", old)], [batch("a", old, [note(302)])]])
    assert names(results)[0] is None
    assert results[1] is not None
    await expect(AgentDeleted, _drain(reader))
    for _ in range(2):
        assert (await store.head("a"), await store.snapshot("a"), await store.find("a", "m")) == (None, None, None)
        assert await store.agents(flag="attention") == await store.agents(flag="timer") == await store.agents() == []
        await expect(AgentNotFound, seqs(store, "a"))
        await expect(StoreError, store.blob("ab" * 32))
        assert names(await store.commit([[batch("a", old, [note(302)])]])) == [(FenceLost, "a")]
        store = await bench.reopen(store)
    new = await create(store, "a")
    assert new > old
    assert await store.find("a", "m") is None
    assert names(await store.commit([[batch("a", old, [note(1)])], [Delete("a", old)]])) == [(FenceLost, "a")] * 2
    assert await seqs(store, "a") == [0]
    await store.aclose()


async def _drain(reader: Reader) -> None:
    async for _ in reader:
        pass


async def deletes_leave_what_forks_reach(bench: Bench) -> None:
    """C238: a shared segment and its blobs go with the last fork that reaches them; forks of forks reach through the dead."""
    store = await bench.open()
    epoch = await store.own("a")
    early, late = "aa" * 32, "bb" * 32
    await write(store, [batch("a", epoch, [created("a"), note(1, "a1")], blobs={early: b"early"})])
    await write(store, [batch("a", epoch, [note(2, "a2"), chunks(3, 5), note(8, "a8")], blobs={late: b"late"})])
    f = await fork(store, "f", "a", 5)
    await write(store, [batch("f", f, [note(7, "f7")], blobs={late: b"late"})])
    g = await fork(store, "g", "f", 7)
    brief = await fork(store, "brief", "a", 3)
    whole = [r async for r in store.read("g")]
    await write(store, [Delete("brief", brief)])
    assert await seqs(store, "a") == list(range(9))
    await write(store, [Delete("a", epoch)])
    await write(store, [Delete("f", f)])
    store = await bench.reopen(store)
    assert [r async for r in store.read("g")] == whole
    assert (await store.blob(early), await store.blob(late)) == (b"early", b"late")
    again = await create(store, "a", 2)
    assert await seqs(store, "g") == list(range(9))
    g = await store.own("g")
    await write(store, [Delete("g", g)], [Delete("a", await store.own("a") or again)])
    for digest in (early, late):
        await expect(StoreError, store.blob(digest))
    assert await store.agents() == []
    await store.aclose()


async def blobs_are_stored_once(bench: Bench) -> None:
    """C253: a blob of any size is whole right after the commit; two agents hold one copy, until both are gone."""
    store = await bench.open()
    data = bytes(range(256)) * 4096
    digest = "cd" * 32
    a, b = await store.own("a"), await store.own("b")
    await write(
        store, [batch("a", a, [created("a")], blobs={digest: data})], [batch("b", b, [created("b")], blobs={digest: data})]
    )
    await write(store, [batch("a", a, [note(1)], blobs={digest: data})])
    await write(store, [Delete("a", a)])
    store = await bench.crash(store)
    assert await store.blob(digest) == data
    await write(store, [Delete("b", await store.own("b"))])
    await expect(StoreError, store.blob(digest))
    await store.aclose()
