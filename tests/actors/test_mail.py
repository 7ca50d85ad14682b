"""Section 16 of the conformance cases: mail between agents, asks that wait for each other, and what a restart finds of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from helpers import check, events, make, order, records, say, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, System, ToolContext, delegate, tool
from callboard.actors.answers import CallResult
from callboard.actors.testing import Reply
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import (
    AgentDeleted,
    AgentNotFound,
    AskCycle,
    CallboardError,
    InputDropped,
    InputParked,
)
from callboard.storage.records import Record
from callboard.storage.store import Batch, Results, Unit

OPEN = "put[t](hi) TS1 claim(hi) SS1.1 U(hi) H{initial} X Q1 C* A"
CLOSE = "SE SS1.2 Q1 C* A SE TE1{completed}"
HEAD = "TS1 claim({0}) SS1.1 U({0}) H{{initial}} X Q1 C* A"


def plain(name: str, *replies: Any, **options: Any) -> Agent[Any, Any]:
    """An agent without plugins."""
    return Agent(name, model=scripted(*replies), plugins=()).replace(**options)


async def text_of(store: Any, agent: str = "a", nth: int = 0) -> str:
    """The text of one of an agent's results."""
    return CallResult((await events(store, e.ToolResult, agent))[nth].content).text


async def test_c214_mail_keeps_its_order_and_names_its_sender() -> None:
    @tool
    async def write(ctx: ToolContext[Any]) -> str:
        """Writes to two others, in turn."""
        for n in (1, 2):
            await ctx.send("b", f"b{n}")
            await ctx.send("c", f"c{n}")
        return "written"

    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c1", "write", {})), "done"), tools=[write])
    other = plain("other", "one", "two", "three", "four")
    async with System.open(store, agents=[agent, other]) as system:
        ref = await system.spawn(agent, id="a")
        refs = [await system.spawn(other, id=id) for id in "bc"]
        await say(ref, "hi")
        for receiver in refs:
            await receiver.wait_idle()
        assert await order(store) == f"{OPEN} call(c1) mail mail mail mail res(c1) {CLOSE}"
        for id in "bc":
            puts = await events(store, e.InboxPut, id)
            assert [(put.message.text, put.sender, put.lane) for put in puts] == [
                (f"{id}1", "a", "next-turn"),
                (f"{id}2", "a", "next-turn"),
            ]
            assert [end.turn for end in await events(store, e.TurnEnd, id)] == [1, 2]
        sent = await events(store, e.MailSent)
        assert [(mail.to, mail.kind) for mail in sent] == [("b", "followup"), ("c", "followup")] * 2
    await check(store)


async def test_c214_mail_and_its_record_are_one_unit() -> None:
    """They stand or fall together, whatever else is in the commit."""
    seen: list[set[tuple[str, str]]] = []

    class Units(MemoryStore):
        async def commit(self, units: Sequence[Unit]) -> Results:
            for unit in units:
                parts = [part for part in unit if isinstance(part, Batch)]
                seen.append({(part.agent, item.type) for part in parts for item in part.items if isinstance(item, Record)})
            return await super().commit(units)

    @tool
    async def write(ctx: ToolContext[Any]) -> str:
        """Writes to another."""
        await ctx.send("b", "news")
        return "written"

    store = Units()
    agent = make(scripted(Reply.tools(("c1", "write", {})), "done"), tools=[write])
    other = plain("other", "thanks")
    async with System.open(store, agents=[agent, other]) as system:
        ref = await system.spawn(agent, id="a")
        receiver = await system.spawn(other, id="b")
        await say(ref, "hi")
        await receiver.wait_idle()
    (sent,) = (unit for unit in seen if ("a", "mail/sent") in unit)
    assert ("b", "inbox/put") in sent
    await check(store)


