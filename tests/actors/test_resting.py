"""A turn that waits for a person costs no task and then no memory; what ends the wait goes on with it, and no record tells."""

from __future__ import annotations

import gc
from typing import Any, Literal

import pytest
import trio
from helpers import check, events, make, order, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, AgentRef, Approval, Ask, System, ToolContext, delegate, tool
from callboard.actors.plugins import Commands, Compaction
from callboard.actors.testing import Reply, ScriptedModel, every_crash, trio_wall
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AskTimeout
from callboard.storage.messages import Request
from callboard.storage.store import Store

IDLE_S = 60
LONG_S = 10 * IDLE_S
WALL = "2026-12-01T08:00Z"
ASKED = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A"


def desk(*, expires_s: float | None = None, beside: tuple[Any, ...] = (), **options: Any) -> Agent[Any, Any]:
    """An agent whose one tool needs a person; further calls stand before and behind it."""

    @tool(mode="parallel", approval=lambda ctx, call: Ask("May it?", expires_s=expires_s))
    async def sign(ctx: ToolContext[Any]) -> str:
        """Sign."""
        signed.append(ctx.agent.id)
        return "signed"

    signed: list[str] = []

    def says(request: Request) -> Reply:
        results = {id: text for message in request.messages for id, text in message.results.items()}
        calls: list[tuple[str, str, str]] = [("s", "sign", "{}"), *((each.name, each.name, "{}") for each in beside)]
        return Reply.text("; ".join(results.values())) if results else Reply.tools(*calls)

    return make(ScriptedModel(says, keep_requests=False), tools=[sign, *beside], **options)


def actor_of(system: System, id: str = "a") -> Any:
    """What is in memory of an agent; None if it was dropped."""
    return system._runtime.registry.peek(id)  # pyright: ignore[reportPrivateUsage]


def drivers() -> int:
    """How many tasks run a turn now."""
    gc.collect()
    root = trio.lowlevel.current_root_task()
    tasks, left = 0, [root] if root is not None else []
    while left:
        task = left.pop()
        tasks += task.name.endswith(".drive")
        left.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
    return tasks


async def question(system: System, prefix: str = "") -> Approval:
    """The first open question."""
    async for approval in system.approvals(prefix):
        return approval
    raise AssertionError("nobody asks")


async def asked(system: System, agent: Agent[Any, Any], id: str = "a") -> AgentRef[Any]:
    """The agent, with its question open."""
    ref = await system.spawn(agent, id=id)
    await ref.followup("hi", message_id="hi")
    await wait_all_tasks_blocked()
    return ref


async def test_c136_a_thousand_waiting_turns_cost_no_task_and_no_memory(autojump_clock: MockClock) -> None:
    store, agent = MemoryStore(), desk()
    async with System.open(store, agents=[agent], idle_after=IDLE_S) as system:
        refs = [await system.spawn(agent, id=f"a{n}") for n in range(1000)]
        for ref in refs:
            await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        assert drivers() == 1000
        await trio.sleep(2 * IDLE_S)
        assert drivers() == 0
        await trio.sleep(2 * IDLE_S)
        assert system.statistics()["agents"] == 0
        heads = {head.agent: head.last for head in await store.agents(limit=1000)}
        assert {ref.status for ref in refs} == {"running"}
        assert sum([1 async for _ in system.approvals()]) == 1000
        await trio.sleep(LONG_S)
        assert {head.agent: head.last for head in await store.agents(limit=1000)} == heads, "no record of any of this"
        assert (system.statistics()["agents"], drivers()) == (0, 0)
        await system.answer((await question(system, "a77")).id, "allow", by="ann")
        assert (await refs[77].outcome("hi")).text == "signed"
        assert sum(ref.status == "running" for ref in refs) == 999
    assert await order(store, "a77") == f"{ASKED} asked answered call(s) res(s) SE SS1.2 Q1 C* A SE TE1{{completed}}"
    await check(store)


