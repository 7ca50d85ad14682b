"""Definitions kept elsewhere, and what else keeps one agent from being opened: its own misfortune, told in the report."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, make, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.agent import Agent
from callboard.actors.seams import Plugin
from callboard.actors.system import System
from callboard.actors.testing.clocks import trio_wall
from callboard.actors.testing.scripted import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import DefinitionMissing


async def left_open(*ids: str) -> MemoryStore:
    """A store with agents of the definition `demo` whose turns are open."""
    store, agent = MemoryStore(), make(scripted(*(Reply.hang() for _ in ids)))
    async with System.open(store, agents=[agent], grace=0) as system:
        for id in ids:
            await (await system.spawn(agent, id=id)).followup("hi")
    return store


async def test_a_definition_is_asked_for_by_its_name_and_kept() -> None:
    store, asked = await left_open("a", "b"), list[tuple[str, str]]()
    agent = make(scripted("fine", "fine"))

    async def resolve(name: str, head: Any) -> Agent[Any, Any]:
        asked.append((name, head.agent))
        await trio.lowlevel.checkpoint()
        return agent

    async with System.open(store, resolve=resolve) as system:
        assert system.report.ok
        assert sorted(system.report.resumed) == ["a", "b"]
        for id in ("a", "b"):
            assert (await (await system.get(id)).outcome(turn=1)).text == "fine"
    assert {name for name, _ in asked} == {"demo"}
    await check(store)


async def test_an_agent_that_nobody_can_define_waits() -> None:
    store = await left_open("a")

    async def resolve(name: str, head: Any) -> None:
        await trio.lowlevel.checkpoint()

    async with System.open(store, resolve=resolve) as system:
        assert not system.report.ok
        assert repr(system.report) == "<Report 0 resumed, 0 woken, 1 failed>"
        with pytest.raises(DefinitionMissing):
            await system.get("a")
        agent = make(scripted("fine"))
        system.define(agent)
        assert (await (await system.get("a")).outcome(turn=1)).text == "fine"
    await check(store)


async def test_an_answer_of_another_name_is_none() -> None:
    store = await left_open("a")

    async def resolve(name: str, head: Any) -> Agent[Any, Any]:
        return make(scripted(), name="other")

    async with System.open(store, resolve=resolve) as system:
        with pytest.raises(DefinitionMissing, match="which is no definition of that name"):
            await system.get("a")


class WillNotStart(Plugin):
    """Cannot be started the first time."""

    def __init__(self, times: int = 1) -> None:
        self.times = times

    async def on_start(self, system: Any) -> None:
        self.times -= 1
        if self.times >= 0:
            raise RuntimeError("no connection")


async def test_a_plugin_that_does_not_start_keeps_its_agent_closed_and_no_other() -> None:
    store = await left_open("a")
    agent = make(scripted("fine"), plugins=[WillNotStart()])

    async def resolve(name: str, head: Any) -> Agent[Any, Any]:
        return agent

    async with System.open(store, resolve=resolve) as system:
        assert "could not be taken up: " in str(system.report.failed["a"])
        other = make(scripted("hello"), name="other")
        assert (await (await system.spawn(other, id="b")).ask("hi")).text == "hello"


async def test_a_timer_waits_for_an_agent_that_cannot_be_opened_yet(autojump_clock: MockClock) -> None:
    store, wall = MemoryStore(), trio_wall("2026-12-01T08:00Z")
    first = make(scripted())
    async with System.open(store, agents=[first], now=wall) as system:
        await (await system.spawn(first, id="a")).remind("Wake up.", after_s=100, id="t1")
    agent = make(scripted("awake"), plugins=[WillNotStart(2)])

    async def resolve(name: str, head: Any) -> Agent[Any, Any]:
        return agent

    async with System.open(store, resolve=resolve, now=wall) as system:
        await trio.sleep(90)
        assert await events(store, e.TimerFired) == []
        await trio.sleep(100)
        await wait_all_tasks_blocked()
        assert (await (await system.get("a")).outcome("t1")).text == "awake"
    assert len(await events(store, e.TimerFired)) == 1
    await check(store)


class Slow(Plugin):
    """Takes its time to start, and opens an agent of its own while it does."""

    def __init__(self) -> None:
        self.go = trio.Event()
        self.begun = self.started = False

    async def on_start(self, system: Any) -> None:
        assert not self.begun, "it starts once"
        self.begun = True
        await system.spawn(make(scripted(), name="inner", plugins=[self]), id="inner")
        await self.go.wait()
        self.started = True

    async def pre_step(self, ctx: Any, boundary: Any, next: Any) -> Any:
        assert self.started
        return await next(boundary)


async def test_an_agent_waits_for_a_plugin_that_another_is_starting() -> None:
    slow, texts = Slow(), list[str]()
    agent = make(scripted("one", "two"), plugins=[slow])

    async def ask(system: System, id: str) -> None:
        texts.append((await (await system.spawn(agent, id=id)).ask("hi")).text)

    async with System.open(":memory:") as system, trio.open_nursery() as nursery:
        for id in ("a", "b"):
            nursery.start_soon(ask, system, id)
        await wait_all_tasks_blocked()
        assert (slow.begun, texts) == (True, [])
        slow.go.set()
    assert sorted(texts) == ["one", "two"]


async def test_a_plugin_that_did_not_start_is_not_stopped(caplog: pytest.LogCaptureFixture) -> None:
    class Stops(WillNotStart):
        async def on_stop(self) -> None:
            raise AssertionError("it never started")

    with pytest.raises(RuntimeError, match="no connection"):
        async with System.open(":memory:", plugins=[Stops()]):
            raise AssertionError
    assert not caplog.records