def asks(to: str, runs: list[str] | None = None, *, replay: Any = "safe") -> Any:
    """A tool that asks another agent."""

    @tool(name="asks", replay=replay)
    async def ask(ctx: ToolContext[Any]) -> str:
        """Asks another agent."""
        if runs is not None:
            runs.append(ctx.effect_key)
        outcome = await ctx.ask(to, "question")
        return str(outcome.text)

    return ask


async def test_c215_an_asker_that_crashes_finds_the_answer_by_its_message_id() -> None:
    runs: list[str] = []
    gate = trio.Event()
    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c1", "asks", {})), "done"), tools=[asks("b", runs)])
    other = plain("other", Reply.wait(gate, Reply.text("answer")))
    async with System.open(store, agents=[agent, other]) as system:
        ref = await system.spawn(agent, id="a")
        await system.spawn(other, id="b")
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        waiting = store.copy()
        gate.set()
        await wait_all_tasks_blocked()
        await ref.wait_idle()
    assert await order(store) == f"{OPEN} call(c1) mail res(c1) {CLOSE}"
    await check(store)
    again = make(scripted("done"), tools=[asks("b", runs)])
    async with System.open(waiting, agents=[again, plain("other", "answer after all")]) as system:
        for id in "ab":
            await (await system.get(id)).wait_idle()
        assert await text_of(waiting) == "answer after all"
        assert await order(waiting) == (f"{OPEN} call(c1) mail TR1 res(c1) SE SS1.2 H{{resume}} Q1 C* A SE TE1{{completed}}")
        assert await order(waiting, "b") == (
            "put[t](question) TS1 claim(question) SS1.1 U(question) H{initial} X Q1 "
            "TR1 F1{retry} H{resume} Q2 C* A SE TE1{completed}"
        )
    assert len(runs) == 2 and runs[0] == runs[1]
    await check(waiting)


async def test_c217_a_deleted_child_whose_result_is_due_is_gone() -> None:
    store = MemoryStore()
    child = plain("worker", Reply.hang("deep"))
    agent = make(scripted(Reply.tools(("c1", "worker", {"task": "go"})), "well"), tools=[delegate(child)])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("hi")
        await wait_all_tasks_blocked()
        await system.delete("a/1.1.c1")
        await ref.wait_idle()
        assert await order(store) == f"{OPEN} call(c1) born died{{aborted}} res(c1!CHILD_GONE) {CLOSE}"
        assert [summary.id async for summary in system.agents()] == ["a"]
    await check(store)


@pytest.mark.parametrize("wait", ["ask", "ref.ask", "wait_idle", "dispose", "delete", "outcome"])
async def test_c218_a_wait_for_oneself_is_a_cycle_of_one(wait: str) -> None:
    caught: list[CallboardError] = []

    @tool
    async def selfish(ctx: ToolContext[Any]) -> str:
        """Waits for the turn that it is part of."""
        waits: dict[str, Any] = {
            "ask": lambda: ctx.ask("a", "me"),
            "ref.ask": lambda: ctx.agent.ask("me"),
            "wait_idle": ctx.agent.wait_idle,
            "dispose": ctx.agent.dispose,
            "delete": lambda: held[0].delete("a"),
            "outcome": lambda: ctx.agent.outcome(turn=1),
        }
        try:
            await waits[wait]()
        except AskCycle as cycle:
            caught.append(cycle)
            raise
        return "never"

    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c1", "selfish", {})), "done"), tools=[selfish])
    async with System.open(store, agents=[agent]) as system:
        held = [system]
        ref = await system.spawn(agent, id="a")
        await say(ref, "hi")
        assert await order(store) == f"{OPEN} call(c1) res(c1!TOOL_ERROR) {CLOSE}"
        assert "a → a" in str(caught[0])
        assert system.statistics()["waits"] == 0
    await check(store)


WAITS = ("ask", "wait_idle", "dispose", "delete")