@pytest.mark.parametrize("wait_s", [2 * IDLE_S, LONG_S], ids=["in memory", "dropped"])
@pytest.mark.parametrize("verdict", ["allow", "deny", "reply"])
async def test_c136_an_answer_goes_on_with_it(autojump_clock: MockClock, verdict: Any, wait_s: float) -> None:
    store, agent = MemoryStore(), desk()
    async with System.open(store, agents=[agent], idle_after=IDLE_S) as system:
        ref = await asked(system, agent)
        await trio.sleep(wait_s)
        assert drivers() == 0 and (actor_of(system) is None) == (wait_s == LONG_S)
        await system.answer((await question(system)).id, verdict, by="ann", text="so be it")
        outcome = await ref.outcome("hi")
        assert outcome.ok and (verdict == "allow") == (outcome.text == "signed")
        await ref.wait_idle()
        assert ref.status == "idle"
    assert "TR1" not in await order(store)
    await check(store)


async def test_c136_who_asked_and_who_follows_keep_it_in_memory_and_hear_of_it(autojump_clock: MockClock) -> None:
    agent, seen, texts = desk(), list[str](), list[str]()

    async def ask(ref: AgentRef[Any]) -> None:
        texts.append((await ref.ask("hi", message_id="hi")).text)

    async def follow(ref: AgentRef[Any]) -> None:
        async for record in ref.follow(types={"turn/end"}):
            seen.append(record.type)
            break

    async with System.open(":memory:", agents=[agent], idle_after=IDLE_S) as system, trio.open_nursery() as nursery:
        ref = await system.spawn(agent, id="a")
        nursery.start_soon(ask, ref)
        nursery.start_soon(follow, ref)
        nursery.start_soon(ref.wait_idle)
        await trio.sleep(LONG_S)
        assert drivers() == 0 and actor_of(system) is not None
        assert [wait.kind for wait in (await ref.info()).waits] == ["approval"]
        await system.answer((await question(system)).id, "allow", by="ann")
        await trio.sleep(1)
        assert (texts, seen) == (["signed"], ["turn/end"])


