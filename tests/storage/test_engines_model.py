"""Random commits, forks, deletes, crashes and reopenings, against a model of plain dicts."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import hypothesis.strategies as st
import pytest
import trio
from benches import ENGINES, engine_bench
from hypothesis import given, settings

from callboard.storage.conformance_kit import Bench, batch, chunks, created, note, put
from callboard.storage.events import LogForked
from callboard.storage.records import Record
from callboard.storage.runs import ChunkRun
from callboard.storage.store import Delete, Fork, Store, Summary

AGENTS = ("a", "b", "c", "d")
Item = Record | ChunkRun

step = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(AGENTS), st.lists(st.integers(-4, 4), min_size=1, max_size=4)),
    st.tuples(st.just("fork"), st.sampled_from(AGENTS), st.sampled_from(AGENTS), st.integers(0, 30)),
    st.tuples(st.just("delete"), st.sampled_from(AGENTS)),
    st.tuples(st.just("read"), st.sampled_from(AGENTS), st.integers(-1, 20), st.integers(0, 30)),
    st.tuples(st.just("reopen")),
    st.tuples(st.just("crash")),
)


class Model:
    """What the store must say: agent → records, and the ids and blobs that go with them."""

    def __init__(self) -> None:
        self.logs: dict[str, list[Record]] = {}
        self.ids: dict[str, dict[str, int]] = {}
        self.blobs: dict[str, list[tuple[str, int]]] = {}
        self.due: dict[str, bool] = {}
        self.made = 0


class Run:
    """One random life of a store."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.model = bench, Model()
        self.store: Store

    async def live(self, steps: Sequence[tuple[object, ...]]) -> None:
        """Do the steps, compare after each of those that move the data, and at the end."""
        self.store = await self.bench.open()
        for name, *rest in steps:
            await getattr(self, f"do_{name}")(*rest)
        await self.do_reopen()
        await self.store.aclose()

    async def do_write(self, agent: str, sizes: list[int]) -> None:
        """Sizes below zero are runs of chunks, 0 a message with an id and a blob, others so many notes."""
        model, records = self.model, self.model.logs.setdefault(agent, [])
        items: list[Item] = []
        ids: dict[str, int] = {}
        blobs: dict[str, bytes] = {}
        follows = seq = len(records) - 1
        if not records:
            items.append(created(agent))
            seq = 0
        for size in sizes:
            if size < 0:
                items.append(chunks(seq + 1, -size))
            elif size == 0:
                model.made += 1
                items.append(put(seq + 1, f"m{model.made}"))
                ids[f"m{model.made}"] = seq + 1
                digest = f"{model.made % 3:064}"
                blobs[digest] = digest.encode()
            else:
                items += [note(seq + 1 + i, f"{agent}{model.made}") for i in range(size)]
            seq += abs(size) or 1
        due = len(sizes) % 2 == 0
        epoch = await self.store.own(agent)
        summary = Summary(name="t", due=due)
        results = await self.store.commit([[batch(agent, epoch, items, ids=ids, blobs=blobs, follows=follows, summary=summary)]])
        assert results == [None]
        records += [r for i in items for r in ([i] if isinstance(i, Record) else i.records())]
        model.ids.setdefault(agent, {}).update(ids)
        model.blobs.setdefault(agent, []).extend((d, follows + 1) for d in blobs)
        model.due[agent] = due

    async def do_fork(self, agent: str, source: str, at: int) -> None:
        model = self.model
        possible = agent not in model.logs and at < len(model.logs.get(source, ()))
        epoch = await self.store.own(agent)
        first = Record(at + 1, 9000, LogForked(agent=agent, name="t", source=source, at=at))
        results = await self.store.commit([[Fork(agent, epoch, source, at), batch(agent, epoch, [first])]])
        assert (results == [None]) == possible
        if possible:
            model.logs[agent] = [*model.logs[source][: at + 1], first]
            model.ids[agent] = {}
            model.blobs[agent] = [b for b in model.blobs.get(source, []) if b[1] <= at]
            model.due[agent] = False

    async def do_delete(self, agent: str) -> None:
        epoch = await self.store.own(agent)
        results = await self.store.commit([[Delete(agent, epoch)]])
        assert (results == [None]) == (agent in self.model.logs)
        for table in (self.model.logs, self.model.ids, self.model.blobs, self.model.due):
            table.pop(agent, None)

    async def do_read(self, agent: str, after: int, upto: int) -> None:
        if agent in self.model.logs:
            got = [r async for r in self.store.read(agent, after, upto)]
            assert got == self.model.logs[agent][after + 1 : upto + 1]

    async def do_reopen(self) -> None:
        await self.compare()
        self.store = await self.bench.reopen(self.store)
        await self.compare()

    async def do_crash(self) -> None:
        self.store = await self.bench.crash(self.store)
        await self.compare()

    async def compare(self) -> None:
        """The store says what the model says."""
        model, store = self.model, self.store
        assert [(h.agent, h.last) for h in await store.agents()] == [(a, len(r) - 1) for a, r in sorted(model.logs.items())]
        assert [h.agent for h in await store.agents(flag="attention")] == sorted(a for a, due in model.due.items() if due)
        for agent, records in model.logs.items():
            assert [r async for r in store.read(agent)] == records
            types = {"inbox/put", "log/forked"}
            assert [r async for r in store.read(agent, types=types)] == [r for r in records if r.type in types]
            assert {m: await store.find(agent, m) for m in model.ids[agent]} == model.ids[agent]
            for digest, _ in model.blobs[agent]:
                assert await store.blob(digest) == digest.encode()


@pytest.mark.parametrize("engine", ENGINES)
@settings(deadline=None, max_examples=60)
@given(steps=st.lists(step, max_size=25))
def test_c232_any_life_of_a_store_is_that_of_the_model(engine: str, steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder, engine_bench(engine, Path(folder) / "s") as bench:
        trio.run(Run(bench).live, steps)
