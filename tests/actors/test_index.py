"""The index says of an agent what its log says: what the runtime wrote is what an import counts again."""

from __future__ import annotations

import io
from typing import Any

from helpers import make, records, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors.answers import Answer, Ask, Command, Replace, ToolCall, Verdict
from callboard.actors.seams import Next, Plugin, SeamContext
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import tool
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.exchange import export_log, import_log
from callboard.storage.index import IndexFold
from callboard.storage.store import Summary


class Desk(Plugin):
    """Answers `/ping`, and asks a person about every call."""

    async def command(self, ctx: SeamContext, command: Command, next: Next[Command, Answer | Replace | None]) -> Any:
        return Answer("pong") if command.text == "/ping" else await next(command)

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict]) -> Verdict:
        return Ask("May it?")


@tool(replay="safe")
async def look() -> str:
    """Look."""
    return "seen"


async def recounted(store: MemoryStore) -> Summary:
    """What the index fold makes of the log."""
    fold = IndexFold()
    for record in await records(store):
        fold.apply(record)
    return fold.summary()


async def indexed(store: MemoryStore) -> Summary:
    """What the runtime told the index."""
    head = await store.head("a")
    assert head is not None
    return head.summary


async def test_every_kind_of_work_is_indexed_as_it_is_counted_again() -> None:
    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c1", "look", "")), "done", "more"), tools=[look], plugins=[Desk()])
    async with System.open(store, agents=[agent], grace=0) as system:
        ref = await system.spawn(agent, id="a", labels={"user": "ann"})
        await ref.remind("Wake up.", after_s=1000, id="t1")
        assert (await ref.ask("/ping", message_id="m1")).text == "pong"
        await ref.followup("Look.", message_id="m2", route={"channel": "desk", "chat": "1"})
        await wait_all_tasks_blocked()
        assert await indexed(store) == await recounted(store)
        await ref.followup("And then?", message_id="m3")
    assert await indexed(store) == await recounted(store)  # suspended, with a question and a message that waits
    async with System.open(store, agents=[agent]) as system:
        await wait_all_tasks_blocked()
        assert await indexed(store) == await recounted(store)
        async for approval in system.approvals():
            await system.answer(approval.id, "allow", by="ann")
        ref = await system.get("a")
        await ref.wait_idle()
        await ref.cancel_timer("t1")
    summary = await indexed(store)
    assert summary == await recounted(store)
    await imported_alike(store, summary)


async def imported_alike(store: MemoryStore, summary: Summary) -> None:
    """An import knows the same agent, and every id it had."""
    file, other = io.BytesIO(), MemoryStore()
    await export_log(store, "a", file)
    await import_log(other, io.BytesIO(file.getvalue().replace(b"\n", b"\n\n")))
    head = await other.head("a")
    assert head is not None
    assert head.summary == summary
    for id in ("m1", "m2", "m3", "t1"):
        assert await other.find("a", id) == await store.find("a", id), id
