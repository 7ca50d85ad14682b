"""Answers written where nobody runs: folded, owned for one commit, found by the next start; too late is too late."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from wired import make, scripted, serving

from callboard.actors import Ask, tool
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.net.client import connected
from callboard.net.offline import answer_in, approvals_in
from callboard.net.websocket import Socket
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import ApprovalExpired, Unauthorized
from callboard.storage.verify import verify


@tool(replay="safe", approval=lambda ctx, call: Ask("May I?", expires_s=60))
async def look() -> str:
    """Look."""
    return "seen"


async def asked(store: MemoryStore, **options: Any) -> str:
    """A store whose agent was left with an open question, and the question's id."""
    agent = make(scripted(Reply.tools(("c1", "look", {})))).replace(tools=[look])
    async with System.open(store, agents=[agent], grace=0, **options) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi", message_id="m")
        async for _ in ref.follow(types=["approval/asked"]):
            break
    (question,) = [question async for question in approvals_in(store)]
    assert (question.agent, question.tool, question.arguments, question.question) == ("a", "look", "{}", "May I?")
    return question.id


async def test_an_answer_is_found_by_the_next_start() -> None:
    store = MemoryStore()
    id = await asked(store)
    await answer_in(store, id, "reply", by="ann", text="the sea")
    assert [question async for question in approvals_in(store)] == []
    agent = make(scripted("nice")).replace(tools=[look])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.get("a")
        assert (await ref.outcome("m")).text == "nice"
        assert [m.results for m in await ref.messages() if m.results] == [{"c1": "the sea"}]
    assert (await verify(store)).ok


async def test_an_answer_that_comes_too_late_is_none() -> None:
    store, long_ago = MemoryStore(), 1_000_000.0
    id = await asked(store, now=lambda: long_ago)
    with pytest.raises(ApprovalExpired):
        await answer_in(store, id, "allow", by="ann", text=None)
    assert [record async for record in store.read("a", types={"approval/answered"})] == []


async def test_a_send_is_whole_or_not_at_all() -> None:
    sent: list[str] = []

    class Slow:
        closed = None

        async def send_message(self, text: str) -> None:
            for letter in text:
                await trio.lowlevel.checkpoint()
                sent.append(letter)

    socket = Socket(Slow())
    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(socket.send, "whole")
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            scope.cancel()
    assert "".join(sent) in ("", "whole") and sent


async def test_an_agent_that_has_the_id_of_a_deleted_one_shows_its_own_records(autojump_clock: object) -> None:

    async with serving(make(scripted())) as (_, _, wires), connected(wires.dial) as client:
        seen: list[dict[str, str] | None] = []
        for number in ("1", "2"):
            ref = await client.spawn("demo", id="a", labels={"number": number})
            async for record in ref.follow():
                seen.append(record.event.labels)  # type: ignore[union-attr]
                break
            await client.delete("a")
        assert seen == [{"number": "1"}, {"number": "2"}]


async def test_a_prefix_bounds_answers_too(autojump_clock: object) -> None:

    tokens = {"t": {"scopes": ["admin"], "prefix": "acme/"}}
    async with serving(make(scripted()), tokens=tokens, token="t") as (_, _, wires), connected(wires.dial) as client:
        with pytest.raises(Unauthorized, match="begin with 'acme/'"):
            await client.answer("zeta/1!3", "allow", by="me")
