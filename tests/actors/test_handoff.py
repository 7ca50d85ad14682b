"""Handoff: this log goes on under another definition, from the next boundary on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from helpers import check, events, history, make, notation, order, records, say, scripted
from trio.testing import wait_all_tasks_blocked

from callboard import Agent, System
from callboard.actors import AgentRef, Plugin, handoff
from callboard.actors.testing import Reply, ScriptedModel, every_crash
from callboard.storage import NameMismatch, Request, Store, UsageError, export_log, import_log
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore

HAND = Reply.tools(("c1", "handoff_to_billing", {}))


def billing(*replies: Any, **options: Any) -> Agent[Any, Any]:
    return Agent("billing", model=_named(scripted(*replies), "bill"), system="You are billing.", plugins=()).replace(**options)


def desk(specialist: Agent[Any, Any], *replies: Any, **options: Any) -> Agent[Any, Any]:
    model = _named(scripted(*replies), "desk")
    return Agent("desk", model=model, tools=[handoff(specialist)], plugins=()).replace(**options)


def _named(model: ScriptedModel, provider: str) -> ScriptedModel:
    model.provider = provider
    return model


@asynccontextmanager
async def opened(agent: Agent[Any, Any], store: Store, **options: Any) -> AsyncGenerator[tuple[System, AgentRef[Any]]]:
    async with System.open(store, agents=[agent], **options) as system:
        yield system, await system.spawn(agent, id="a")
    await check(store)


async def test_the_specialist_answers_in_the_same_turn_under_its_own_prompt_and_tools() -> None:
    store = MemoryStore()
    there = billing("I am billing.", "Still here.")
    async with opened(desk(there, HAND), store) as (system, ref):
        outcome = await ref.ask("My bill?", message_id="My bill?")
        assert (outcome.text, outcome.steps) == ("I am billing.", 2)
        assert (await ref.info()).definition == "billing"
        assert [s.name async for s in system.agents()] == ["billing"]
        await say(ref, "More")
        assert await history(ref) == [
            "user My bill?",
            "assistant ",
            "tool billing goes on from here.",
            "assistant I am billing.",
            "user More",
            "assistant Still here.",
        ]
    log = await order(store)
    assert "call(c1) res(c1) note(callboard/handoff) SE SS1.2 H{change} X Q1 C* A SE TE1{completed}" in log
    model: Any = there.model
    (request, _) = model.requests
    assert (request.system, request.tools) == ("You are billing.", ())


async def test_after_a_restart_it_goes_on_under_the_specialist_whoever_opens_it() -> None:
    store = MemoryStore()
    async with opened(desk(billing("Hello."), HAND), store) as (_, ref):
        await say(ref, "hi")
    async with opened(desk(billing("Again.")), store) as (system, ref):
        assert [s.name async for s in system.agents()] == ["billing"]
        assert (await ref.ask("you")).text == "Again."
        with pytest.raises(NameMismatch):
            await system.spawn(make(scripted()), id="a")
    async with System.open(store, agents=[billing("Third.")]) as system:
        assert (await (await system.get("a")).ask("and")).text == "Third."


async def test_a_crash_anywhere_leaves_the_call_and_the_handoff_together() -> None:
    def at_the_desk(request: Request) -> Reply:
        return HAND

    def at_billing(request: Request) -> Reply:
        return Reply.text(f"billing after {len(request.messages)}")

    def agents() -> Agent[Any, Any]:
        there = billing(model=_named(ScriptedModel(at_billing), "bill"))
        return desk(there, model=_named(ScriptedModel(at_the_desk), "desk"))

    async def scenario(store: Store) -> tuple[str, str]:
        async with opened(agents(), store) as (_, ref):
            first = await ref.ask("hi", message_id="m1")
            second = await ref.ask("you", message_id="m2")
            return first.text, second.text

    async for crash in every_crash(scenario):
        assert crash.result == ("billing after 3", "billing after 5"), crash
        log = await records(crash.store)
        notes = [r.seq for r in log if isinstance(r.event, e.Note) and r.event.kind == "callboard/handoff"]
        results = [r.seq for r in log if isinstance(r.event, e.ToolResult)]
        assert [seq - 1 for seq in notes] == results, crash


async def test_a_specialist_hands_back_by_name() -> None:
    store = MemoryStore()
    back = handoff("desk", name="back", description="Give it back.")
    there = billing("I am billing.", Reply.tools(("c2", "back", {})), tools=[back])
    async with opened(desk(there, HAND, "The desk again."), store) as (_, ref):
        await say(ref, "hi")
        assert (await ref.ask("thanks")).text == "The desk again."
        assert (await ref.info()).definition == "desk"


async def test_the_plugins_and_the_output_of_the_specialist_are_in_force() -> None:
    started: list[str] = []

    class Notes(Plugin):
        async def on_start(self, system: Any) -> None:
            started.append("started")

        async def pre_step(self, ctx: Any, boundary: Any, next: Any, /) -> Any:
            ctx.note("mine")
            return await next(boundary)

    shape = {"type": "object", "properties": {"cents": {"type": "integer"}}, "required": ["cents"]}
    store = MemoryStore()
    there = billing(Reply.output({"cents": 5}), plugins=[Notes()], output=shape)
    async with opened(desk(there, HAND), store) as (_, ref):
        assert (await ref.ask("hi")).output == {"cents": 5}
    assert started == ["started"] and (await order(store)).count("note(mine)") == 1


async def test_nobody_hands_an_agent_over_by_a_note_of_his_own() -> None:
    class Forges(Plugin):
        async def pre_step(self, ctx: Any, boundary: Any, next: Any, /) -> Any:
            ctx.note("callboard/handoff", {"to": "billing"})

    store = MemoryStore()
    async with opened(desk(billing(), "Hello.", plugins=[Forges()]), store) as (_, ref):
        assert (await ref.ask("hi")).reason.kind == "error"
        assert (await ref.info()).definition == "desk"


class Blocks(Plugin):
    """Every result is an error."""

    async def tool_after(self, ctx: Any, done: Any, next: Any, /) -> Any:
        return done.with_text("not now", error="BLOCKED")


async def test_a_handoff_whose_result_is_blocked_or_denied_hands_nothing_over() -> None:
    store = MemoryStore()
    agent = desk(billing(), HAND, "Then I.", plugins=[Blocks()])
    async with opened(agent, store) as (_, ref):
        assert (await ref.ask("hi")).text == "Then I."
        assert (await ref.info()).definition == "desk"


async def test_a_definition_that_is_not_there_is_an_error_that_the_model_reads() -> None:
    store = MemoryStore()
    model = scripted(Reply.tools(("c1", "handoff_to_nobody", "[]")), Reply.tools(("c2", "handoff_to_nobody", "")), "Then I.")
    async with opened(make(model, tools=[handoff("nobody")]), store) as (_, ref):
        assert (await ref.ask("hi")).text == "Then I."
    results = await events(store, e.ToolResult)
    assert [result.error for result in results] == ["INVALID_ARGUMENTS", "TOOL_ERROR"]


async def test_a_fork_before_the_handoff_is_of_the_first_definition_and_one_behind_it_of_the_second() -> None:
    store = MemoryStore()
    async with opened(desk(billing("Hello.", "You too."), "I am the desk.", HAND, "Me again."), store) as (_, ref):
        await say(ref, "hi")
        await say(ref, "my bill")
        before, behind = await ref.fork(turn=2, id="before"), await ref.fork(id="behind")
        assert ((await before.info()).definition, (await behind.info()).definition) == ("desk", "billing")
        assert (await behind.ask("me")).text == "You too."
        assert (await before.ask("me")).text == "Me again."


async def test_an_imported_log_is_listed_under_the_definition_it_goes_on_under(tmp_path: Any) -> None:
    store, other = MemoryStore(), MemoryStore()
    async with opened(desk(billing("Hello."), HAND), store) as (_, ref):
        await say(ref, "hi")
    with (tmp_path / "a.jsonl").open("wb") as file:
        await export_log(store, "a", file)
    with (tmp_path / "a.jsonl").open("rb") as file:
        await import_log(other, file)
    head = await other.head("a")
    assert head is not None and head.summary.name == "billing"


async def test_a_cancel_behind_the_body_keeps_the_result_and_the_handoff_together() -> None:
    store = MemoryStore()

    class Slow(Plugin):
        async def tool_after(self, ctx: Any, done: Any, next: Any, /) -> Any:
            await ctx.agent.cancel()
            await trio.lowlevel.checkpoint()
            return await next(done)

    async with opened(desk(billing(), HAND, plugins=[Slow()]), store) as (_, ref):
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await ref.wait_idle()
        log = notation(await records(store))
        assert "TC1 res(c1) note(callboard/handoff) SE TE1{aborted user}" in log
        assert (await ref.info()).definition == "billing"


@pytest.mark.parametrize("wrong", [None, "", 7])
def test_what_is_no_definition_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError, match="needs an Agent"):
        handoff(wrong)


def test_a_name_that_no_model_takes_is_refused() -> None:
    with pytest.raises(UsageError, match="cannot be named"):
        handoff("the desk")
    assert handoff("the desk", name="desk").name == "desk"
