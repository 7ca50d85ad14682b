"""Results that the exit writes have been through `tool_after` like all others."""

from __future__ import annotations

from typing import Any

import trio
import trio.testing
from helpers import check, make, opened, scripted

from callboard import Agent, Plugin, System, tool
from callboard.actors.testing import Reply
from callboard.storage.engines.memory import MemoryStore


def masked(text: str) -> str:
    return text.replace("secret", "[masked]")


class Mask(Plugin):
    async def tool_after(self, ctx: Any, done: Any, next: Any, /) -> Any:
        return await next(done.map_text(masked))


class Hangs(Plugin):
    async def tool_after(self, ctx: Any, done: Any, next: Any, /) -> Any:
        await trio.sleep_forever()


@tool(mode="parallel")
async def hang() -> str:
    """Never ends."""
    await trio.sleep_forever()
    raise AssertionError


@tool(mode="parallel")
async def tell() -> str:
    """Tells."""
    return "the secret"


BOTH = Reply.tools(("c1", "hang", {}), ("c2", "tell", {}))


async def results_after_a_cancel(plugin: Plugin) -> dict[str, str]:
    agent = make(scripted(BOTH), tools=[hang, tell], plugins=[plugin])
    store = MemoryStore()
    async with opened(agent, store) as (_, ref):
        await ref.followup("go")
        await trio.testing.wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
        found: dict[str, str] = {}
        for message in await ref.messages():
            found.update(message.results)
        await check(store)
    return found


async def test_a_result_that_a_cancel_overtook_is_masked_all_the_same() -> None:
    assert (await results_after_a_cancel(Mask()))["c2"] == "the [masked]"


async def test_a_result_that_nobody_finished_looking_at_is_not_shown(autojump_clock: trio.testing.MockClock) -> None:
    assert "not shown" in (await results_after_a_cancel(Hangs()))["c2"]


async def test_a_result_that_a_close_overtook_is_masked_all_the_same() -> None:
    agent = Agent("a", model="m:x", tools=[hang, tell], plugins=[Mask()])
    store = MemoryStore()
    async with System.open(store, agents=[agent], models={"m": scripted(BOTH)}, grace=0) as system:
        await (await system.spawn(agent, id="t")).followup("go")
        await trio.testing.wait_all_tasks_blocked()
    texts = [record.event async for record in store.read("t", types={"tool/result"})]
    assert "secret" not in str(texts)
    assert "[masked]" in str(texts)
