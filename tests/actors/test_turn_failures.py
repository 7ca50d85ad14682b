"""Section 1 of the conformance cases: what a throwing observer and a failing store do to a turn."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
import trio
import trio.testing
from helpers import check, history, make, order, say, scripted

from callboard.actors import AgentRef, Plugin, System, tool
from callboard.actors.seams import SeamContext
from callboard.actors.testing import Reply
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import CommitFailed, StoreError
from callboard.storage.messages import Failure
from callboard.storage.records import Record
from callboard.storage.store import Batch, Results, Unit

FIRST = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A SE TE1{completed}"


class Failing(MemoryStore):
    """A memory store whose next commit that holds a record of type `fails_at` fails whole."""

    fails_at: str | None = None

    async def commit(self, units: Sequence[Unit]) -> Results:
        parts = [part for unit in units for part in unit if isinstance(part, Batch)]
        types = {record.type for part in parts for record in part.items if isinstance(record, Record)}
        if self.fails_at in types:
            self.fails_at = None
            await trio.lowlevel.checkpoint()
            raise StoreError("the disk is on fire")
        return await super().commit(units)


def status(ref: AgentRef[Any]) -> str:
    """The agent's status, which type checkers must not take for the one it had before."""
    return ref.status


class Throws(Plugin):
    """An observer that throws on everything."""

    def __init__(self) -> None:
        self.called: list[str] = []

    async def on_event(self, ctx: SeamContext, record: Any) -> None:
        self.called.append(record.type)
        raise RuntimeError("observer")

    async def on_status(self, ctx: SeamContext, status: str) -> None:
        raise RuntimeError("observer")


class Errors(Plugin):
    """Keeps the failures and statuses it is told of."""

    def __init__(self) -> None:
        self.failures: list[Failure] = []
        self.statuses: list[str] = []

    async def on_error(self, ctx: SeamContext, failure: Failure) -> None:
        self.failures.append(failure)

    async def on_status(self, ctx: SeamContext, status: str) -> None:
        self.statuses.append(status)


async def test_c011_an_observer_that_throws_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    store, throws = MemoryStore(), Throws()
    agent = make(scripted("hello"), plugins=[throws])
    with caplog.at_level(logging.ERROR, "callboard"):
        async with System.open(store, agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            await say(ref, "hi")
    assert await order(store) == FIRST
    assert throws.called.count("turn/end") == 1
    assert "observer" in caplog.text
    await check(store)


async def test_c012_a_failed_first_barrier_reaches_the_sender_and_no_model() -> None:
    store, model, errors = Failing(), scripted("hello"), Errors()
    agent = make(model, plugins=[errors])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        store.fails_at = "inbox/put"
        with pytest.raises(CommitFailed):
            await ref.followup("hi", message_id="hi")
        await trio.testing.wait_all_tasks_blocked()
        assert status(ref) == "failed"
        assert model.requests == []
        assert await order(store) == ""
        assert await order(store.copy()) == ""
        await say(ref, "on")
        assert status(ref) == "idle"
        assert await order(store) == FIRST.replace("hi", "on")
        assert await history(ref) == ["user on", "assistant hello"]
    await check(store)


async def test_c012_nothing_of_it_is_there_after_a_restart() -> None:
    store = Failing()
    agent = make(scripted("hello"))
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        store.fails_at = "inbox/put"
        with pytest.raises(CommitFailed):
            await ref.followup("hi", message_id="hi")
    async with System.open(store.copy(), agents=[agent]) as system:
        ref = await system.get("a")
        await ref.wait_idle()
        assert await order(system.store) == ""
        assert await ref.pending() == ()
        await say(ref, "hi")
        assert await order(system.store) == FIRST
        await check(system.store)


async def test_c013_a_failed_end_is_not_seen_as_done() -> None:
    store, model, errors = Failing(), scripted("hello", "again"), Errors()
    agent = make(model, plugins=[errors])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        store.fails_at = "turn/end"
        raised: list[str] = []

        async def hears(name: str, call: Callable[[], Awaitable[object]]) -> None:
            with pytest.raises(CommitFailed):
                await call()
            raised.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(hears, "ask", lambda: ref.ask("hi", message_id="hi"))
            while status(ref) != "running":
                await trio.lowlevel.checkpoint()
            nursery.start_soon(hears, "wait_idle", ref.wait_idle)
        assert sorted(raised) == ["ask", "wait_idle"]
        assert status(ref) == "failed"
        await trio.testing.wait_all_tasks_blocked()
        assert errors.statuses == ["running", "failed"]
        assert [failure.code for failure in errors.failures] == ["UNKNOWN"]
        outcome = await ref.ask("hi", message_id="hi")
        assert outcome.text == "again"
        assert await order(store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 TR1 F1{retry} H{resume} Q2 C* A SE TE1{completed}"
        )
        head = await store.head("a")
        assert head is not None
        assert head.epoch == 2
    assert errors.statuses == ["running", "failed", "running", "idle"]
    await check(store)


async def test_c012_an_inject_that_fails_leaves_no_poisoned_agent_behind() -> None:
    store, errors = Failing(), Errors()
    agent = make(scripted("hello"), plugins=[errors])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        store.fails_at = "inbox/put"
        with pytest.raises(CommitFailed):
            await ref.inject("fact", message_id="fact")
        assert status(ref) == "failed"
        await ref.inject("fact", message_id="fact")
        assert status(ref) == "idle"
        await say(ref, "hi")
        assert await order(store) == (
            "put[s](fact) put[t](hi) TS1 claim(fact,hi) SS1.1 U(fact) U(hi) H{initial} X Q1 C* A SE TE1{completed}"
        )
    assert errors.statuses == ["failed", "running", "idle"]
    await check(store)


async def test_c013_a_failed_commit_cuts_the_body_that_runs() -> None:
    store = Failing()
    ends: list[str] = []

    @tool
    async def hang() -> str:
        """Wait for ever."""
        try:
            await trio.sleep_forever()
        finally:
            ends.append("cut")
        return ""

    agent = make(scripted(Reply.tools(("c1", "hang", {})), "told"), tools=[hang])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi", message_id="hi")
        await trio.testing.wait_all_tasks_blocked()
        store.fails_at = "inbox/put"
        with pytest.raises(CommitFailed):
            await ref.followup("on", message_id="on")
        await ref.info()
        await ref.wait_idle()
        await say(ref, "on")
        assert ends == ["cut"]
        assert await order(store) == (
            "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A call(c1) TR1 res(c1!OUTCOME_UNKNOWN) SE "
            "SS1.2 H{resume} Q1 C* A SE TE1{completed} put[t](on) TS2 claim(on) SS2.1 U(on) Q1 F1{raise} SE TE2{error}"
        )
    await check(store)