async def test_c119_a_tool_beside_it_that_finished_has_its_result_and_does_not_run_again(autojump_clock: MockClock) -> None:
    runs: list[str] = []

    @tool(mode="parallel")
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay once."""
        runs.append(ctx.effect_key)
        await trio.sleep(3 * IDLE_S)
        return "paid"

    store, agent = MemoryStore(), desk(beside=(pay,))
    async with System.open(store, agents=[agent], idle_after=IDLE_S) as system:
        ref = await asked(system, agent)
        await trio.sleep(2 * IDLE_S)
        assert drivers() == 1, "a body runs"
        await trio.sleep(LONG_S)
        assert drivers() == 0 and actor_of(system) is None
        assert await order(store) == f"{ASKED} asked call(pay) res(pay)"
        await system.answer((await question(system)).id, "allow", by="ann")
        assert (await ref.outcome("hi")).ok
    assert len(runs) == 1
    await check(store)


async def test_c119_a_question_expires_also_while_nobody_runs_the_turn(autojump_clock: MockClock) -> None:
    store, agent = MemoryStore(), desk(expires_s=86400)
    async with System.open(store, agents=[agent], idle_after=IDLE_S, now=trio_wall(WALL)) as system:
        ref = await asked(system, agent)
        await trio.sleep(LONG_S)
        assert actor_of(system) is None
        await trio.sleep(86400)
        assert (await ref.outcome("hi")).text.startswith("Nobody answered in time")
    (answered,) = await events(store, e.ApprovalAnswered)
    assert answered.verdict == "expired"
    await check(store)


@pytest.mark.parametrize("how", ["cancel", "dispose", "delete", "parent"])
@pytest.mark.parametrize("wait_s", [2 * IDLE_S, LONG_S], ids=["in memory", "dropped"])
async def test_c119_a_cancel_reaches_it(
    autojump_clock: MockClock, how: Literal["cancel", "dispose", "delete", "parent"], wait_s: float
) -> None:
    store, agent = MemoryStore(), desk().replace(name="worker")
    lead = make(scripted(Reply.tools(("c", "worker", {"task": "hi"})), "sent"), tools=[delegate(agent, background=True)])
    async with System.open(store, agents=[agent, lead], idle_after=IDLE_S) as system:
        if how == "parent":
            parent = await system.spawn(lead, id="p")
            await parent.ask("go")
            await wait_all_tasks_blocked()
            ref = await system.get("p/1.1.c")
        else:
            parent = ref = await asked(system, agent)
        await trio.sleep(wait_s)
        assert drivers() == 0
        if how in ("cancel", "parent"):
            await parent.cancel()
            await ref.wait_idle()
        elif how == "dispose":
            await ref.dispose()
        else:
            await system.delete("a")
            assert await store.head("a") is None
            return
        assert ref.status == "idle"
    (result,) = await events(store, e.ToolResult, ref.id)
    assert result.error == "ABORTED_BEFORE_DISPATCH"
    (answered,) = await events(store, e.ApprovalAnswered, ref.id)
    assert answered.verdict == "withdrawn"
    await check(store)


async def test_c119_a_steer_is_taken_at_the_next_boundary(autojump_clock: MockClock) -> None:
    store, agent = MemoryStore(), desk()
    async with System.open(store, agents=[agent], idle_after=IDLE_S) as system:
        ref = await asked(system, agent)
        await trio.sleep(LONG_S)
        await ref.steer("quick!", message_id="quick!")
        await trio.sleep(LONG_S)
        assert drivers() == 0, "it waits again"
        await system.answer((await question(system)).id, "allow", by="ann")
        await ref.wait_idle()
    assert "asked put[s](quick!) answered call(s) res(s) SE claim(quick!) SS1.2 U(quick!)" in await order(store)
    await check(store)


@pytest.mark.parametrize("wait_s", [2 * IDLE_S, LONG_S], ids=["in memory", "dropped"])
async def test_c065_a_close_leaves_it_to_the_next_start_without_waiting(autojump_clock: MockClock, wait_s: float) -> None:
    store, agent = MemoryStore(), desk()
    for _ in range(8):  # more often than `Limits.recoveries`: that it waits is no reason to give it up
        async with System.open(store, agents=[agent], idle_after=IDLE_S, grace=1000) as system:
            await asked(system, agent)
            await trio.sleep(wait_s)
            began = trio.current_time()
        assert trio.current_time() - began < 1
    async with System.open(store, agents=[agent]) as system:
        await system.answer((await question(system)).id, "allow", by="ann")
        assert (await (await system.get("a")).outcome("hi")).text == "signed"
    assert (await order(store)).count("asked") == 1
    await check(store)


@pytest.mark.parametrize("wait_s", [0, 2 * IDLE_S, LONG_S], ids=["at work", "in memory", "dropped"])
async def test_c065_a_close_ends_it_for_good_if_the_agent_leaves_no_turn_open(autojump_clock: MockClock, wait_s: float) -> None:
    @tool(mode="parallel")
    async def look() -> str:
        """Look."""
        return "looked"

    store, agent = MemoryStore(), desk(beside=(look,), recovery="end")
    async with System.open(store, agents=[agent], idle_after=IDLE_S, grace=1000 if wait_s else 0) as system:
        ref = await asked(system, agent)
        await trio.sleep(wait_s)
        assert (drivers(), actor_of(system) is None) == (int(wait_s == 0), wait_s == LONG_S)
        await ref.inject("by the way", message_id="by the way")
        if wait_s == LONG_S:
            await trio.sleep(2 * LONG_S)
            assert actor_of(system) is None
        began = trio.current_time()
    assert trio.current_time() - began < 1
    log = await order(store)
    closed = "answered res(s!ABORTED_BEFORE_DISPATCH) SE TE1{aborted disposed}"
    assert log.replace(" res(look)", "") == f"{ASKED} asked call(look) put[s](by the way) {closed}"
    assert "res(look)" in log
    (end,) = await events(store, e.TurnEnd)
    assert [entry.state for entry in end.trace] == ["RESTORE", "COMPACT", "COMMAND", "BUILD", "RUN"]
    async with System.open(store, agents=[agent]) as system:
        assert [item.id for item in await (await system.get("a")).pending()] == ["by the way"]
    await check(store)


async def test_c136_killed_at_rest_it_is_ended_by_the_next_life(autojump_clock: MockClock) -> None:
    async def scenario(store: Store) -> list[str]:
        agent = desk(recovery="end")
        async with System.open(store, agents=[agent], idle_after=IDLE_S) as system:
            await asked(system, agent)
            await trio.sleep(LONG_S)
        return [e.kind_of(end.reason) for end in await events(store, e.TurnEnd)]

    async for crash in every_crash(scenario):
        assert crash.result in (["aborted"], ["interrupted"]), crash


async def test_c065_who_waits_for_it_hears_that_the_system_closes(autojump_clock: MockClock) -> None:
    agent, heard = desk(), list[str]()

    async def ask(ref: AgentRef[Any]) -> None:
        with pytest.raises(AskTimeout, match="goes on at the next start"):
            await ref.ask("hi")
        heard.append("closed")

    async with trio.open_nursery() as nursery, System.open(":memory:", agents=[agent], idle_after=IDLE_S) as system:
        nursery.start_soon(ask, await system.spawn(agent, id="a"))
        await trio.sleep(LONG_S)
    assert heard == ["closed"]


async def test_c136_an_answer_in_the_moment_of_leaving_is_not_lost(autojump_clock: MockClock) -> None:
    """At every checkpoint around the driver's end: it sees the answer, or the answer wakes it."""
    for passes in range(40):
        store, agent = MemoryStore(), desk()
        async with System.open(store, agents=[agent], idle_after=IDLE_S) as system:
            ref = await asked(system, agent)
            approval = await question(system)
            actor = actor_of(system)
            actor.turn.resting = True
            actor.turn.scope.cancel()
            for _ in range(passes):
                await trio.lowlevel.checkpoint()
            await system.answer(approval.id, "allow", by="ann")
            with trio.fail_after(30):
                assert (await ref.outcome("hi")).text == "signed"
        assert "TR1" not in await order(store)
        await check(store)


