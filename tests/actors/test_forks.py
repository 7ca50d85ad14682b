"""Forks: taken up once by their first input, another definition for one of them, a turn run again; agents whose name changed."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import check, events, make, opened, order, records, say, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, AgentRef, Ask, Plugin, System, ToolContext, ToolOutput, delegate, tool
from callboard.actors.comparing import Row, compare_runs
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import Image
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import NameMismatch, UsageError
from callboard.storage.messages import Request, TextBlock

IRC = {"channel": "irc", "chat": "1"}


@tool(replay="safe", mode="parallel", approval=lambda ctx, call: Ask("really?"))
async def risky() -> str:
    """Needs a person."""
    return "done"


def family(*replies: Any) -> Agent[Any, Any]:
    """Says one thing with a route, then delegates and asks a person at once."""
    worker = Agent("worker", model=scripted(Reply.hang()), plugins=())
    return make(scripted(*replies), tools=[delegate(worker), risky])


CALLS = Reply.tools(("c1", "worker", {"task": "go"}), ("c2", "risky", {}))


async def busy(store: MemoryStore) -> tuple[MemoryStore, int]:
    """An agent with a timer, an unsent reply, a child and an open question; a fork of it; all killed. And the fork's length."""
    agent = family("hello", CALLS)
    async with System.open(store, agents=[agent], grace=0) as system:
        ref = await system.spawn(agent, id="a")
        await say(ref, "hi", route=IRC)
        await ref.remind("tea", after_s=3600)
        await ref.followup("more", message_id="more")
        await wait_all_tasks_blocked()
        await ref.fork(id="b")
        return store.copy(), len(await records(store, "b"))


@pytest.mark.parametrize("by", ["send", "resume"])
async def test_c277_nothing_of_the_prefix_happens_in_a_fork_and_its_open_turn_is_taken_up(by: str) -> None:
    image, length = await busy(MemoryStore())
    assert [head.agent for head in await image.agents(flag="attention")] == ["a", "a/2.1.c1"]
    assert [head.agent for head in await image.agents(flag="timer")] == ["a"]
    agent = family("all in all", "and on")
    async with System.open(image, agents=[agent], grace=0) as system:
        await wait_all_tasks_blocked()
        assert "b" not in system.report.resumed + system.report.woken
        fork = await system.get("b")
        assert fork.status == "idle" and len(await records(image, "b")) == length
        assert [approval async for approval in system.approvals("b")] == [] and await fork.timers() == ()
        info = await fork.info()
        assert (info.pending, info.children, info.usage.total) == (0, (), 0)
        await (fork.followup("on", message_id="on") if by == "send" else fork.resume())
        await wait_all_tasks_blocked()
        (approval,) = [approval async for approval in system.approvals("b")]
        await system.answer(approval.id, "allow", by="ann")
        await fork.wait_idle()
        added = await order(image, "b", length - 1)
    await check(image)
    taken_up = "TR2 asked res(c1!OUTCOME_UNKNOWN) answered call(c2) res(c2) SE SS2.2 H{resume} Q1 C* A SE TE2{completed}"
    then = " TS3 claim(on) SS3.1 U(on) Q1 C* A SE TE3{completed}"
    assert added == (f"put[t](on) {taken_up}{then}" if by == "send" else taken_up)


async def test_c277_a_fork_whose_first_input_was_accepted_runs_it_after_a_crash() -> None:
    store = MemoryStore()
    async with opened(make(scripted("one", Reply.hang())), store) as (system, ref):
        await say(ref, "hi")
        await ref.fork(id="b")
        actor = await system._runtime.registry.actor("b")  # pyright: ignore[reportPrivateUsage]
        system._runtime.closing = True  # pyright: ignore[reportPrivateUsage]
        await (await system.get("b")).followup("on", message_id="on")
        assert actor.status == "idle"
        image = store.copy()
    agent = make(scripted("two"))
    async with System.open(image, agents=[agent]) as system:
        assert system.report.woken == ["b"]
        assert (await (await system.get("b")).outcome("on")).text == "two"
    await check(image)