@pytest.mark.parametrize("wait", WAITS)
async def test_c270_the_wait_that_closes_a_cycle_fails_and_the_other_is_answered(wait: str) -> None:
    both = trio.Event()
    seen: list[str] = []

    @tool(mode="parallel")
    async def first(ctx: ToolContext[Any]) -> str:
        """A asks B, whose turn runs already."""
        await both.wait()
        return str((await ctx.ask("b", "from a")).text)

    @tool(mode="parallel")
    async def second(ctx: ToolContext[Any]) -> str:
        """B waits for A, which waits for B."""
        both.set()
        await wait_all_tasks_blocked()
        target = await held[0].get("a")
        waits: dict[str, Any] = {
            "ask": lambda: ctx.ask("a", "from b"),
            "wait_idle": target.wait_idle,
            "dispose": target.dispose,
            "delete": lambda: held[0].delete("a"),
        }
        try:
            await waits[wait]()
        except AskCycle as cycle:
            seen.append(str(cycle))
            raise
        return "never"

    store = MemoryStore()
    a = make(scripted(Reply.tools(("c1", "first", {})), "done"), tools=[first])
    b = plain("other", Reply.tools(("c2", "second", {})), "sorry", "answer", tools=[second])
    async with System.open(store, agents=[a, b]) as system:
        held = [system]
        refs = [await system.spawn(a, id="a"), await system.spawn(b, id="b")]
        for ref in refs:
            await ref.followup("hi", message_id=f"hi-{ref.id}")
        with trio.fail_after(60):
            for ref in refs:
                await ref.wait_idle()
        assert "b → a → b" in seen[0]
        assert await text_of(store) == "answer"
        assert await order(store) == f"{OPEN} call(c1) mail res(c1) {CLOSE}"
        assert await order(store, "b") == (
            f"{OPEN} call(c2) put[t](from a) res(c2!TOOL_ERROR) {CLOSE} "
            "TS2 claim(from a) SS2.1 U(from a) Q1 C* A SE TE2{completed}"
        )
    await check(store)


async def test_c270_a_child_that_waits_for_its_delegating_parent_is_a_cycle() -> None:
    @tool
    async def back(ctx: ToolContext[Any]) -> str:
        """A child's question to the parent that waits for it."""
        return str((await ctx.ask("a", "may I?")).text)

    store = MemoryStore()
    child = plain("worker", Reply.tools(("x", "back", {})), "did it alone", tools=[back])
    agent = make(scripted(Reply.tools(("c1", "worker", {"task": "go"})), "well"), tools=[delegate(child)])
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await say(ref, "hi")
        assert await order(store) == f"{OPEN} call(c1) born died{{completed}} res(c1) {CLOSE}"
        assert await order(store, "a/1.1.c1") == (
            f"put[t](go) {HEAD.format('go')} call(x) res(x!TOOL_ERROR) SE SS1.2 Q1 C* A SE TE1{{completed}}"
        )
        assert "a/1.1.c1 → a → a/1.1.c1" in await text_of(store, "a/1.1.c1")
    await check(store)


async def asking(ref: Any, caught: list[BaseException], **options: Any) -> None:
    """Ask, and keep the error."""
    try:
        await ref.ask("question", message_id="q", **options)
    except CallboardError as error:
        caught.append(error)


async def test_c271_an_ask_whose_message_no_turn_will_take_fails_at_once_by_name() -> None:
    async def withdraw(system: System, ref: Any) -> None:
        assert await ref.withdraw("q")

    async def replace(system: System, ref: Any) -> None:
        assert await ref.replace("q", "another", new_id="r")

    async def drop(system: System, ref: Any) -> None:
        await ref.cancel()

    async def park(system: System, ref: Any) -> None:
        await ref.cancel(keep_inbox=True)

    async def delete(system: System, ref: Any) -> None:
        await system.delete("a")

    expected = {withdraw: InputDropped, replace: InputDropped, drop: InputDropped, park: InputParked, delete: AgentDeleted}
    for act, error in expected.items():
        store, caught = MemoryStore(), list[BaseException]()
        agent = make(scripted(Reply.hang(), "late", "later"))
        async with System.open(store, agents=[agent], grace=0) as system:
            ref = await system.spawn(agent, id="a")
            await ref.followup("hi")
            await wait_all_tasks_blocked()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(asking, ref, caught)
                await wait_all_tasks_blocked()
                await act(system, ref)
                with trio.fail_after(60):
                    while not caught:
                        await trio.lowlevel.checkpoint()
            assert [type(e) for e in caught] == [error], act.__name__
            if error is not AgentDeleted:  # the same again, of what is known by now
                with pytest.raises(error):
                    await ref.outcome("q")
        await check(store)
        if error is not AgentDeleted:
            async with System.open(store, agents=[make(scripted())]) as system:
                with pytest.raises(error):
                    await (await system.get("a")).ask("question", message_id="q")


