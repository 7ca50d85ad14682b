"""C174: a body with `replay="ask"` that a crash cut: a person says whether it may run again, each time anew."""

from __future__ import annotations

from typing import Any

import pytest
from crashing import image, live, upto
from helpers import events, make, opened, order, records, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import System, ToolContext, tool
from callboard.actors.testing import Reply
from callboard.net.offline import answer_in, approvals_in
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore

RESUMED = "SE SS1.2 H{resume} Q1 C* A SE TE1{completed}"


class Pays:
    """A tool that asks before it runs again, and perhaps before it runs at all."""

    def __init__(self, approval: str | None = None) -> None:
        self.keys: list[str] = []
        self.approval = approval

    def agent(self, *replies: Any) -> Any:
        """An agent with it."""

        @tool(replay="ask", approval=self.approval)
        async def pay(ctx: ToolContext[Any]) -> str:
            """Pay."""
            self.keys.append(ctx.effect_key)
            return "paid"

        return make(scripted(*(replies or (Reply.tools(("c1", "pay", {})), "done"))), tools=[pay])

    async def cut_in_the_body(self) -> MemoryStore:
        """The store of a process that died while the body ran."""

        async def act(ref: Any) -> None:
            await ref.followup("hi", message_id="hi")
            await wait_all_tasks_blocked()
            if self.approval is not None:
                await answer_all(ref._runtime.system, "allow")

        first = await live(self.agent(), act)
        return await image(first.records, first.upto("call(c1)"))


async def answer_all(system: System, verdict: Any, **options: Any) -> list[str]:
    """Answer every open question; gives what was asked."""
    asked: list[str] = []
    async for approval in system.approvals():
        asked.append(approval.question)
        await system.answer(approval.id, verdict, by="ann", **options)
    return asked


async def test_c174_allowed_it_runs_again_under_its_key() -> None:
    pays = Pays()
    store = await pays.cut_in_the_body()
    cut = (await records(store))[-1].seq
    async with opened(pays.agent("done"), store) as (system, ref):
        await wait_all_tasks_blocked()
        assert len(pays.keys) == 1
        (question,) = await answer_all(system, "allow")
        assert "Run it again?" in question
        await ref.wait_idle()
        assert await order(store, after=cut) == f"TR1 asked answered res(c1) {RESUMED}"
    assert len(pays.keys) == 2 and len(set(pays.keys)) == 1


@pytest.mark.parametrize("verdict", ["deny", "reply"])
async def test_c174_denied_its_outcome_is_unknown_and_a_reply_is_its_result(verdict: Any) -> None:
    pays = Pays()
    store = await pays.cut_in_the_body()
    cut = (await records(store))[-1].seq
    async with opened(pays.agent("done"), store) as (system, ref):
        await wait_all_tasks_blocked()
        await answer_all(system, verdict, text="it had been paid")
        await ref.wait_idle()
        code = "" if verdict == "reply" else "!OUTCOME_UNKNOWN"
        assert await order(store, after=cut) == f"TR1 asked answered res(c1{code}) {RESUMED}"
        (result,) = await events(store, e.ToolResult)
        assert "it had been paid" in getattr(result.content[0], "text", "")
    assert len(pays.keys) == 1


async def test_c174_what_was_allowed_before_the_crash_does_not_let_it_run_again() -> None:
    pays = Pays(approval="Pay?")
    store = await pays.cut_in_the_body()
    cut = (await records(store))[-1].seq
    async with opened(pays.agent("done"), store) as (system, ref):
        await wait_all_tasks_blocked()
        assert len(pays.keys) == 1, "the first answer was about the first run"
        (question,) = await answer_all(system, "allow")
        assert "Run it again?" in question
        await ref.wait_idle()
        assert await order(store, after=cut) == f"TR1 asked answered res(c1) {RESUMED}"


async def test_c174_each_crash_asks_anew() -> None:
    pays = Pays()
    store = await pays.cut_in_the_body()
    async with opened(pays.agent("done"), store) as (system, ref):
        await wait_all_tasks_blocked()
        await answer_all(system, "allow")
        await ref.wait_idle()
        log = await records(store)
    cut = upto(log, "answered")  # the second run may have begun
    store = await image(log, cut)
    async with opened(pays.agent("done"), store) as (system, ref):
        await wait_all_tasks_blocked()
        assert len(await answer_all(system, "deny")) == 1
        await ref.wait_idle()
        assert await order(store, after=cut) == f"TR1 asked answered res(c1!OUTCOME_UNKNOWN) {RESUMED}"
        first, second = await events(store, e.ApprovalAsked)
        assert first.id != second.id


@pytest.mark.parametrize("verdict", ["allow", "deny"])
async def test_c174_what_is_answered_while_nobody_runs_counts_for_one_run(verdict: Any) -> None:
    pays = Pays()
    store = await pays.cut_in_the_body()
    async with opened(pays.agent("done"), store, grace=0):
        await wait_all_tasks_blocked()
    (approval,) = [approval async for approval in approvals_in(store)]
    await answer_in(store, approval.id, verdict, by="ann", text=None)
    cut = (await records(store))[-1].seq
    async with opened(pays.agent("done"), store) as (_, ref):
        await ref.wait_idle()
        log, code = await records(store), "" if verdict == "allow" else "!OUTCOME_UNKNOWN"
        assert await order(store, after=cut) == f"TR1 res(c1{code}) {RESUMED}"
    assert len(pays.keys) == 1 + (verdict == "allow")
    store = await image(log, cut + 1)  # if it was allowed, it may have run once more
    async with opened(pays.agent("done"), store) as (system, ref):
        await wait_all_tasks_blocked()
        assert len(await answer_all(system, "deny")) == int(verdict == "allow")
        await ref.wait_idle()
        assert (await order(store)).endswith(f"res(c1!OUTCOME_UNKNOWN) {RESUMED}")


async def test_c174_asked_and_killed_the_question_stays() -> None:
    pays = Pays()
    store = await pays.cut_in_the_body()
    async with opened(pays.agent("done"), store, grace=0) as (system, ref):
        await wait_all_tasks_blocked()
    cut = (await records(store))[-1].seq
    async with opened(pays.agent("done"), store) as (system, ref):
        assert len(await answer_all(system, "allow")) == 1, "at once, before the turn is taken up"
        await ref.wait_idle()
        assert await order(store, after=cut) in (
            f"TR1 answered res(c1) {RESUMED}",
            f"answered TR1 res(c1) {RESUMED}",
        )
    assert len(pays.keys) == 2


async def test_c174_a_tool_that_is_gone_withdraws_its_question() -> None:
    pays = Pays()
    store = await pays.cut_in_the_body()
    async with opened(pays.agent("done"), store, grace=0):
        await wait_all_tasks_blocked()
    cut = (await records(store))[-1].seq
    async with opened(make(scripted("done")), store) as (_, ref):
        await ref.wait_idle()
        assert await order(store, after=cut) == f"TR1 answered res(c1!OUTCOME_UNKNOWN) {RESUMED}"