async def test_a_turn_runs_again_under_another_prompt_and_the_two_are_compared() -> None:
    def says(request: Request) -> Reply:
        if request.messages[-1].results:
            return Reply.text("short" if request.system == "Be brief." else "a long answer")
        return Reply.tools(("c", "look", {"what": request.messages[-1].text}))

    @tool(replay="safe")
    async def look(ctx: ToolContext[Any], what: str) -> str:
        """Look it up."""
        return f"{what} is {'here' if ctx.agent.id == 'a' else 'there'}"

    store = MemoryStore()
    model = ScriptedModel(says)
    agent = make(model, tools=[look], system="Be nice.")
    async with opened(agent, store) as (_, ref):
        await say(ref, "one")
        await say(ref, "two", route=IRC)
        await say(ref, "three")
        brief = agent.replace(system="Be brief.")
        alt = await ref.fork(turn=2, id="b", agent=brief, rerun=True)
        assert (await alt.outcome("two")).text == "short" == (await alt.outcome(turn=2)).text
        assert (await ref.outcome(turn=2)).text == "a long answer"
        comparison = await compare_runs(ref, alt)
        assert comparison.differences[:3] == (
            Row(2, 1, "system", "Be nice.", "Be brief."),
            Row(2, 1, "result", "two is here", "two is there"),
            Row(2, 2, "answer", "a long answer", "short"),
        )
        assert Row(2, 1, "input", "two", "two") in comparison.rows and Row(2, 0, "steps", "2", "2") in comparison.rows
        assert {row.turn for row in comparison.rows} == {2}
        text = str(comparison).splitlines()
        assert text[:2] == ["- a", "+ b"] and f"records up to {comparison.shared};" in text[2]
        assert text[3:7] == ["turn 2, step 1", "  system", "    - Be nice.", "    + Be brief."]
        assert not (await compare_runs(ref, ref)).rows
        await say(ref, "four")
        assert model.requests[-1].system == "Be nice.", "the definition of others is as it was"
    await check(store)
    assert (await order(store, "b", comparison.shared)).startswith("forked put[t](two) TS2 claim(two)")
    assert len(await events(store, e.OutboxPut, "b")) == 0, "nobody hears what is only tried"


async def test_a_rerun_gives_what_came_from_outside_and_not_what_came_of_the_work() -> None:
    @tool(replay="safe")
    async def look(ctx: ToolContext[Any]) -> Any:
        """Look."""
        return ToolOutput("seen", context=["by the way"])

    store = MemoryStore()
    script = scripted(Reply.tools(("c", "look", {})), "one", Reply.tools(("c", "look", {})), "two")
    async with opened(make(script, tools=[look]), store) as (_, ref):
        await ref.inject([TextBlock("see"), Image.from_bytes(b"pixels", "image/png")], message_id="pic")
        await say(ref, "hi")
        fork = await ref.fork(turn=1, rerun=True, id="b")
        await fork.wait_idle()
        for twin in (ref, fork):
            assert [m.text for m in await twin.messages() if m.role == "user"][-3:] == ["see", "hi", "by the way"]
    await check(store)
    async with System.open(store, agents=[make(scripted())]) as system:
        await system.delete("a")
        image = (await (await system.get("b")).messages())[0].content[1]
        assert isinstance(image, Image) and await store.blob(image.blob or "") == b"pixels"


async def test_what_cannot_be_forked_is_refused() -> None:
    async with opened(make(scripted("one"))) as (system, ref):
        await say(ref, "hi")
        await ref.fork(id="b")
        cases: list[tuple[dict[str, Any], str]] = [
            ({"rerun": True}, "needs turn="),
            ({"turn": 2, "rerun": True}, "no turn 2"),
            ({"turn": 1, "at": 1}, "not both"),
            ({"at": 99}, "no record 99"),
            ({"id": "b"}, "exists already"),
            ({"id": ""}, "id"),
        ]
        for options, why in cases:
            with pytest.raises(UsageError, match=why):
                await ref.fork(**options)
        other = Agent("other", model=scripted(), plugins=())
        system.define(other)
        with pytest.raises(NameMismatch):
            await ref.fork(agent=other.replace(system="x"))


class Counts(Plugin):
    """Knows whether it was started."""

    def __init__(self) -> None:
        self.started = 0

    async def on_start(self, system: Any) -> None:
        self.started += 1


async def test_the_definition_of_a_fork_is_its_alone_for_as_long_as_it_lives() -> None:
    counts = Counts()
    agent = make(ScriptedModel(lambda request: Reply.text(request.system or "-")), system="old")
    async with opened(agent, idle_after=0.1) as (system, ref):
        await say(ref, "hi")
        fork = await ref.fork(id="b", agent=agent.replace(system="own", plugins=[counts]))
        assert counts.started == 1

        async def answer(to: AgentRef[Any]) -> str:
            return (await to.ask("hm?")).text

        assert [await answer(ref), await answer(fork)] == ["old", "own"]
        system.define(agent.replace(system="new"))
        assert [await answer(ref), await answer(fork)] == ["new", "own"]
        await system.delete("b")
        again = await ref.fork(id="b")
        assert await answer(again) == "new"


async def test_an_open_turn_goes_on_under_the_new_name_of_its_definition() -> None:
    store = MemoryStore()
    async with System.open(store, agents=[make(scripted(Reply.hang()))], grace=0) as system:
        await (await system.spawn(make(scripted()).replace(name="other"), id="x")).followup("x", message_id="x")
        ref = await system.spawn(next(iter(system.definitions.values())), id="a")
        await ref.followup("hi", message_id="hi")
        await wait_all_tasks_blocked()
        image = store.copy()
    renamed = make(scripted("here I am"), formerly=["demo"]).replace(name="demo2")
    async with System.open(image, agents=[renamed]) as system:
        assert system.report.resumed == ["a"]
        assert (await (await system.get("a")).outcome("hi")).text == "here I am"
        assert (await system.spawn(renamed, id="a")).id == "a"
        assert list(system.report.failed) in ([], ["x"])
    await check(image)
