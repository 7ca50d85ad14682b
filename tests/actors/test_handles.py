"""What a handle refuses, how long it waits, and what it does from inside another agent's turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from helpers import check, events, make, opened, order, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors.agent import Agent
from callboard.actors.delegation import delegate
from callboard.actors.ref import AgentRef
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import ToolContext, tool
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import AgentDeleted, AskCycle, AskTimeout, NameMismatch, UsageError

# -- waiting with a deadline


async def test_a_turn_goes_on_behind_an_ask_that_waited_long_enough(autojump_clock: trio.testing.MockClock) -> None:
    release = trio.Event()
    async with opened(make(scripted(Reply.wait(release, Reply.text("late"))))) as (_, ref):
        with pytest.raises(AskTimeout, match="not over in 5 s"):
            await ref.ask("hi", timeout=5, message_id="m")
        assert ref.status == "running"
        with pytest.raises(AskTimeout, match="ask again with that id"):
            await ref.outcome("m", timeout=5)
        release.set()
        assert (await ref.outcome("m")).text == "late"


async def test_with_on_cancel_the_turn_ends_with_the_wait(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.hang("half"), "second")), store) as (_, ref):
        with pytest.raises(AskTimeout):
            await ref.ask("hi", timeout=5, on_cancel="cancel")
        await ref.wait_idle()
        with trio.move_on_after(5):
            await ref.ask("you", on_cancel="cancel")
        await ref.wait_idle()
    ends = await events(store, e.TurnEnd)
    assert [end.reason.kind for end in ends] == ["aborted", "completed"]


async def test_a_cancelled_caller_cancels_the_turn_if_it_said_so() -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.hang("half"))), store) as (_, ref), trio.open_nursery() as nursery:

        async def ask() -> None:
            await ref.ask("hi", on_cancel="cancel")

        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert [end.reason for end in await events(store, e.TurnEnd)] == [e.Aborted(e.Cause("user"))]


async def test_the_outcome_of_a_turn_is_waited_for_by_its_number(autojump_clock: trio.testing.MockClock) -> None:
    release = trio.Event()
    async with opened(make(scripted("first", Reply.wait(release, Reply.text("second"))))) as (_, ref):
        await ref.ask("hi")
        assert (await ref.outcome(turn=1)).text == "first"
        await ref.followup("you")
        with pytest.raises(AskTimeout, match="turn 2 of 'a' was not over in 5 s") as caught:
            await ref.outcome(turn=2, timeout=5)
        assert caught.value.turn == 2
        release.set()
        assert (await ref.outcome(turn=2)).text == "second"


async def test_a_log_of_many_pages_is_followed_record_by_record() -> None:
    long = Reply.text("a" * 1000, parts=1000)
    async with opened(make(scripted(long))) as (_, ref):
        await ref.ask("hi")
        seen = [record.seq async for record in ref.read()]
        followed: list[int] = []
        async for record in ref.follow():
            followed.append(record.seq)
            if record.seq == seen[-1]:
                break
        assert followed == seen == list(range(len(seen)))
        assert len(seen) > 1000


# -- from inside a turn


class Family:
    """Two agents; the tool of the first does something with the handle of the second."""

    def __init__(self, act: Any) -> None:
        self.system: System | None = None

        @tool
        async def doing() -> str:
            """Do it."""
            assert self.system is not None
            return str(await act(await self.system.get("b")))

        model = scripted(Reply.tools(("c1", "doing", "")), "done")
        self.agent = Agent("first", model=model, tools=[doing], plugins=())
        self.other = Agent("second", model=scripted("I am b", "again"), plugins=())

    async def play(self) -> str:
        """What the call gave."""
        store = MemoryStore()
        async with System.open(store, agents=[self.agent, self.other]) as self.system:
            await self.system.spawn(self.other, id="b")
            await (await self.system.spawn(self.agent, id="a")).ask("go")
        await check(store)
        return "".join(block.text for result in await events(store, e.ToolResult) for block in result.content)  # type: ignore[union-attr]


async def test_a_handle_asks_another_agent_from_inside_a_turn() -> None:
    async def act(ref: AgentRef[Any]) -> str:
        return (await ref.ask("who?")).text

    assert await Family(act).play() == "I am b"


async def test_a_turn_that_waits_says_for_whom() -> None:
    async def act(ref: AgentRef[Any]) -> list[str]:
        seen: list[str] = []
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ref.outcome, (await ref.inject("later")).message_id)
            await wait_all_tasks_blocked()
            waits = (await family.system.get("a")).info if family.system else None
            assert waits is not None
            seen = [f"{wait.kind} {wait.what}" for wait in (await waits()).waits]
            nursery.cancel_scope.cancel()
        return seen

    family = Family(act)
    assert "ask b" in await family.play()


async def test_a_turn_cannot_wait_for_itself() -> None:
    async def act(ref: AgentRef[Any]) -> str:
        assert family.system is not None
        with pytest.raises(AskCycle, match="a → a"):
            await (await family.system.get("a")).wait_idle()
        return "refused"

    family = Family(act)
    assert await family.play() == "refused"


# -- what is refused


REFUSED: list[tuple[Callable[[Any], Awaitable[Any]], str]] = [
    (lambda ref: ref.ask("hi", on_cancel="stop"), "on_cancel='stop': write 'detach'"),
    (lambda ref: ref.cancel("parent"), "the cause is 'user' or 'hook'"),
    (lambda ref: ref.cancel("hook", text=7), "the text a text or None"),
    (lambda ref: ref.outcome(), "needs a message's id, or turn="),
    (lambda ref: ref.ask("hi", message_id=7), "message_id=7 is no text"),
    (lambda ref: ref.fork(at=0, turn=1), "not both"),
    (lambda ref: ref.fork(turn=9), "has no turn 9"),
    (lambda ref: ref.fork(at=99), "has no record 99"),
    (lambda ref: ref.fork(id="a"), "the agent 'a' exists already"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED)
async def test_a_call_that_makes_no_sense_says_what_to_write(call: Any, text: str) -> None:
    async with opened(make(scripted())) as (_, ref):
        with pytest.raises(UsageError, match=text):
            await call(ref)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("channels", "channels=['x'] has no names; give a mapping: channels={'irc': ...}"),
        ("models", "models=['x'] has no names; give a mapping: models={'openai': ...}"),
        ("grace", "grace=['x'] is no number of seconds; for no end write grace=math.inf"),
        ("idle_after", "idle_after=['x'] is no number of seconds; for no end write idle_after=math.inf"),
    ],
)
async def test_an_option_of_open_that_cannot_be_says_what_to_write(option: str, text: str) -> None:
    options: dict[str, Any] = {option: ["x"]}
    with pytest.raises(UsageError) as caught:
        async with System.open(":memory:", **options):
            raise AssertionError("it opened")
    assert str(caught.value) == text


async def test_what_is_no_definition_and_no_labels_is_refused() -> None:
    nothing: Any = "planner"
    with pytest.raises(UsageError, match="'planner' is no Agent; give definitions"):
        async with System.open(":memory:", agents=[nothing]):
            raise AssertionError
    agent = make(scripted())
    async with opened(agent) as (system, _):
        labels: Any = ["user"]
        with pytest.raises(UsageError, match="is no mapping; write labels="):
            await system.spawn(agent, id="b", labels=labels)
        numbers: Any = {"n": 3}
        with pytest.raises(UsageError, match=r"the label 'n': 3 is no text; write labels={'n': '3'}"):
            await system.spawn(agent, id="b", labels=numbers)
        with pytest.raises(NameMismatch, match="two definitions are named 'demo'"):
            await system.spawn(make(scripted()), id="b")


async def test_handles_are_equal_when_they_name_one_agent_of_one_system() -> None:
    async with opened(make(scripted())) as (system, ref), opened(make(scripted())) as (_, stranger):
        assert ref == await system.get("a")
        assert len({ref, await system.get("a")}) == 1
        assert ref != stranger
        assert repr(ref) == "<AgentRef 'a' idle>"
        assert repr(system) == "<System on ':memory:', 1 agents in memory, open>"
        assert system.report.ok


@pytest.mark.parametrize("where", ["system", "context"])
async def test_what_is_rendered_and_is_no_text_is_named(where: str) -> None:
    def seven(ctx: Any) -> Any:
        return 7

    rendered: dict[str, Any] = {"system": seven} if where == "system" else {"context": [seven]}
    async with opened(make(scripted()).replace(**rendered)) as (_, ref):
        assert "gave a int; return text" in str((await ref.ask("hi")).reason)


# -- the end of a family


async def test_deleting_an_agent_deletes_its_children_and_theirs() -> None:
    store = MemoryStore()
    leaf = Agent("leaf", model=scripted("leaf"), plugins=())
    middle = Agent(
        "middle", model=scripted(Reply.tools(("c1", "leaf", {"task": "t"})), "middle"), tools=[delegate(leaf)], plugins=()
    )
    top = make(scripted(Reply.tools(("c1", "middle", {"task": "t"})), "top"), tools=[delegate(middle)])
    async with System.open(store, agents=[top]) as system:
        ref = await system.spawn(top, id="a")
        assert (await ref.ask("go")).text == "top"
        assert len([agent.id async for agent in system.agents()]) == 3
        await system.delete("a")
        assert [agent.id async for agent in system.agents()] == []
        with pytest.raises(AgentDeleted):
            await system.get("a")


async def test_children_can_be_left_alone() -> None:
    store = MemoryStore()
    leaf = Agent("leaf", model=scripted("leaf"), plugins=())
    top = make(scripted(Reply.tools(("c1", "leaf", {"task": "t"})), "top"), tools=[delegate(leaf)])
    async with System.open(store, agents=[top]) as system:
        await (await system.spawn(top, id="a")).ask("go")
        await system.delete("a", tree=False)
        assert len([agent.id async for agent in system.agents()]) == 1
    await check(store)


# -- from a tool


async def test_a_tool_has_the_wall_clock_notes_and_a_route_to_answer() -> None:
    store = MemoryStore()

    @tool
    async def report(ctx: ToolContext[Any]) -> str:
        """Report."""
        ctx.note("seen", {"at": ctx.now.year})
        ctx.progress("half way")
        with pytest.raises(UsageError, match="what JSON cannot carry"):
            ctx.note("bad", object())
        with pytest.raises(UsageError, match="7 is no agent; give an id"):
            await ctx.send(7, "hi")  # pyright: ignore[reportArgumentType]
        with pytest.raises(UsageError, match="has no route to reply to"):
            await ctx.reply("hi")
        return "reported"

    async with opened(make(scripted(Reply.tools(("c1", "report", "")), "done"), tools=[report]), store, now=lambda: 0.0) as (
        _,
        ref,
    ):
        assert (await ref.ask("go")).ok
    notes = [(note.kind, note.data) for note in await events(store, e.Note)]
    assert notes[0][0] == "seen"
    assert notes[1] == ("progress", {"call_id": "c1", "text": "half way"})
    assert "res(c1)" in await order(store)
