"""Service and client together: the surface of a handle over a connection, streams that resume, connections that break."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked
from wired import make, scripted, serving, wired

from callboard.actors import Plugin, Replace
from callboard.actors.testing.clocks import trio_wall
from callboard.actors.testing.scripted import Reply
from callboard.actors.values import Delta
from callboard.net import handlers
from callboard.net.client import connected
from callboard.storage import events as e
from callboard.storage.errors import AgentNotFound, AskTimeout, Disconnected, InputDropped, UsageError
from callboard.storage.messages import Message, TextBlock


async def test_an_ask_gives_the_outcome(autojump_clock: object) -> None:
    async with wired(make(scripted("hello"))) as w:
        ref = await w.client.spawn("demo", id="a", labels={"team": "x"})
        outcome = await ref.ask("hi", message_id="m1")
        assert (outcome.result(), outcome.agent, outcome.turn, outcome.message_id) == ("hello", "a", 1, "m1")
        assert await ref.ask("hi", message_id="m1") == outcome
        assert [agent.labels async for agent in w.client.agents()] == [{"team": "x"}]


async def test_listings_may_be_left_at_any_time_and_go_over_pages(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "MOST", 2)
    async with wired(make(scripted())) as w:
        ids = [(await w.client.spawn("demo", id=f"a{number}")).id for number in range(5)]
        for listing in (w.client.agents(), w.client.agents("a")):
            async for agent in listing:
                assert agent.id == "a0"
                break  # without aclosing: a generator would be found by the collector, with a warning
            del listing
            gc.collect()
        listing = w.client.agents()
        assert [agent.id async for agent in listing] == ids
        assert [agent.id async for agent in listing] == []
        assert [agent.id async for agent in w.client.agents(after="a2")] == ids[3:]
        assert [question async for question in w.client.approvals()] == []


async def test_every_method_of_a_handle(autojump_clock: object) -> None:
    async with wired(make(scripted(Reply.hang("thinking"), "two", "three"))) as w:
        ref = await w.client.spawn("demo", id="a")
        first = await ref.followup([TextBlock("one")])
        await wait_all_tasks_blocked(0.1)
        second = await ref.followup("two", message_id="m2", route={"channel": "c", "chat": 7}, sender="ann")
        assert [item.id for item in await ref.pending()] == ["m2"]
        replaced = await ref.replace("m2", "two!", new_id="m3")
        assert replaced and replaced.message_id == "m3" and await ref.withdraw("m2") is False
        steered = await ref.steer("go on")
        assert await ref.withdraw(steered.message_id) is True
        with pytest.raises(InputDropped) as caught:
            await ref.outcome(steered.message_id)
        assert (caught.value.why, caught.value.agent) == ("withdrawn", "a")
        info = await ref.info()
        assert (info.status, ref.status, info.turn, info.pending) == ("running", "running", 1, 1)
        assert [wait.kind for wait in info.waits] == ["model"]
        await ref.cancel(keep_inbox=True)
        assert (await ref.outcome(first.message_id)).reason.kind == "aborted"
        await ref.inject("by the way")
        assert (await ref.ask("three")).text in ("two", "three")
        await ref.wait_idle()
        assert second.seq > first.seq
        assert (await ref.messages())[-1].text == "three"
        assert (await ref.outcome(turn=1)).turn == 1
        assert [r async for r in ref.read()] == [r async for r in (await w.system.get("a")).read()]
        assert [r.type async for r in ref.read(types=["turn/end"])] == ["turn/end"] * 3
        fork = await ref.fork(turn=2, id="b")
        assert (fork.id, fork.name) == ("b", "demo")
        await w.client.delete("b")
        with pytest.raises(AgentNotFound) as missing:
            await w.client.open("b2")
        assert missing.value.agent == "b2"
        await ref.dispose()
        assert (await w.client.usage()).total == (await w.system.usage()).total


class Forgets(Plugin):
    """Replaces what the model sees by a line."""

    async def compact(self, ctx: Any, position: Any, next: Any, /) -> Any:
        return Replace(Message("s", "user", (TextBlock("all is well"),)), cause="idle") if position.why == "idle" else None


async def test_an_idle_agent_is_compacted(autojump_clock: object) -> None:
    async with wired(make(scripted("one"), plugins=[Forgets()])) as w:
        ref = await w.client.spawn("demo", id="a")
        await ref.ask("hi")
        assert await ref.compact() is True
        assert [message.text for message in await ref.messages()] == ["all is well"]


async def test_reminders_and_forks_that_run_a_turn_again(autojump_clock: object) -> None:
    async with wired(make(scripted("one", "again", "tea!")), now=trio_wall("2026-12-01T08:00Z")) as w:
        ref = await w.client.spawn("demo", id="a")
        await ref.ask("first")
        fork = await ref.fork(turn=1, id="b", rerun=True)
        assert (await fork.outcome(turn=1)).text == "again"
        timer = await ref.remind("tea", after_s=3600)
        assert await ref.timers() == (timer,)
        assert (await ref.outcome(timer.id)).text == "tea!"
        assert await ref.cancel_timer(timer.id) is False and await ref.timers() == ()


async def test_errors_arrive_as_themselves(autojump_clock: object) -> None:
    async with wired(make(scripted(Reply.hang("..."), "late"))) as w:
        ref = await w.client.spawn("demo", id="a")
        with pytest.raises(UsageError, match="no message 'never'"):
            await ref.outcome("never")
        with pytest.raises(AskTimeout, match="not over in 5 s") as caught:
            await ref.ask("hi", timeout=5, on_cancel="cancel", message_id="m")
        assert caught.value.agent == "a"
        assert (await ref.outcome("m")).reason.kind == "aborted"
        with pytest.raises(UsageError, match="did you mean 'turn/end'"):
            await ref.follow(types=["turn/ends"]).__anext__()


async def test_c219_follow_gives_every_record_once_and_stays_open(autojump_clock: object) -> None:
    async with wired(make(scripted(Reply.text("abcdef", parts=6), "two"))) as w:
        ref = await w.client.spawn("demo", id="a")
        follow = ref.follow()
        seen = [await follow.__anext__()]
        await ref.ask("one")
        await ref.ask("two")
        with trio.move_on_after(5):
            async for record in follow:
                seen.append(record)
        assert seen == [r async for r in (await w.system.get("a")).read()]
        assert follow.caught_up and follow.seq == seen[-1].seq
        now = ref.follow(after=None)
        with trio.move_on_after(5):
            await now.__anext__()
        await ref.followup("three")
        assert isinstance((await now.__anext__()).event, e.InboxPut)


async def test_c221_behind_the_head_waits_and_a_deleted_agent_is_an_error(autojump_clock: object) -> None:
    async with wired(make(scripted("one"))) as w:
        ref = await w.client.spawn("demo", id="a")
        follow = ref.follow(after=100)
        with trio.move_on_after(5) as scope:
            await follow.__anext__()
        assert scope.cancelled_caught
        await w.client.delete("a")
        with pytest.raises(UsageError, match="deleted"):
            await follow.__anext__()


async def test_c220_two_follows_of_one_agent_on_one_connection_are_numbered(autojump_clock: object) -> None:
    async with wired(make(scripted("one"))) as w:
        ref = await w.client.spawn("demo", id="a")
        await ref.ask("hi")
        one, two = ref.follow(), ref.follow(types=["turn/end"])
        assert (await one.__anext__()).seq == 0
        assert (await two.__anext__()).type == "turn/end"
        assert (await one.__anext__()).seq == 1


async def test_deltas_show_a_turn(autojump_clock: object) -> None:
    async with wired(make(scripted(Reply.text("abc", parts=3)))) as w:
        ref = await w.client.spawn("demo", id="a")
        receipt = await ref.followup("hi")
        shown: list[Delta] = []
        async for delta in ref.deltas(after=receipt.seq):
            shown.append(delta)
            if delta.kind == "end":
                break
        assert "".join(d.text for d in shown) == "abc" and shown[-1].reason is not None


async def test_a_follow_goes_on_over_broken_connections_without_a_gap(autojump_clock: object) -> None:
    async with wired(make(scripted(*(str(n) for n in range(8))))) as w:
        ref = await w.client.spawn("demo", id="a")
        seen: list[Any] = []

        async def follow() -> None:
            async for record in ref.follow():
                seen.append(record)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            for n in range(8):
                if n % 2:
                    await w.wires.cut()
                assert (await ref.ask(f"q{n}", message_id=f"m{n}")).text == str(n)
            await trio.sleep(5)
            nursery.cancel_scope.cancel()
        assert seen == [r async for r in (await w.system.get("a")).read()]
        assert w.wires.made == 5


async def test_a_call_whose_connection_breaks_is_sent_again_and_happens_once(autojump_clock: object) -> None:
    async with wired(make(scripted(Reply.hang("..."), "never"))) as w:
        ref = await w.client.spawn("demo", id="a")

        async def cut() -> None:
            await wait_all_tasks_blocked(0.1)
            await w.wires.cut()
            await trio.sleep(5)
            await (await w.system.get("a")).cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            outcome = await ref.ask("hi", message_id="m")
        assert outcome.reason.kind == "aborted"
        puts = [r async for r in ref.read(types=["inbox/put"])]
        assert len(puts) == 1


async def test_c225_a_lost_connection_detaches_or_cancels_as_asked(autojump_clock: object) -> None:
    async with wired(make(scripted(Reply.hang("a"), Reply.hang("b")))) as w:
        one, two = await w.client.spawn("demo", id="a"), await w.client.spawn("demo", id="b")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.ask, "hi")
            cancelled: list[Any] = []

            async def ask() -> None:
                cancelled.append(await two.ask("hi", on_cancel="cancel"))

            nursery.start_soon(ask)
            await wait_all_tasks_blocked(0.1)
            await w.wires.cut()
            await trio.sleep(5)
            assert (await one.info()).status == "running"
            assert cancelled[0].reason.kind == "aborted"
            assert [r.event.cause.kind async for r in two.read(types=["turn/cancel"])] == ["user"]  # type: ignore[union-attr]
            nursery.cancel_scope.cancel()
        await one.cancel()


async def test_a_caller_that_is_cancelled_lets_go_or_cancels(autojump_clock: object) -> None:
    async with wired(make(scripted(Reply.hang("a"), Reply.hang("b")))) as w:
        ref = await w.client.spawn("demo", id="a")
        with trio.move_on_after(3):
            await ref.ask("hi", message_id="m")
        assert (await ref.info()).status == "running"
        with trio.move_on_after(3):
            await ref.ask("hi", message_id="m", on_cancel="cancel")
        assert (await ref.outcome("m")).reason.kind == "aborted"


async def test_what_may_not_be_repeated_says_that_the_connection_broke(autojump_clock: object) -> None:
    async with wired(make(scripted(Reply.hang("a")))) as w:
        ref = await w.client.spawn("demo", id="a")
        await ref.followup("hi")

        async def cut() -> None:
            await w.wires.cut()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(cut)
            with pytest.raises(Disconnected, match="look whether it was done"):
                await ref.cancel()


async def test_without_a_service_calls_wait_for_it_only_so_long(autojump_clock: object, monkeypatch: pytest.MonkeyPatch) -> None:
    async with wired(make(scripted("a")), patience=30) as w:
        ref = await w.client.spawn("demo", id="a")
        monkeypatch.setattr(w.server, "handle", trio.aclose_forcefully)
        await w.wires.cut()
        begun = trio.current_time()
        with pytest.raises(Disconnected, match="not been there for 30 s"):
            await ref.info()
        assert trio.current_time() - begun == pytest.approx(30, abs=1)
        monkeypatch.undo()
        assert (await ref.info()).id == "a"


async def test_an_error_in_the_block_of_a_client_leaves_it_as_itself(autojump_clock: object) -> None:
    async with serving(make(scripted())) as (_, _, wires):
        with pytest.raises(ZeroDivisionError):
            async with connected(wires.dial):
                raise ZeroDivisionError
