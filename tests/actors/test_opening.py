"""Opening an agent costs what it does next, not what it has been through: no history is decoded before somebody looks at it.

Counted, not timed: `bench/opening.py` has the milliseconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from helpers import check, history, make, records, scripted

from callboard import Agent, System
from callboard.actors import registry
from callboard.actors.state import LONG_TAIL, AgentState
from callboard.actors.turns.runtime_context import CONTEXT_SOURCE
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Message, PluginSource, TextBlock, UserSource
from callboard.storage.store import Batch

LONG = [Message(f"h{i}", "user", (TextBlock(f"hello {i}"),), UserSource()) for i in range(LONG_TAIL + 100)]


def packed(system: System, id: str = "a") -> bool:
    """Whether the agent is open and nobody has looked at its history."""
    actor = system._runtime.registry.peek(id)  # pyright: ignore[reportPrivateUsage]
    assert actor is not None
    return actor.state.surface.is_packed


async def lived(store: Any, agent: Agent[Any, Any], *ids: str) -> None:
    """Agents with a long history, closed."""
    async with System.open(store, agents=[agent]) as system:
        for id in ids:
            await system.spawn(agent, id=id, history=LONG)


async def test_c236_an_agent_is_opened_and_given_input_without_a_look_at_its_history() -> None:
    store, agent = MemoryStore(), make(scripted("hi"))
    await lived(store, agent, "a")
    async with System.open(store, agents=[agent]) as system:
        ref = await system.get("a")
        assert (await ref.info()).pending == 0
        await ref.inject("by the way")
        assert (await ref.info()).pending == 1
        assert packed(system), "nobody has looked"
        assert (await ref.ask("and now")).text == "hi"
        assert not packed(system), "the request needed it"
        assert (await history(ref))[-3:] == ["user by the way", "user and now", "assistant hi"]
        assert len(await ref.messages()) == len(LONG) + 3
    await check(store)


async def test_c236_opening_reads_what_came_after_the_snapshot_and_no_chunk(tmp_path: Path) -> None:
    agent = make(scripted(*["hi"] * 60))
    async with System.open(tmp_path, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        for _ in range(60):
            await ref.ask("hello")
    async with System.open(tmp_path, agents=[agent]) as system:
        await (await system.get("a")).info()
        read = system.store.statistics()
        assert read["frames_read"] < 60, "of more than 120"
        assert read["chunk_rows_read"] == 0
        assert packed(system)


async def test_c236_a_tail_is_folded_in_beside_the_packed_history() -> None:
    store, agent = MemoryStore(), make(scripted("one", "two"))
    await lived(store, agent, "a")
    for said in ("one", "two"):
        async with System.open(store, agents=[agent]) as system:
            ref = await system.get("a")
            assert (await ref.info()).turn == (said == "two")
            assert packed(system)
            assert (await ref.ask("go on")).text == said
    await check(store)


async def test_c190_who_goes_to_rest_with_a_long_tail_leaves_a_snapshot_first(autojump_clock: trio.testing.MockClock) -> None:
    store, agent = MemoryStore(), make(scripted())
    async with System.open(store, agents=[agent], idle_after=60) as system:
        await system.spawn(agent, id="long", history=LONG)
        await system.spawn(agent, id="short", history=LONG[:100])
        await trio.sleep(300)
        assert system.statistics()["agents"] == 0
        long = await store.snapshot("long")
        assert long is not None and long.seq == len(LONG)
        assert await store.snapshot("short") is None
        assert len(await records(store, "long")) == len(LONG) + 1, "a snapshot is no record"
        assert len(await (await system.get("long")).messages()) == len(LONG)
    await check(store)


async def test_a_close_writes_snapshots_for_the_longest_tails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "SNAPSHOTS_AT_CLOSE", 1)
    store, agent = MemoryStore(), make(scripted())
    async with System.open(store, agents=[agent]) as system:
        await system.spawn(agent, id="longer", history=LONG)
        await system.spawn(agent, id="long", history=LONG[:-1])
        await system.spawn(agent, id="short", history=LONG[:100])
    kept = {id: await store.snapshot(id) is not None for id in ("longer", "long", "short")}
    assert kept == {"longer": True, "long": False, "short": False}


def test_a_second_close_writes_nothing_new() -> None:
    async def commits() -> list[int]:
        store, agent, seen = MemoryStore(), make(scripted()), list[int]()
        await lived(store, agent, "a")
        for _ in range(2):
            async with System.open(store, agents=[agent]) as system:
                await (await system.get("a")).info()
            seen.append(store.statistics()["commits"])
        return seen

    first, second = trio.run(commits)
    assert first == second


def test_what_the_model_was_told_is_looked_for_when_somebody_asks() -> None:
    told = Message("c", "user", (TextBlock("It is Monday."),), PluginSource(CONTEXT_SOURCE))
    state = AgentState()
    for seq, message in enumerate((LONG[0], told, LONG[1])):
        state.apply(seq, 0, e.UserMessage(message=message))
    state = AgentState.load(state.dump())
    state.apply(3, 0, e.SurfaceReplace(start=0, end=0, cause="plugin"))
    assert state.surface.is_packed
    assert state.context.told == "It is Monday.", "another message went"
    state = AgentState.load(state.dump())
    state.apply(4, 0, e.SurfaceReplace(start=1, end=1, cause="plugin"))
    assert state.surface.is_packed
    assert state.context.told is None
    state.apply(5, 0, e.UserMessage(message=told))
    assert state.context.told == "It is Monday."


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x81\xa8identity\x01"])
async def test_a_snapshot_of_another_version_keeps_nobody_from_opening_an_agent(data: bytes) -> None:
    store, agent = MemoryStore(), make(scripted("hi"))
    await lived(store, agent, "a")
    kept = await store.snapshot("a")
    head = await store.head("a")
    assert kept is not None and head is not None
    epoch = await store.own("a")
    await store.commit([[Batch("a", epoch, head.last, [], head.summary, {}, data, {})]])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.get("a")
        assert (await ref.ask("there")).text == "hi"
        assert len(await ref.messages()) == len(LONG) + 2
        assert (await (await ref.fork()).info()).turn == 1
    await check(store)
