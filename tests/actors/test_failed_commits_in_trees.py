"""One log of a tree fails, the others do not: it is read again from disk, and the tree goes on as if nothing had been."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from helpers import check, events, make, order, scripted
from trio.testing import MockClock

from callboard.actors import System, ToolContext, delegate, tool
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import StoreFull
from callboard.storage.messages import Request
from callboard.storage.testing import FaultyStore

CHILD = "a/1.1.w"


def work_then_say(request: Request) -> Reply:
    """A child that works once."""
    return Reply.text("done") if request.messages[-1].role == "tool" else Reply.tools(("c", "work", {}))


def family(body: Any, replay: Any) -> Any:
    """A parent that delegates, and a child whose work is `body`."""

    @tool(replay=replay)
    async def work(ctx: ToolContext[Any]) -> str:
        """Work."""
        await body(ctx)
        return "worked"

    child = make(ScriptedModel(work_then_say), tools=[work]).replace(name="worker")
    replies = scripted(Reply.tools(("w", "worker", {"task": "go"})), "all is done", "and heard")
    return make(replies, tools=[delegate(child)])


@pytest.mark.parametrize("times", [1, 4])
async def test_a_child_whose_log_fails_answers_its_parent_when_it_goes_on(autojump_clock: MockClock, times: int) -> None:
    store = FaultyStore(MemoryStore())
    runs: list[str] = []

    async def fail(ctx: ToolContext[Any]) -> None:
        runs.append(ctx.effect_key)
        if len(runs) == 1:
            store.fail_next(StoreFull("the disk is full; free some space"), times=times)

    parent = family(fail, "safe")
    async with System.open(store, agents=[parent]) as system:
        ref = await system.spawn(parent, id="a")
        outcome = await ref.ask("begin")
        assert (outcome.reason.kind, outcome.text) == ("completed", "all is done")
    await check(store)
    (result,) = await events(store, e.ToolResult)
    assert result.error is None
    assert (await order(store)).count("call(w) born died{completed} res(w)") == 1
    assert "TR1" in await order(store, CHILD) and len(set(runs)) == 1 and len(runs) > 1


async def test_a_parent_whose_log_fails_does_not_cancel_its_child(autojump_clock: MockClock) -> None:
    store = FaultyStore(MemoryStore())
    runs: list[str] = []

    async def fail(ctx: ToolContext[Any]) -> None:
        runs.append(ctx.effect_key)
        store.fail_next(StoreFull("the disk is full; free some space"))
        with pytest.raises(StoreFull):
            await ref.steer("hurry")

    parent = family(fail, "never")  # so that the call is on disk, and only the parent's log fails
    async with System.open(store, agents=[parent]) as system:
        ref = await system.spawn(parent, id="a")
        with pytest.raises(StoreFull):
            await ref.ask("begin", message_id="m")
        outcome = await ref.outcome("m")
        assert outcome.reason.kind == "completed"
    await check(store)
    (result,) = await events(store, e.ToolResult)
    assert result.error is None and len(runs) == 1
    assert "TC" not in await order(store, CHILD) and "TR1" in await order(store)


async def test_a_child_is_not_made_when_its_parents_log_failed_meanwhile_and_the_next_try_makes_it(
    autojump_clock: MockClock,
) -> None:
    """Its first record alone would be a child that nobody has, under the id that the call needs."""

    class Meanwhile(FaultyStore):
        refs: tuple[Any, ...] = ()

        async def own(self, agent: str) -> int:
            owned: list[int] = []
            with trio.CancelScope(shield=True):  # the body that makes the child is cancelled, and hears of it later
                if agent == CHILD and self.refs:
                    (ref,), self.refs = self.refs, ()
                    self.fail_next(StoreFull("the disk is full; free some space"))
                    with pytest.raises(StoreFull):
                        await ref.inject("meanwhile")
                owned.append(await super().own(agent))
            return owned[0]

    async def nothing(ctx: ToolContext[Any]) -> None:
        pass

    def leads(request: Request) -> Reply:
        return Reply.text("all is done") if request.messages[-1].results else Reply.tools(("w", "worker", {"task": "go"}))

    store, parent = Meanwhile(MemoryStore()), family(nothing, "safe").replace(model=ScriptedModel(leads))
    async with System.open(store, agents=[parent]) as system:
        ref = await system.spawn(parent, id="a")
        store.refs = (ref,)
        await ref.followup("begin", message_id="m")
        await trio.sleep(60)
        assert (await ref.ask("begin", message_id="m")).text == "all is done"
    await check(store)
    (result,) = await events(store, e.ToolResult)
    assert result.error is None
    assert len(await events(store, e.ChildSpawned)) == len(await events(store, e.LogCreated, CHILD)) == 1


async def test_c214_mail_to_an_agent_whose_log_failed_meanwhile_leaves_nothing_in_the_senders(autojump_clock: MockClock) -> None:
    class Meanwhile(FaultyStore):
        refs: tuple[Any, ...] = ()

        async def find(self, agent: str, message_id: str) -> int | None:
            if agent == "b" and self.refs and message_id != "meanwhile":
                (ref,), self.refs = self.refs, ()
                self.fail_next(StoreFull("the disk is full; free some space"))
                with pytest.raises(StoreFull):
                    await ref.inject("meanwhile", message_id="meanwhile")
            return await super().find(agent, message_id)

    @tool
    async def write(ctx: ToolContext[Any]) -> str:
        """Write to the other one."""
        await ctx.send("b", "hello", message_id="letter")  # which is looked up
        return "written"

    store = Meanwhile(MemoryStore())
    agent = make(scripted(Reply.tools(("c", "write", {})), "so be it", "hm"), tools=[write])
    async with System.open(store, agents=[agent]) as system:
        ref, other = await system.spawn(agent, id="a"), await system.spawn(agent, id="b")
        store.refs = (other,)
        assert (await ref.ask("begin")).text == "so be it"
    (result,) = await events(store, e.ToolResult)
    assert result.error == "TOOL_ERROR"
    assert not await events(store, e.MailSent) and not await events(store, e.InboxPut, "b")
    await check(store)


async def test_a_failed_end_of_a_child_that_is_put_again_does_not_keep_its_parent_in_memory(autojump_clock: MockClock) -> None:
    store = FaultyStore(MemoryStore())
    tries: list[Request] = []

    def fails_at_first(request: Request) -> Reply:
        tries.append(request)
        if len(tries) == 1:
            store.fail_next(StoreFull("the disk is full; free some space"))  # the next commit is the end of this turn
        return Reply.text("done") if len(tries) == 3 else Reply.fail("SERVER_ERROR", "not now")

    child = make(ScriptedModel(fails_at_first), name="worker")
    replies = scripted(Reply.tools(("w", "worker", {"task": "go"})), "all is done")
    parent = make(replies, tools=[delegate(child, restarts=(1, 60))])
    async with System.open(store, agents=[parent], idle_after=10) as system:
        ref = await system.spawn(parent, id="a")
        assert (await ref.ask("begin")).text == "all is done"
        await trio.sleep(100)
        assert system.statistics()["agents"] == 0
    assert len(tries) == 3
    await check(store)
