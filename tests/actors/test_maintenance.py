"""C280: compaction of an idle agent is an activity without a turn."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import make, opened, order, say, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Plugin, Replace
from callboard.storage import Message, TextBlock, UsageError
from callboard.storage.engines.memory import MemoryStore

SUMMARY = Message("s", "user", (TextBlock("what was said"),))


class Summarises(Plugin):
    """Answers a summary when it is let go; only while idle."""

    def __init__(self) -> None:
        self.go = trio.Event()
        self.asked: list[str] = []

    async def compact(self, ctx: Any, position: Any, next: Any, /) -> Any:
        if position.why != "idle":
            return None
        self.asked.append(position.why)
        await self.go.wait()
        return Replace(SUMMARY, cause="idle")


async def test_c280_a_send_waits_for_maintenance_and_runs_right_after() -> None:
    store, plugin = MemoryStore(), Summarises()
    async with opened(make(scripted("hello", "again"), plugins=[plugin]), store) as (_, ref), trio.open_nursery() as nursery:
        await say(ref, "one")
        before = len(await order(store))
        nursery.start_soon(ref.compact)
        await wait_all_tasks_blocked()
        assert ref.status == "idle" and plugin.asked == ["idle"]
        await ref.followup("two")
        await wait_all_tasks_blocked()
        assert (await order(store))[before:].split() == ["put[t](two)"]
        plugin.go.set()
        await wait_all_tasks_blocked()
        await ref.wait_idle()
        assert [message.text for message in await ref.messages()] == ["what was said", "two", "again"]
    after = (await order(store))[before:].strip()
    assert after == "put[t](two) cut(5..14) TS2 claim(two) SS2.1 U(two) Q1 C* A SE TE2{completed}"


async def test_c280_a_cancel_ends_maintenance_and_writes_nothing_of_it() -> None:
    store, plugin = MemoryStore(), Summarises()
    async with opened(make(scripted("hello"), plugins=[plugin]), store) as (_, ref), trio.open_nursery() as nursery:
        await say(ref, "one")
        before = await order(store)
        nursery.start_soon(ref.compact)
        await wait_all_tasks_blocked()
        await ref.cancel()
        await wait_all_tasks_blocked()
        assert nursery.child_tasks == frozenset()
    assert await order(store) == before


async def test_c280_a_crash_forgets_maintenance_and_a_close_ends_it() -> None:
    store, plugin = MemoryStore(), Summarises()
    async with opened(make(scripted("hello"), plugins=[plugin]), store) as (_, ref), trio.open_nursery() as nursery:
        await say(ref, "one")
        nursery.start_soon(ref.compact)
        await wait_all_tasks_blocked()
        image = store.copy()
        nursery.cancel_scope.cancel()
    async with opened(make(scripted("again")), image) as (_, ref):
        assert [message.text for message in await ref.messages()] == ["one", "hello"]
        await say(ref, "two")


async def test_maintenance_is_refused_while_the_agent_is_at_work() -> None:
    plugin = Summarises()
    async with opened(make(scripted("hello"), plugins=[plugin])) as (_, ref), trio.open_nursery() as nursery:
        await say(ref, "one")
        nursery.start_soon(ref.compact)
        await wait_all_tasks_blocked()
        with pytest.raises(UsageError, match="at work"):
            await ref.compact()
        plugin.go.set()
    async with opened(make(scripted("hello"))) as (_, ref):
        assert await ref.compact() is False  # nobody offers a rewrite