async def test_c271_an_ask_again_with_an_id_that_has_its_turn_gives_the_same_outcome() -> None:
    store = MemoryStore()
    agent = make(scripted("answer", "another"))
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        first = await ref.ask("question", message_id="q")
        assert await ref.ask("question", message_id="q") == first
        assert await ref.outcome("q") == first
    length = len(await records(store))
    async with System.open(store, agents=[make(scripted())]) as system:
        ref = await system.get("a")
        assert await ref.ask("question", message_id="q") == first
    assert len(await records(store)) == length
    await check(store)


async def test_c273_a_tool_that_runs_again_writes_nothing_twice() -> None:
    images: list[MemoryStore] = []

    def agent(*replies: Any) -> Agent[Any, Any]:
        @tool(replay="safe")
        async def write(ctx: ToolContext[Any]) -> str:
            """Writes twice."""
            first = await ctx.send("b", "one")
            images.append(store.copy())
            second = await ctx.send("b", "two")
            images.append(store.copy())
            keys.append((ctx.effect_key, first.message_id, second.message_id))
            return "written"

        return make(scripted(*replies), tools=[write])

    keys: list[tuple[str, str, str]] = []
    store = MemoryStore()
    sender, other = agent(Reply.tools(("c1", "write", {})), "done"), plain("other", "x", "y")
    async with System.open(store, agents=[sender, other]) as system:
        ref = await system.spawn(sender, id="a")
        await system.spawn(other, id="b")
        await say(ref, "hi")
    key, *letters = keys[0]
    assert [id.partition("@")[0] for id in letters] == [f"{key}#1", f"{key}#2"]
    for image in images[:2]:
        async with System.open(image, agents=[agent("done"), plain("other", *"abcd")]) as system:
            for id in "ab":
                await (await system.get(id)).wait_idle()
        assert [put.message.text for put in await events(image, e.InboxPut, "b")] == ["one", "two"]
        assert (await order(image)).count("mail") == 2
        await check(image)
    assert len(set(keys)) == 1


async def test_c273_mail_to_a_deleted_agent_is_a_dead_letter_and_to_an_unknown_one_an_error() -> None:
    @tool
    async def write(ctx: ToolContext[Any], to: str) -> str:
        """Writes to an agent."""
        await ctx.send(to, "news")
        return "written"

    store = MemoryStore()
    script = scripted(Reply.tools(("c1", "write", {"to": "b"}), ("c2", "write", {"to": "nobody"})), "done")
    agent, other = make(script, tools=[write]), plain("other")
    async with System.open(store, agents=[agent, other]) as system:
        ref = await system.spawn(agent, id="a")
        await system.spawn(other, id="b")
        await system.delete("b")
        await say(ref, "hi")
        assert await order(store) == f"{OPEN} call(c1) mail{{dead}} res(c1) call(c2) res(c2!TOOL_ERROR) {CLOSE}"
        assert "AgentNotFound" in await text_of(store, nth=1)
        for id in ("b", "nobody"):
            assert await store.head(id) is None
        with pytest.raises(AgentDeleted):
            await system.get("b")
        with pytest.raises(AgentNotFound):
            await system.get("nobody")
    await check(store)
