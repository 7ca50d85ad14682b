"""An outcome is the same whether it is heard live, asked for again, or read from the log by another process."""

from __future__ import annotations

import pytest
from helpers import make, opened, scripted

from callboard.actors.testing.scripted import Reply
from callboard.actors.tools.tool import tool
from callboard.storage.engines.memory import MemoryStore


@tool(replay="safe")
async def look() -> str:
    """Look."""
    return "rain"


@pytest.mark.parametrize(
    ("replies", "kind", "text"),
    [
        (["hello"], "completed", "hello"),
        ([Reply.tools(("c1", "look", {}), text="let me look"), ""], "completed", "let me look"),
        ([Reply.max_tokens("hel")], "max-tokens", "hel"),
        ([Reply.fail("AUTH")], "error", ""),
        ([Reply.fail("AUTH", after="hel")], "error", "hel"),
        ([Reply.tools(("c1", "look", {}), text="let me look"), Reply.fail("AUTH", after="hel")], "error", "hel"),
        ([Reply.tools(("c1", "look", {}), text="let me look"), Reply.fail("AUTH")], "error", "let me look"),
    ],
)
async def test_live_and_from_the_log(replies: list[Reply | str], kind: str, text: str) -> None:
    store, agent = MemoryStore(), make(scripted(*replies), tools=[look])
    async with opened(agent, store) as (_, ref):
        live = await ref.ask("hi", message_id="m")
        assert (live.reason.kind, live.text) == (kind, text)
        assert await ref.outcome("m") == live
        assert await ref.outcome(turn=1) == live.of_message(None)  # type: ignore[arg-type]
    async with opened(agent, store) as (_, ref):
        assert await ref.ask("hi", message_id="m") == live


async def test_of_a_turn_that_was_cancelled() -> None:
    async with opened(make(scripted(Reply.hang("hel")))) as (_, ref):
        receipt = await ref.followup("hi", message_id="m")
        async for delta in ref.deltas(after=receipt.seq):
            if delta.kind == "text":
                await ref.cancel()
                break
        outcome = await ref.outcome("m")
        assert (outcome.reason.kind, outcome.text) == ("aborted", "hel")
        await ref.wait_idle()
        assert await ref.outcome("m") == outcome
