"""Sections 8 and 10 of the conformance cases: calls that wait for a person, asked once and answered once, whenever that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from helpers import check, events, make, notation, opened, order, records, scripted
from shops import OPEN, REST, Shop, asked, how_much, listed, result_text, within
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Ask, System, run_sync, tool
from callboard.actors.testing import Reply, trio_wall
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentNotFound, ApprovalExpired, UsageError
from callboard.storage.testing import FaultyStore


def yes(_ctx: Any, _call: Any) -> bool:
    """No approval: it answers what none may."""
    return True


def throws(_ctx: Any, _call: Any) -> Ask:
    """A broken one."""
    raise ZeroDivisionError


async def test_c119_where_nobody_can_answer_the_call_is_denied_and_says_so() -> None:
    shop = Shop()
    seen: list[Any] = []

    def second(request: Any) -> Reply:
        seen.append(request.messages[-1].results["c1"])
        return Reply.text("done")

    agent = shop.agent(Reply.tools(("c1", "pay", {})), second)
    assert await trio.to_thread.run_sync(lambda: run_sync(agent, "hi").text) == "done"
    assert "nobody can answer" in seen[0] and "Pay?" in seen[0]
    assert not shop.keys


async def test_c119_allowed_the_body_runs() -> None:
    shop = Shop(approval=how_much)
    async with opened(shop.agent()) as (system, ref):
        approval = await asked(system, ref)
        assert (approval.agent, approval.turn, approval.call_id, approval.tool) == ("a", 1, "c1", "pay")
        assert (approval.question, approval.arguments, approval.expires) == ("Pay 7?", '{"cents":7}', None)
        assert ref.status == "running"
        (wait,) = (await ref.info()).waits
        assert (wait.kind, wait.what) == ("approval", "Pay 7?")
        assert [s.id async for s in system.agents(waiting="approval")] == ["a"]
        await system.answer(approval.id, "allow", by="ann")
        await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} asked answered call(c1) res(c1) {REST}"
        (answer,) = await events(system.store, e.ApprovalAnswered)
        assert (answer.verdict, answer.by) == ("allow", "ann")
        assert len(shop.keys) == 1
        assert await listed(system) == []


async def test_c119_a_reply_is_the_result_and_no_body_runs() -> None:
    shop = Shop()
    async with opened(shop.agent()) as (system, ref):
        await system.answer((await asked(system, ref)).id, "reply", by="ann", text="paid by hand")
        await ref.wait_idle()
        log = await records(system.store)
        assert notation(log) == f"{OPEN} asked answered call(c1) res(c1) {REST}"
        assert await result_text(system.store) == ("paid by hand", None)
        assert not shop.keys
        assert len({r.time for r in log if r.type in ("tool/call", "tool/result")}) == 1


async def test_c119_denied_and_expired_are_two_texts(autojump_clock: MockClock) -> None:
    texts: list[tuple[str, str | None]] = []
    for expires_s in (None, 60):
        shop = Shop(approval=within(expires_s))
        async with opened(shop.agent(), now=trio_wall("2026-12-01T08:00Z")) as (system, ref):
            await ref.followup("hi", message_id="hi")
            if expires_s is None:
                await wait_all_tasks_blocked()
                (approval,) = await listed(system)
                await system.answer(approval.id, "deny", by="ann", text="too much")
            await ref.wait_idle()
            assert (
                await order(system.store)
                == f"{OPEN} asked answered call(c1) res(c1!{'EXPIRED' if expires_s else 'DENIED'}) {REST}"
            )
            texts.append(await result_text(system.store))
            assert not shop.keys
    assert texts[0] == ("A person refused this call: too much.", "DENIED")
    assert texts[1][0].startswith("Nobody answered in time")


async def test_c119_cancelled_while_asked_the_question_is_withdrawn() -> None:
    shop = Shop()
    async with opened(shop.agent()) as (system, ref):
        approval = await asked(system, ref)
        await ref.cancel()
        await ref.wait_idle()
        assert await order(system.store) == (f"{OPEN} asked TC1 answered res(c1!ABORTED_BEFORE_DISPATCH) SE TE1{{aborted user}}")
        (answer,) = await events(system.store, e.ApprovalAnswered)
        assert answer.verdict == "withdrawn"
        with pytest.raises(ApprovalExpired):
            await system.answer(approval.id, "allow", by="ann")
        assert not shop.keys


async def test_c119_an_answer_counts_once_and_only_the_first() -> None:
    shop = Shop()
    async with opened(shop.agent()) as (system, ref):
        approval = await asked(system, ref)
        refused: list[str] = []

        async def say(by: str) -> None:
            try:
                await system.answer(approval.id, "allow", by=by)
            except ApprovalExpired:
                refused.append(by)

        async with trio.open_nursery() as nursery:
            for by in ("ann", "bob", "eve"):
                nursery.start_soon(say, by)
        await ref.wait_idle()
        (answer,) = await events(system.store, e.ApprovalAnswered)
        assert len(refused) == 2 and answer.by not in refused
        with pytest.raises(ApprovalExpired):
            await system.answer(approval.id, "deny", by="late")
    assert len(shop.keys) == 1


async def test_c119_wrong_answers_are_refused_by_name() -> None:
    async with opened(Shop().agent()) as (system, ref):
        approval = await asked(system, ref)
        with pytest.raises(UsageError, match="'perhaps' is none of"):
            await system.answer(approval.id, "perhaps", by="ann")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with pytest.raises(UsageError, match="so it needs a text"):
            await system.answer(approval.id, "reply", by="ann")
        with pytest.raises(UsageError, match="no approval's id"):
            await system.answer("nonsense", "allow", by="ann")
        with pytest.raises(AgentNotFound):
            await system.answer("nobody!3", "allow", by="ann")
        with pytest.raises(ApprovalExpired):
            await system.answer("a!999", "allow", by="ann")
        await system.answer(approval.id, "deny", by="ann")


@pytest.mark.parametrize("name", ["b!1", "b/1.2!3", "ü!"])
async def test_c119_ids_find_agents_of_any_name(name: str) -> None:
    store = MemoryStore()
    shop = Shop()
    agent = shop.agent(Reply.tools(("c!1", "pay", {})), "done")
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id=name)
        await system.answer((await asked(system, ref)).id, "allow", by="ann")
        await ref.wait_idle()
    await check(store)
    assert len(shop.keys) == 1


async def test_c119_parallel_calls_go_on_while_one_waits() -> None:
    ran: list[str] = []

    @tool(mode="parallel")
    async def look(what: str) -> str:
        """Look."""
        ran.append(what)
        return what

    shop = Shop(mode="parallel")
    calls = Reply.tools(("c1", "look", {"what": "one"}), ("c2", "pay", {}), ("c3", "look", {"what": "three"}))
    async with opened(make(scripted(calls, "done"), tools=[look, shop.tool])) as (system, ref):
        approval = await asked(system, ref)
        assert sorted(ran) == ["one", "three"]  # the scheduler starts tasks in any order
        assert await order(system.store) == f"{OPEN} call(c1) asked call(c3)"
        await system.answer(approval.id, "allow", by="ann")
        await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} call(c1) asked call(c3) res(c1) answered call(c2) res(c2) res(c3) {REST}"


async def test_c119_two_questions_of_one_batch_are_answered_in_any_order() -> None:
    shop = Shop(mode="parallel")
    calls = Reply.tools(("c1", "pay", {"cents": 1}), ("c2", "pay", {"cents": 2}))
    async with opened(make(scripted(calls, "done"), tools=[shop.tool])) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        first, second = await listed(system)
        await system.answer(second.id, "allow", by="ann")
        await wait_all_tasks_blocked()
        assert [a.call_id for a in await listed(system)] == ["c1"]
        await system.answer(first.id, "deny", by="ann")
        await ref.wait_idle()
        assert await order(system.store) == (
            f"{OPEN} asked asked answered call(c2) answered call(c1) res(c1!DENIED) res(c2) {REST}"
        )


async def test_c119_nothing_runs_before_the_answer_is_on_disk() -> None:
    shop = Shop(replay="safe")
    store = FaultyStore(MemoryStore())
    async with opened(shop.agent(), store) as (system, ref), trio.open_nursery() as nursery:
        approval = await asked(system, ref)
        store.hold()

        async def allow() -> None:
            await system.answer(approval.id, "allow", by="ann")

        nursery.start_soon(allow)
        await wait_all_tasks_blocked()
        actor: Any = system._runtime.registry.peek("a")  # pyright: ignore[reportPrivateUsage]
        actor.answers.unpark_all()  # as the look at the clock does
        await wait_all_tasks_blocked()
        before = list(shop.keys)
        store.release()
        assert not before
        await ref.wait_idle()
        assert len(shop.keys) == 1


@pytest.mark.parametrize("approval", [yes, throws])
async def test_c119_an_approval_that_is_broken_denies_and_does_not_end_the_turn(approval: Callable[..., Any]) -> None:
    shop = Shop(approval=approval)
    async with opened(shop.agent()) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await ref.wait_idle()
        assert await order(system.store) == f"{OPEN} call(c1) res(c1!TOOL_ERROR) {REST}"
    assert not shop.keys


async def test_c119_an_approval_may_be_async_and_malformed_arguments_are_the_models_fault() -> None:
    async def approval(ctx: Any, call: Any) -> Ask | None:
        await trio.lowlevel.checkpoint()
        return Ask("Pay?") if call.args["cents"] > 5 else None

    shop = Shop(approval=approval)
    calls = Reply.tools(("c1", "pay", {"cents": 1}), ("c2", "pay", "{not json"), ("c3", "pay", {"cents": "many"}))
    async with opened(shop.agent(calls, "done")) as (system, ref):
        await ref.followup("hi", message_id="hi")
        await ref.wait_idle()
        bad = "call({0}) res({0}!INVALID_ARGUMENTS)"
        assert await order(system.store) == f"{OPEN} call(c1) res(c1) {bad.format('c2')} {bad.format('c3')} {REST}"