async def test_c136_killed_at_rest_it_is_answered_in_the_next_life(autojump_clock: MockClock) -> None:
    signed: list[str] = []

    @tool(approval="May it?")
    async def sign(ctx: ToolContext[Any]) -> str:
        """Sign."""
        signed.append(ctx.effect_key)
        return "signed"

    def says(request: Request) -> Reply:
        results = request.messages[-1].results
        return Reply.text(results["s"]) if results else Reply.tools(("s", "sign", {}))

    async def scenario(store: Store) -> str:
        agent = make(ScriptedModel(says), tools=[sign])
        async with System.open(store, agents=[agent], idle_after=IDLE_S) as system:
            ref = await system.spawn(agent, id="a")
            await ref.followup("hi", message_id="hi")
            await trio.sleep(LONG_S)
            async for approval in system.approvals():
                await system.answer(approval.id, "allow", by="ann")
            return (await ref.outcome("hi")).reason.kind

    async for crash in every_crash(scenario):
        assert crash.result == "completed", crash
        assert len(await events(crash.store, e.ApprovalAsked)) == 1, crash
        assert len(signed) <= 2 and len(set(signed)) <= 1, "in each life once, and after a crash in the body never"
        signed.clear()


async def test_c119_two_questions_are_answered_days_apart(autojump_clock: MockClock) -> None:
    """The first answer's body runs and has its result; the turn rests again until the second."""

    @tool(replay="never", mode="parallel", approval="And this?")
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        paid.append(ctx.effect_key)
        return "paid"

    paid: list[str] = []
    store, agent = MemoryStore(), desk(beside=(pay,))
    async with System.open(store, agents=[agent], idle_after=IDLE_S) as system:
        ref = await asked(system, agent)
        for last in (True, False):
            await trio.sleep(LONG_S)
            assert drivers() == 0 and actor_of(system) is None
            questions = [each async for each in system.approvals()]
            assert len(questions) == 1 + last
            await system.answer(questions[-1].id, "allow", by="ann")
            await trio.sleep(LONG_S)
            assert len(paid) == 1
        assert (await ref.outcome("hi")).text == "signed; paid"
    assert "TR1" not in await order(store)
    await check(store)


async def test_what_was_signed_late_can_be_summarised_with_its_call(autojump_clock: MockClock) -> None:
    """The result of the tool beside it was recorded first, and stands behind it: by their seqs the range would end too early."""

    @tool(mode="parallel")
    async def look() -> str:
        """Look."""
        return "looked"

    store, agent = MemoryStore(), desk(beside=(look,), plugins=[Commands(), Compaction()])
    async with System.open(store, agents=[agent], idle_after=IDLE_S) as system:
        ref = await asked(system, agent)
        await trio.sleep(LONG_S)
        await system.answer((await question(system)).id, "allow", by="ann")
        await ref.wait_idle()
        assert "res(look) answered call(s) res(s)" in await order(store)
        await ref.followup("/compact")
        await ref.wait_idle()
        log = await order(store)
        assert "cmdres cut(" in log, log
        assert len(await ref.messages()) == 2
    await check(store)
