"""The bounds of an inbox, what passes them all the same, and what its fold says after every prefix of a log."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import make, notation, opened, order, records, scripted
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from callboard.actors.agent import Agent
from callboard.actors.answers import Boundary, Enter, Reject
from callboard.actors.delegation import delegate
from callboard.actors.limits import Limits
from callboard.actors.seams import Next, Plugin, SeamContext
from callboard.actors.state import AgentState
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.actors.tools import ToolContext, ToolOutput, tool
from callboard.mailbox.items import Item
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import CallboardError, InboxFull, InputRefused
from callboard.storage.events import Event, InboxClaim, InboxPut
from callboard.storage.log import Log
from callboard.storage.messages import File, Message


async def test_c044_the_lane_of_ten_thousand_is_full_and_the_other_still_takes() -> None:
    store = MemoryStore()
    async with opened(make(scripted()), store) as (_, ref):
        async with trio.open_nursery() as nursery:
            for _ in range(10_000):
                nursery.start_soon(ref.inject, "note")
        before = len(await records(store))
        with pytest.raises(InboxFull) as full:
            await ref.inject("one too many")
        assert all(part in str(full.value) for part in ("'a'", "next-step", "10000"))
        assert len(await records(store)) == before
        await ref.followup("go")
        await ref.cancel()


async def test_c251_a_boundary_takes_sixty_four_and_the_prompt() -> None:
    store = MemoryStore()
    async with opened(make(scripted("one", "two")), store) as (_, ref):
        async with trio.open_nursery() as nursery:
            for place in range(70):
                nursery.start_soon(ref.steer, f"s{place}")
            nursery.start_soon(ref.followup, "go")
        await ref.wait_idle()
    log = await records(store)
    put = [r.event.message.id for r in log if isinstance(r.event, InboxPut) and r.event.lane == "next-step"]
    prompt = next(r.event.message.id for r in log if isinstance(r.event, InboxPut) and r.event.lane == "next-turn")
    claims = [r.event.ids for r in log if isinstance(r.event, InboxClaim)]
    assert claims == [(*put[:64], prompt), tuple(put[64:])]
    assert [word for word in notation(log).split() if word[0] not in "pcUC"] == (
        ["TS1", "SS1.1", "H{initial}", "X", "Q1", "A", "SE", "SS1.2", "Q1", "A", "SE", "TE1{completed}"]
    )


@tool
async def fills(ctx: ToolContext[Any]) -> ToolOutput:
    """Fills the lane of its own agent, and then adds context that has to get in all the same."""
    await ctx.agent.inject("full")
    with pytest.raises(InboxFull):
        await ctx.agent.inject("refused")
    return ToolOutput("ok", context=["context"])


async def test_c252_a_full_lane_takes_what_a_tool_and_a_child_bring() -> None:
    store, go = MemoryStore(), trio.Event()
    child = Agent("child", model=scripted(Reply.wait(go, Reply.text("child's answer"))), plugins=())
    model = scripted(Reply.tools(("c1", "child", {"task": "do"}), ("c2", "fills", {})), "done", "read")
    agent = make(model, tools=[delegate(child, background=True), fills], limits=Limits(pending=1))
    async with opened(agent, store) as (_, ref):
        await ref.followup("go")
        await ref.wait_idle()
        await ref.inject("full again")
        with pytest.raises(InboxFull):
            await ref.steer("refused")
        go.set()
        await wait_all_tasks_blocked()
        await ref.wait_idle()
    assert await order(store) == (
        "put[t](go) TS1 claim(go) SS1.1 U(go) H{initial} X Q1 C* A call(c1) born res(c1) call(c2) put[s](full) res(c2) "
        "put[s](context) SE claim(full,context) SS1.2 U(full) U(context) Q1 C* A SE TE1{completed} put[s](full again) "
        "died{completed} put[s](child's answer) TS2 claim(full again,child's answer) SS2.1 U(full again) U(child's answer) "
        "Q1 C* A SE TE2{completed}"
    )


async def test_c253_a_text_over_the_limit_is_refused_by_name() -> None:
    store = MemoryStore()
    async with opened(make(scripted(), limits=Limits(message_bytes=1000)), store) as (_, ref):
        with pytest.raises(InputRefused, match=r"message_bytes=1000"):
            await ref.followup("x" * 2000)
    assert await order(store) == ""


async def test_c253_media_of_any_size_are_whole_after_a_crash_at_the_receipt() -> None:
    store, data = MemoryStore(), b"\0\1" * 2_000_000
    async with opened(make(scripted()), store) as (_, ref):
        await ref.inject([File.from_bytes(data, "application/octet-stream")])
        image = store.copy()
    put = next(r.event for r in await records(image) if isinstance(r.event, InboxPut))
    block = put.message.content[0]
    assert isinstance(block, File) and block.data is None and block.blob is not None
    assert await image.blob(block.blob) == data


class Judge(Plugin):
    """Rejects what asks for it."""

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject], /) -> Enter | Reject:
        return Reject("no") if "reject" in boundary.text else await next(boundary)


PROMPTS = {"ok": Reply.text("ok"), "max": Reply.max_tokens("m"), "fail": Reply.fail("X"), "hang": Reply.hang("h")}
OPERATIONS = st.sampled_from([*PROMPTS, "reject", "inject", "steer", "cancel", "keep", "withdraw", "replace", "rest"])


async def _operate(operations: list[str]) -> tuple[MemoryStore, dict[int, tuple[Item, ...]]]:
    """Do these things to an agent; its log, and what was pending after each append."""
    store, seen = MemoryStore(), dict[int, tuple[Item, ...]]()

    def answer(request: Any) -> Reply:
        last: Message = request.messages[-1]
        return PROMPTS.get(last.text, PROMPTS["ok"])

    class Watched(Log[AgentState]):
        def append(self, *events: Event, blobs: Any = None) -> int:
            first = super().append(*events, blobs=blobs)
            seen[self.last] = self.state.inbox.pending()
            return first

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("callboard.actors.registry.Log", Watched)
        async with opened(make(ScriptedModel(answer), plugins=[Judge()]), store, grace=0) as (_, ref):
            for operation in operations:
                await _do(ref, operation)
    return store, seen


async def _do(ref: Any, operation: str) -> None:
    pending = await ref.pending()
    match operation:
        case "inject":
            await ref.inject("context")
        case "steer":
            await ref.steer("steer")
        case "cancel" | "keep":
            await ref.cancel(keep_inbox=operation == "keep")
        case "withdraw" if pending:
            await ref.withdraw(pending[0].id)
        case "replace" if pending:
            await ref.replace(pending[-1].id, "ok")
        case "rest":
            await wait_all_tasks_blocked()
        case "withdraw" | "replace":
            pass
        case _:
            await ref.followup(operation)


def _pending_of(log: list[Any]) -> tuple[Item, ...]:
    state = AgentState()
    for record in log:
        state.apply(record.seq, record.time, record.event)
    loaded = AgentState.load(state.dump())
    assert loaded.inbox.pending() == state.inbox.pending()
    assert loaded.inbox.due(None) == state.inbox.due(None)
    return state.inbox.pending()


@settings(max_examples=40, deadline=None)
@given(st.lists(OPERATIONS, max_size=12))
def test_c043_c045_c254_what_is_pending_and_parked_is_the_fold_of_every_prefix(operations: list[str]) -> None:
    async def main() -> None:
        store, seen = await _operate(operations)
        log = await records(store)
        assert seen, "the log of a new agent has a record"
        for last, pending in seen.items():
            assert _pending_of(log[: last + 1]) == pending
        claimed = [id for r in log if isinstance(r.event, InboxClaim) for id in r.event.ids]
        assert len(claimed) == len(set(claimed))

    trio.run(main)


@pytest.mark.parametrize(
    ("first", "parks"), [("ok", False), ("max", False), ("reject", False), ("fail", True), ("keep", True), ("recover", False)]
)
async def test_c254_only_failed_and_cancelled_turns_park_and_only_a_wake_unparks(first: str, parks: bool) -> None:
    store, go = MemoryStore(), trio.Event()
    reply = Reply.hang() if first in ("keep", "recover") else Reply.wait(go, PROMPTS.get(first, PROMPTS["ok"]))
    replies = ["second", "third"] if first == "reject" else [reply, "second", "third"]
    hold = trio.Event()

    class Slow(Judge):
        async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject], /) -> Enter | Reject:
            await hold.wait()
            return await super().pre_step(ctx, boundary, next)

    recovery = "end" if first == "recover" else "continue"
    agent = make(scripted(*replies), plugins=[Slow()], recovery=recovery)
    async with opened(agent, store, grace=0) as (_, ref):
        await ref.followup("reject" if first == "reject" else "go")
        await wait_all_tasks_blocked()
        await ref.followup("queued")
        hold.set()
        go.set()
        if first == "keep":
            await wait_all_tasks_blocked()
            await ref.cancel(keep_inbox=True)
        if first == "recover":
            await wait_all_tasks_blocked()
            store = store.copy()
        else:
            await ref.wait_idle()
            await _check_parked(ref, parks)
    if first == "recover":
        async with opened(make(scripted("second"), recovery="end"), store) as (_, ref):
            await ref.wait_idle()
            await _check_parked(ref, parks)


async def _check_parked(ref: Any, parks: bool) -> None:
    assert [item.parked for item in await ref.pending()] == ([True] if parks else [])
    if parks:
        await ref.inject("context")
        assert [item.parked for item in await ref.pending()] == [False, True]
        with pytest.raises(CallboardError, match="parked"):
            await ref.outcome((await ref.pending())[1].id)
        await ref.followup("wake")
        await ref.wait_idle()
        assert await ref.pending() == ()
