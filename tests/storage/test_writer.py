"""The log and its writer when the engine fails: whoever waits hears why, and nothing is written behind anybody's back."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.conformance_kit import seqs
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import CommitFailed, StoreError, StoreFull, UsageError
from callboard.storage.log import Log
from callboard.storage.store import Snapshot, Summary
from callboard.storage.testing import FaultyStore
from callboard.storage.writer import Writer

NOTE = e.Note(kind="k")


class Nothing:
    """A state that keeps nothing."""

    def apply(self, seq: int, time: int, event: e.Event) -> None:
        """Keep nothing."""

    def summary(self) -> Summary:
        """A name."""
        return Summary(name="n")

    def dump(self) -> bytes:
        """Nothing."""
        return b""


class Bench:
    """A writer over a store that fails on demand, and logs to write."""

    def __init__(self) -> None:
        self.inner = MemoryStore()
        self.store = FaultyStore(self.inner)
        self.writer = Writer(self.store)

    async def log(self, agent: str) -> Log[Nothing]:
        """A new agent's log, with its first record on disk."""
        log = Log(agent, await self.store.own(agent), Nothing(), self.writer)
        log.append(e.LogCreated(format=1, agent=agent, name="n"))
        await log.commit()
        return log


@asynccontextmanager
async def benched() -> AsyncGenerator[Bench]:
    bench = Bench()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.writer.run)
        yield bench
        bench.writer.stop()


@pytest.mark.parametrize("error", [StoreFull("no space"), ZeroDivisionError("a bug of the engine")])
async def test_an_error_of_the_engine_reaches_all_who_wait_and_what_comes_after(error: Exception) -> None:
    async with benched() as bench:
        first, second = await bench.log("a"), await bench.log("b")
        bench.store.fail_next(error)
        heard: list[BaseException | None] = []

        async def waits(log: Log[Nothing]) -> None:
            with pytest.raises(StoreError) as raised:
                await log.commit()
            heard.append(raised.value if raised.value is error else raised.value.__cause__)

        async with trio.open_nursery() as nursery:
            for log in (first, second):
                log.append(NOTE)
                nursery.start_soon(waits, log)
        assert heard == [error, error]
        for log in (first, second):
            with pytest.raises(CommitFailed):
                log.append(NOTE)
            with pytest.raises(CommitFailed):
                log.append_chunk(1, 1, c.text_delta(0, "a"))
            with pytest.raises(CommitFailed):
                await log.commit()
            with pytest.raises(CommitFailed):
                await log.wait_beyond(0)
        await (await bench.log("c")).commit()
    assert [await seqs(bench.inner, agent) for agent in "abc"] == [[0], [0], [0]]


async def test_what_was_joined_to_a_tail_that_falls_falls_with_it() -> None:
    async with benched() as bench:
        first, second = await bench.log("a"), await bench.log("b")
        first.append(NOTE)
        second.append(NOTE)
        first.join(second)
        first.poison(StoreError("a torn page"))
        with pytest.raises(CommitFailed, match="'b' could not be written"):
            await second.commit()
    assert [await seqs(bench.inner, agent) for agent in "ab"] == [[0], [0]]


async def test_a_snapshot_is_written_also_if_nothing_else_is() -> None:
    async with benched() as bench:
        log = await bench.log("a")
        assert await bench.inner.snapshot("a") is None
        log.snapshot_soon()
        await bench.writer.flush()
        assert await bench.inner.snapshot("a") == Snapshot(0, b"")
        assert not log.dirty
        log.append(NOTE)
        log.snapshot_soon()
        await log.commit()
        assert await bench.inner.snapshot("a") == Snapshot(1, b"")
        log.snapshot_soon()
        bench.store.fail_next(StoreFull("no space"))
        with pytest.raises(CommitFailed):
            await log.commit()
        with pytest.raises(CommitFailed):
            log.snapshot_soon()
        await bench.writer.flush()
    assert await seqs(bench.inner, "a") == [0, 1]


async def test_a_flush_leaves_failures_to_those_whose_they_are() -> None:
    async with benched() as bench:
        first = await bench.log("a")
        first.append(NOTE)
        bench.store.fail_next(StoreFull("no space"))
        await bench.writer.flush()
        with pytest.raises(CommitFailed):
            await first.commit()


async def test_what_is_on_its_way_is_waited_for_and_shown() -> None:
    async with benched() as bench:
        log = await bench.log("a")
        bench.store.hold()
        log.append(NOTE)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.commit)
            await wait_all_tasks_blocked()
            nursery.start_soon(log.commit)
            await wait_all_tasks_blocked()
            assert (log.waiting, log.dirty, bench.store.waiting) == (2, True, 1)
            assert repr(log) == "<Log of 'a' at seq 1, 1 uncommitted>"
            assert bench.writer.statistics()["flushing_s"] > 0
            bench.store.release()
        assert (log.waiting, log.dirty) == (0, False)


async def test_nobody_appends_to_a_writer_that_has_ended() -> None:
    async with benched() as bench:
        log = await bench.log("a")
    with pytest.raises(UsageError, match="is closed: open it again to go on"):
        log.append(NOTE)
    assert await seqs(bench.inner, "a") == [0]


async def test_an_expectation_ends_once() -> None:
    async with benched() as bench:
        expectation = bench.writer.expect()
        assert bench.writer.statistics()["expected"] == 1
        expectation.end()
        expectation.end()
        assert bench.writer.statistics()["expected"] == 0
