"""verify over a store: how far it is, what it cannot read, and what disappears meanwhile; and rules that only a forger breaks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from log_script import Script, asking

from callboard.storage.conformance_kit import batch, create, note, write
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentDeleted, AgentNotFound, StoreError
from callboard.storage.store import Delete, Head, Reader
from callboard.storage.testing import FaultyStore
from callboard.storage.verify import STRIDE, check_records, verify


class Broken(FaultyStore):
    """A store whose reads fail, or that knows of a record which nobody can read."""

    def __init__(self, inner: MemoryStore, error: Exception | None = None) -> None:
        super().__init__(inner)
        self.error = error

    async def head(self, agent: str) -> Head | None:
        head = await self.inner.head(agent)
        return head if head is None or self.error is not None else msgspec.structs.replace(head, last=head.last + 1)

    def read(self, *given: Any, **more: Any) -> Reader:
        if self.error is not None:
            raise self.error
        return self.inner.read(*given, **more)


async def test_progress_is_told_now_and_then_and_at_the_end() -> None:
    store, told = MemoryStore(), list[tuple[str, int]]()
    epoch = await create(store, "a")
    for first in range(1, STRIDE + 2, 500):
        await write(store, [batch("a", epoch, [note(seq) for seq in range(first, first + 500)])])
    await create(store, "b")
    report = await verify(store, progress=lambda agent, seen: told.append((agent, seen)))
    assert (report.ok, report.agents) == (True, 2)
    assert told[0] == ("a", STRIDE)
    assert told[-2:] == [("a", report.records - 1), ("b", 1)]


@pytest.mark.parametrize("error", [StoreError("the page is torn"), msgspec.DecodeError("not msgpack")])
async def test_what_cannot_be_read_is_a_problem_and_keeps_nobody_from_the_rest(error: Exception) -> None:
    store = MemoryStore()
    await create(store, "a")
    await create(store, "b")
    report = await verify(Broken(store, error))
    assert [(p.agent, p.seq, p.what) for p in report.problems] == [(agent, 0, f"cannot be read: {error}") for agent in "ab"]


async def test_a_record_that_the_head_knows_and_nobody_can_read_is_a_problem() -> None:
    store = MemoryStore()
    await create(store, "a", 3)
    report = await verify(Broken(store))
    assert [p.what for p in report.problems] == ["is the last that can be read, but the store says that seq 3 was written"]


@pytest.mark.parametrize("error", [AgentNotFound("gone"), AgentDeleted("gone")])
async def test_an_agent_deleted_meanwhile_is_left_out_unless_it_was_named(error: Exception) -> None:
    store = MemoryStore()
    await create(store, "a")
    assert await verify(Broken(store, error)) == check_nothing()
    with pytest.raises(AgentNotFound, match="there is no agent 'a' to verify"):
        await verify(Broken(store, error), ["a"])


async def test_a_deleted_agent_is_not_there() -> None:
    store = MemoryStore()
    epoch = await create(store, "a")
    await write(store, [Delete("a", epoch)])
    assert await verify(store) == check_nothing()


def check_nothing() -> object:
    return msgspec.structs.replace(check_records("a", []), agents=0)


# -- rules of a step


def told_of(script: Script) -> list[str]:
    return [problem.what for problem in check_records("a", script.records).problems]


def test_attempts_count_from_one_and_end_with_the_answer() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    script.attempt = 1
    script.send()
    script.answer()
    script.send()
    assert told_of(script) == ["attempt 2 follows attempt 0", "a request is sent after step 1 was answered"]


def test_an_answer_holds_each_call_once() -> None:
    script = Script()
    script.begin("one")
    script.headers()
    script.send()
    script.answer(asking("ask", "c1", "c1"))
    assert "holds two calls with one id" in told_of(script)
