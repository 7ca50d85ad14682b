"""Approvals over restarts: asked once, answered once, and expired by the wall clock, whoever runs meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from crashing import image, live
from helpers import events, make, notation, opened, order, records, scripted
from shops import OPEN, REST, RESUMED, Shop, asked, listed, result_text, within
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import System
from callboard.actors.agent import Agent
from callboard.actors.plugins import Permissions
from callboard.actors.testing import Reply, ScriptedModel, trio_wall
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import ApprovalExpired


async def test_c136_asked_closed_and_answered_after_the_restart_the_body_runs_once() -> None:
    shop = Shop()
    store = MemoryStore()
    async with opened(shop.agent(), store, grace=0) as (system, ref):
        before = await asked(system, ref)
    seq = (await records(store))[-1].seq
    assert await order(store) == f"{OPEN} asked TZ1"
    async with opened(shop.agent("done"), store) as (system, ref):
        (after,) = await listed(system)
        assert (after.id, after.asked) == (before.id, before.asked)
        await system.answer(before.id, "allow", by="ann")
        await ref.wait_idle()
        assert await order(store, after=seq) == f"TR1 answered call(c1) res(c1) {RESUMED}"
    assert len(shop.keys) == 1


async def test_c136_answered_and_killed_before_the_body_it_still_runs_once() -> None:
    shop = Shop()

    async def allow(ref: Any) -> None:
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        question = (await events(ref._runtime.store, e.ApprovalAsked))[0]
        await ref._runtime.system.answer(question.id, "allow", by="ann")

    first = await live(shop.agent(), allow)
    cut = first.upto("answered")
    store = await image(first.records, cut)
    shop.keys.clear()
    async with opened(shop.agent("done"), store) as (_, ref):
        await ref.wait_idle()
        assert await order(store, after=cut) == f"TR1 call(c1) res(c1) {RESUMED}"
    assert len(shop.keys) == 1


async def test_c136_a_deadline_that_passed_while_down_is_over_at_the_start(autojump_clock: MockClock) -> None:
    shop = Shop(approval=within(100))
    store = MemoryStore()
    async with opened(shop.agent(), store, grace=0, now=trio_wall("2026-12-01T08:00Z")) as (system, ref):
        before = await asked(system, ref)
    seq = (await records(store))[-1].seq
    async with opened(shop.agent("done"), store, now=trio_wall("2026-12-01T08:02Z")) as (system, ref):
        with pytest.raises(ApprovalExpired):
            await system.answer(before.id, "allow", by="ann")
        await ref.wait_idle()
        assert await order(store, after=seq) == f"TR1 answered call(c1) res(c1!EXPIRED) {RESUMED}"
        (answer,) = await events(store, e.ApprovalAnswered)
        assert (answer.verdict, answer.by) == ("expired", "clock")
    assert not shop.keys


async def test_c136_a_wall_clock_that_jumps_is_noticed(autojump_clock: MockClock) -> None:
    shop = Shop(approval=within(3600))
    wall = [1_800_000_000.0]
    async with opened(shop.agent(), now=lambda: wall[0]) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await trio.sleep(7200)  # the machine slept, its wall clock with it: the hour is not over
        assert len(await listed(system)) == 1
        wall[0] += 3601
        began = trio.current_time()
        await ref.wait_idle()
        assert trio.current_time() - began <= 30
        assert (await result_text(system.store))[1] == "EXPIRED"


async def test_c136_no_time_is_no_time() -> None:
    shop = Shop(approval=within(0))
    async with opened(shop.agent()) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} asked answered call(c1) res(c1!EXPIRED) {REST}"


async def test_c265_asked_killed_and_started_twice_there_is_one_question() -> None:
    shop = Shop()

    async def hi(ref: Any) -> None:
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        await ref.cancel()

    first = await live(shop.agent(), hi)
    store = await image(first.records, first.upto("asked"))
    for _ in range(2):
        async with opened(shop.agent("done"), store, grace=0) as (system, ref):
            await wait_all_tasks_blocked()
            assert len(await listed(system)) == 1
    async with opened(shop.agent("done"), store) as (system, ref):
        await wait_all_tasks_blocked()
        (approval,) = await listed(system)
        await ref.cancel()
        await ref.wait_idle()
        with pytest.raises(ApprovalExpired):
            await system.answer(approval.id, "allow", by="ann")
        assert await order(store) == (
            f"{OPEN} asked TR1 TZ1 TR1 TZ1 TR1 TC1 answered res(c1!ABORTED_BEFORE_DISPATCH) SE TE1{{aborted user}}"
        )
        assert [answer.verdict for answer in await events(store, e.ApprovalAnswered)] == ["withdrawn"]


async def test_c265_cancelled_and_killed_before_the_end_the_question_is_withdrawn() -> None:
    shop = Shop()

    async def hi(ref: Any) -> None:
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        await ref.cancel()

    first = await live(shop.agent(), hi)
    cut = first.upto("TC1")
    store = await image(first.records, cut)
    async with opened(shop.agent(), store) as (system, ref):
        await ref.wait_idle()
        assert await order(store, after=cut) == "answered res(c1!ABORTED_BEFORE_DISPATCH) SE TE1{aborted user}"
        assert await listed(system) == []


@pytest.mark.parametrize("plugins", [(), (Permissions(deny=["pay"]),)], ids=["allows", "denies"])
async def test_c265_a_definition_that_changed_meanwhile_cannot_let_the_call_through(plugins: Any) -> None:
    shop = Shop(approval=None)
    store = MemoryStore()
    async with opened(shop.agent(plugins=[Permissions(ask=["pay"])]), store, grace=0) as (system, ref):
        approval = await asked(system, ref)
    seq = (await records(store))[-1].seq
    async with opened(shop.agent("done", plugins=plugins), store) as (system, ref):
        await wait_all_tasks_blocked()
        if plugins:
            assert await order(store, after=seq) == f"TR1 answered call(c1) res(c1!DENIED) {RESUMED}"
            assert [a.verdict for a in await events(store, e.ApprovalAnswered)] == ["withdrawn"]
        else:
            await system.answer(approval.id, "deny", by="ann")
            await ref.wait_idle()
            assert await order(store, after=seq) == f"TR1 answered call(c1) res(c1!DENIED) {RESUMED}"
    assert not shop.keys


async def test_questions_of_agents_without_a_definition_keep_no_other_from_being_listed() -> None:
    shop = Shop()
    store = MemoryStore()
    known, unknown = shop.agent(), Agent("other", model=scripted(Reply.tools(("c1", "pay", {}))), plugins=(), tools=[shop.tool])
    async with System.open(store, agents=[known, unknown], grace=0) as system:
        for id, agent in (("1", unknown), ("2", known)):
            ref = await system.spawn(agent, id=id)
            await ref.followup("hi")
        await wait_all_tasks_blocked()
        assert [a.agent for a in await listed(system)] == ["1", "2"]
        assert [a.agent for a in await listed(system, prefix="2")] == ["2"]
    async with System.open(store, agents=[known], grace=0) as system:
        assert [a.agent for a in await listed(system)] == ["2"]


async def test_c136_killed_behind_any_append_there_is_one_question_and_the_body_runs_once_at_most() -> None:
    async def allow(ref: Any) -> None:
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        await answer_all(ref._runtime.system)

    async def answer_all(system: System) -> None:
        for approval in await listed(system):
            await system.answer(approval.id, "allow", by="ann")

    def answering(request: Any) -> Reply:
        return Reply.tools(("c1", "pay", {})) if request.step == 1 else Reply.text("done")

    first = await live(Shop().agent(answering), allow)
    called = first.upto("call(c1)")
    for cut in first.ends:
        shop, store = Shop(), await image(first.records, cut)
        agent = make(ScriptedModel(answering), tools=[shop.tool])
        async with opened(agent, store) as (system, ref):
            await wait_all_tasks_blocked()
            await answer_all(system)
            await ref.wait_idle()
            log = await records(store)
            place = notation(log[: cut + 1])
            assert len([r for r in log if r.type == "approval/asked"]) == (1 if "TS1" in notation(log) else 0), place
            assert len(shop.keys) == (1 if "put" in place and cut < called else 0), place
            result = [r.event for r in log if isinstance(r.event, e.ToolResult)]
            assert [r.error for r in result] == (["OUTCOME_UNKNOWN"] if cut == called else [None] if result else []), place
