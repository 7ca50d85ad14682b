"""Deleting: no trace is left in the store, of the agent and all below it; what forks share stays; nothing need be opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lmdb
import pytest
import trio
from helpers import check, events, make, say, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, System, ToolContext, delegate, tool
from callboard.actors.answers import CallResult
from callboard.actors.testing import Reply
from callboard.storage import Image, backup, open_store, verify
from callboard.storage import events as e
from callboard.storage.engines.lmdb_layout import TABLES
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentDeleted, AgentNotFound
from callboard.storage.folds.children import KEEP
from callboard.storage.messages import TextBlock
from callboard.storage.testing import FaultyStore

SECRET = "zq-secret-"


def rows(folder: Path) -> dict[str, int]:
    """How many rows of each table hold the word, in their keys or values."""
    found: dict[str, int] = {}
    with lmdb.open(str(folder), max_dbs=20, readonly=True) as env, env.begin() as txn:
        for table in TABLES:
            cursor = txn.cursor(db=env.open_db(table.encode(), txn=txn, create=False))
            found[table] = sum(SECRET.encode() in key + value for key, value in cursor)
    return {table: count for table, count in found.items() if count}


@tool
async def look(ctx: ToolContext[Any], what: str) -> str:
    """Look."""
    ctx.note("seen", {SECRET: what})
    return f"{SECRET}result"


def desk(*replies: Any) -> Agent[Any, Any]:
    leaf = Agent("leaf", model=scripted(f"{SECRET}leaf"), plugins=())
    middle = Agent("middle", model=scripted(Reply.tools(("c", "leaf", {"task": SECRET})), "middle"), plugins=())
    middle = middle.replace(tools=[delegate(leaf)])
    return make(scripted(*replies), tools=[look, delegate(middle)], system="You help.")


CALLS = Reply.tools((f"{SECRET}call", "look", {"what": f"{SECRET}what"}), ("c2", "middle", {"task": f"{SECRET}task"}))


async def live(folder: Path) -> None:
    """One agent `a` that leaves its word in every table, and another that does not."""
    agent = desk("hello", CALLS, Reply.text(f"{SECRET}answer", parts=9), "nothing")
    async with System.open(folder, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await say(ref, "hello")
        await ref.fork(id="f")
        picture = Image.from_bytes(f"{SECRET}pixels".encode(), "image/png")
        await ref.ask([TextBlock(f"{SECRET}text"), picture], message_id=f"{SECRET}id", sender=f"{SECRET}ann")
        await ref.remind(f"{SECRET}tea", after_s=9999, id=f"{SECRET}timer")
        await ref.inject(f"{SECRET}pending", message_id=f"{SECRET}pending")
        other = await system.spawn(agent, id="b")
        await say(other, "anything")
        await ref.fork(id=f"{SECRET}fork")
        actor = await system._runtime.registry.actor("a")  # pyright: ignore[reportPrivateUsage]
        actor.log.snapshot_soon()
        await ref.withdraw((await ref.inject(f"{SECRET}withdrawn")).message_id)
        assert (await ref.info()).turn == 2


async def test_c238_a_deleted_agent_leaves_no_trace_and_forks_keep_what_they_share(tmp_path: Path) -> None:
    await live(tmp_path / "s")
    assert set(rows(tmp_path / "s")) >= {"journal", "chunks", "ids", "heads", "logs", "snapshots", "blobs"}
    async with System.open(tmp_path / "s", agents=[desk("more")]) as system:
        await system.delete(f"{SECRET}fork")
        await system.delete("a")
        assert [agent.id async for agent in system.agents()] == ["b", "f"]
        fork = await system.get("f")
        assert [message.text for message in await fork.messages()] == ["hello", "hello"]
    assert rows(tmp_path / "s") == {}
    async with open_store(tmp_path / "s", readonly=True) as store:
        assert (await verify(store)).ok
        await backup(store, tmp_path / "copy")
    assert SECRET.encode() not in (tmp_path / "copy" / "data.mdb").read_bytes(), "nor between the rows of a copy"


async def test_what_cannot_be_opened_can_be_deleted(tmp_path: Path) -> None:
    await live(tmp_path / "s")
    async with System.open(tmp_path / "s") as system:
        for id in ("a", "b", "f", f"{SECRET}fork"):
            await system.delete(id)
        with pytest.raises(AgentNotFound):
            await system.delete("nobody")
        assert [agent.id async for agent in system.agents()] == []
    assert rows(tmp_path / "s") == {}


async def test_children_of_long_ago_are_deleted_too() -> None:
    count = KEEP + 5
    leaf = Agent("leaf", model=scripted(*["done"] * count), plugins=())
    calls = [Reply.tools(*((f"c{n}", "leaf", {"task": "t"}) for n in range(start, start + 15))) for start in range(0, count, 15)]
    top = make(scripted(*calls, "all"), tools=[delegate(leaf)])
    async with System.open(":memory:", agents=[top]) as system:
        ref = await system.spawn(top, id="a")
        await ref.ask("go")
        await ref.fork(id="f")
        assert len([agent.id async for agent in system.agents("a/")]) == count
        await system.delete("f")
        assert len([agent.id async for agent in system.agents("a/")]) == count, "they are not the fork's"
        await system.delete("a")
        assert [agent.id async for agent in system.agents()] == []


async def test_an_agent_made_again_under_its_id_writes_letters_that_arrive() -> None:
    @tool
    async def write(ctx: ToolContext[Any], text: str) -> str:
        """Writes to another."""
        await ctx.send("b", text)
        answer: str = (await ctx.ask("b", f"{text}?")).text
        return answer

    def sender(text: str) -> Agent[Any, Any]:
        return make(scripted(Reply.tools(("c1", "write", {"text": text})), "done"), name="a", tools=[write])

    store, other = MemoryStore(), make(scripted("one", "two", "three", "four"), name="other")
    async with System.open(store) as system:
        receiver = await system.spawn(other, id="b")
        for text in ("old", "new"):
            agent = sender(text)
            system.define(agent)
            await say(await system.spawn(agent, id="a"), "hi")
            if text == "old":
                await system.delete("a")
        (result,) = await events(store, e.ToolResult)
        assert CallResult(result.content).text == "four"
        await receiver.wait_idle()
        assert [put.message.text for put in await events(store, e.InboxPut, "b")] == ["old", "old?", "new", "new?"]
    await check(store)


async def test_what_comes_in_while_an_agent_is_deleted_is_refused_and_alarms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    store, agent = FaultyStore(MemoryStore()), make(scripted("one"))
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("hi")
        async with trio.open_nursery() as nursery:
            store.hold()
            nursery.start_soon(system.delete, "a")
            await wait_all_tasks_blocked()

            async def late() -> None:
                with pytest.raises(AgentDeleted):
                    await ref.ask("late")

            nursery.start_soon(late)
            await wait_all_tasks_blocked()
            store.release()
        await wait_all_tasks_blocked()
    assert not caplog.records
    assert await store.head("a") is None
