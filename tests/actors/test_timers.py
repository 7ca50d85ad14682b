"""Reminders by a wall clock that keeps step with trio's, jumps, or goes on while nobody runs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pytest
import trio
from helpers import check, events, make, opened, order, say, scripted
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors import Agent, Answer, Plugin, Reject, System, ToolContext, tool
from callboard.actors.content import to_message
from callboard.actors.limits import Limits
from callboard.actors.testing import Reply, ScriptedModel, every_crash
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import InputDropped, InputRefused, UsageError
from callboard.storage.messages import Request
from callboard.storage.store import Store

TURN = "claim({0}) SS{1}.1 U({0}) Q1 C* A SE TE{1}{{completed}}"
FIRST = "TS1 claim({0}) SS1.1 U({0}) H{{initial}} X Q1 C* A SE TE1{{completed}}"
EIGHT = datetime(2026, 12, 1, 8, tzinfo=UTC)


class Wall:
    """A wall clock that somebody may set."""

    def __init__(self) -> None:
        self._begin, self.ahead = trio.current_time(), 0.0

    def __call__(self) -> float:
        return EIGHT.timestamp() + self.ahead + trio.current_time() - self._begin


def echo(request: Request) -> Reply:
    """Says what it is told."""
    return Reply.text(request.messages[-1].text)


ECHO = Agent("demo", model=ScriptedModel(echo), plugins=())


async def test_c188_a_reminder_is_a_turn_of_its_own(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with opened(ECHO, store, now=Wall()) as (_, ref):
        begin = trio.current_time()
        timer = await ref.remind("tea", after_s=3600, route={"channel": "irc", "chat": 7})
        assert timer.due == EIGHT + timedelta(hours=1) and timer.route == {"channel": "irc", "chat": "7"}
        assert await ref.timers() == (timer,)
        outcome = await ref.outcome(timer.id)
        assert (outcome.text, outcome.turn) == ("tea", 1) and 3600 <= trio.current_time() - begin < 3601
        assert await ref.timers() == ()
    (put,) = await events(store, e.InboxPut)
    assert put.route == e.Route(channel="irc", chat="7")
    assert put.context == {"timer": timer.id, "due": int(timer.due.timestamp() * 1000), "late": False}
    assert await order(store) == f"timer fired put[t](tea) {FIRST.format('tea')} out"


async def test_c188_a_timer_due_while_a_turn_runs_waits_for_its_own(autojump_clock: MockClock) -> None:
    @tool(replay="safe")
    async def wait() -> str:
        """Two hours of work."""
        await trio.sleep(7200)
        return "done"

    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c", "wait", {})), "worked", "drunk"), tools=[wait], limits=Limits(tool_timeout=9000))
    async with opened(agent, store, now=Wall()) as (_, ref):
        await ref.remind("tea", after_s=3600)
        await say(ref, "work")
    assert await order(store) == (
        "timer put[t](work) TS1 claim(work) SS1.1 U(work) H{initial} X Q1 C* A call(c) fired put[t](tea) res(c) SE "
        f"SS1.2 Q1 C* A SE TE1{{completed}} TS2 {TURN.format('tea', 2)}"
    )


async def test_c178_a_timer_due_while_down_fires_once_at_start_and_is_late(autojump_clock: MockClock) -> None:
    store, wall = MemoryStore(), Wall()
    async with opened(ECHO, store, now=wall) as (_, ref):
        await ref.remind("tea", at=EIGHT + timedelta(minutes=10))
        await ref.remind("stretch", after_s=60, every_s=60, id="s")
    wall.ahead = 7 * 86_400 + 30
    async with System.open(store, agents=[ECHO], now=wall) as system:
        assert system.report.timed == ["a"]
        ref = await system.get("a")
        assert (await ref.outcome(turn=2)).text == "tea"
        assert [(timer.id, timer.due - EIGHT) for timer in await ref.timers()] == [("s", timedelta(days=7, minutes=1))]
        await trio.sleep(60)
        assert (await ref.outcome(turn=3)).text == "stretch"
    await check(store)
    assert await order(store) == (
        f"timer timer fired put[t](stretch) fired put[t](tea) {FIRST.format('stretch')} "
        f"TS2 {TURN.format('tea', 2)} fired put[t](stretch) TS3 {TURN.format('stretch', 3)}"
    )
    assert [event.late for event in await events(store, e.TimerFired)] == [True, True, False]
    assert [put.message.id for put in await events(store, e.InboxPut)][::2] == ["s", "s#2"]


async def test_c178_what_was_due_while_nobody_ran_is_late_however_little(autojump_clock: MockClock) -> None:
    store, wall = MemoryStore(), Wall()
    async with opened(ECHO, store, now=wall) as (_, ref):
        await ref.remind("tea", after_s=5)
    await trio.sleep(6)
    async with System.open(store, agents=[ECHO], now=wall) as system:
        await (await system.get("a")).outcome(turn=1)
    assert [event.late for event in await events(store, e.TimerFired)] == [True]


async def test_c188_a_repeating_timer_goes_on_while_a_turn_runs(autojump_clock: MockClock) -> None:
    @tool(replay="safe")
    async def wait() -> str:
        """Work for a while."""
        await trio.sleep(200)
        return "done"

    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c", "wait", {})), *["ok"] * 5), tools=[wait])
    async with opened(agent, store, now=Wall()) as (_, ref):
        await ref.remind("stretch", every_s=60, id="s")
        waiting = await ref.followup("work")
        await trio.sleep(190)
        first = (await ref.pending())[0].id
        async with trio.open_nursery() as nursery:
            outcomes: list[str] = []

            async def wait_for_the_first() -> None:
                outcomes.append((await ref.outcome(first)).text)

            nursery.start_soon(wait_for_the_first)
            await wait_all_tasks_blocked()
            assert await ref.cancel_timer("s"), "what it has put stays"
        assert outcomes == ["ok"] and (await ref.outcome("s")).turn == 2
        assert (await ref.outcome(waiting.message_id)).turn == 1
        await ref.wait_idle()
    assert await order(store) == (
        "timer put[t](work) TS1 claim(work) SS1.1 U(work) H{initial} X Q1 C* A call(c) "
        "fired put[t](stretch) fired put[t](stretch) fired put[t](stretch) untimed res(c) SE SS1.2 Q1 C* A SE TE1{completed} "
        + " ".join(f"TS{n} {TURN.format('stretch', n)}" for n in (2, 3, 4))
    )


async def test_c178_a_wall_clock_set_forward_fires_within_half_a_minute(autojump_clock: MockClock) -> None:
    store, wall = MemoryStore(), Wall()
    async with opened(ECHO, store, now=wall) as (_, ref):
        await ref.remind("tea", after_s=86_400)
        await wait_all_tasks_blocked()
        wall.ahead += 90_000
        with trio.fail_after(31):
            await ref.outcome(turn=1)
    assert [event.late for event in await events(store, e.TimerFired)] == [True]


@pytest.mark.parametrize("restarted", [False, True])
async def test_c178_a_wall_clock_set_back_does_not_silence_a_repeating_timer(autojump_clock: MockClock, restarted: bool) -> None:
    store, wall = MemoryStore(), Wall()
    async with opened(ECHO, store, now=wall) as (_, ref):
        await ref.remind("stretch", after_s=100, every_s=60, id="s")
        wall.ahead = 365 * 86_400
        assert (await ref.outcome(turn=1)).text == "stretch"
        await ref.wait_idle()
        wall.ahead = 0
        if not restarted:
            with trio.fail_after(91):
                await ref.outcome(turn=2)
    async with System.open(store, agents=[ECHO], now=wall) as system:
        ref = await system.get("a")
        with trio.fail_after(61):
            await ref.outcome(turn=2 if restarted else 3)
        (timer,) = await ref.timers()
        assert timer.due.timestamp() - wall() <= 60 and (timer.due - EIGHT).total_seconds() % 60 == 40
    await check(store)
    assert [put.message.id for put in await events(store, e.InboxPut)][:2] == ["s", "s#2"]


async def test_a_repeating_timer_comes_back_until_it_is_cancelled(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with opened(ECHO, store, now=Wall()) as (_, ref):
        timer = await ref.remind("stretch", every_s=60)
        await trio.sleep(185)
        assert await ref.cancel_timer(timer.id) and not await ref.cancel_timer(timer.id)
        await trio.sleep(600)
        assert (await ref.info()).turn == 3 and await ref.timers() == ()
    times = [put.context["due"] // 1000 - EIGHT.timestamp() for put in await events(store, e.InboxPut) if put.context]
    assert times == [60, 120, 180]


async def test_an_agent_that_is_not_open_is_activated(autojump_clock: MockClock) -> None:
    async with opened(ECHO, now=Wall(), idle_after=60) as (system, ref):
        await ref.remind("tea", after_s=3600)
        await trio.sleep(600)
        assert system.statistics()["agents"] == 0
        await trio.sleep(3010)
        assert (await ref.outcome(turn=1)).text == "tea"


async def test_c252_a_timer_is_not_refused_by_a_full_inbox(autojump_clock: MockClock) -> None:
    async with opened(ECHO.replace(limits=Limits(pending=0)), now=Wall()) as (_, ref):
        await ref.remind("tea", after_s=1)
        assert (await ref.outcome(turn=1)).text == "tea"


class Guards(Plugin):
    """Refuses whatever comes from outside, and answers every command."""

    async def accept(self, ctx: Any, message: Any, next: Any) -> Any:
        return Reject("no")

    async def command(self, ctx: Any, command: Any, next: Any) -> Any:
        return Answer("a command")


async def test_c266_a_reminder_is_not_asked_for_and_is_no_command(autojump_clock: MockClock) -> None:
    async with opened(ECHO.replace(plugins=[Guards()]), now=Wall()) as (_, ref):
        timer = await ref.remind("/stop", after_s=1)
        assert (await ref.outcome(timer.id)).text == "/stop"


async def test_the_schedule_forgets_what_was_set_anew(autojump_clock: MockClock) -> None:
    async with opened(ECHO, now=Wall()) as (system, ref):
        schedule = system._runtime.schedule  # pyright: ignore[reportPrivateUsage]
        for n in range(500):
            await ref.remind("tea", after_s=1000 - n, id=f"t{n}")
        for n in range(500):
            await ref.cancel_timer(f"t{n}")
        assert len(schedule) == 0 and len(schedule._heap) < 200  # pyright: ignore[reportPrivateUsage]
        await trio.sleep(2000)
        assert (await ref.info()).turn == 0


async def test_a_deleted_agent_is_reminded_of_nothing_and_a_fork_has_no_timers(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with opened(ECHO, store, now=Wall()) as (system, ref):
        await ref.remind("tea", after_s=60)
        fork = await ref.fork(id="b")
        assert await fork.timers() == ()
        await (await system.spawn(ECHO, id="c")).remind("tea", after_s=60)
        await system.delete("c")
        await system.delete("a")
        await system.spawn(ECHO, id="a")
        await trio.sleep(100)
        assert (await ref.info()).turn == 0 and (await fork.info()).turn == 0
        assert len(system._runtime.schedule) == 0  # pyright: ignore[reportPrivateUsage]
    assert await store.agents(flag="timer") == []


async def test_the_same_id_is_the_same_reminder_for_ever(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    async with opened(ECHO, store, now=Wall()) as (_, ref):
        timer = await ref.remind("tea", after_s=60, id="t")
        assert await ref.remind("coffee", after_s=5, id="t") == timer
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(partial(ref.remind, "cake", after_s=90, id="c"))
        await trio.sleep(70)
        assert await ref.remind("coffee", after_s=5, id="t") == timer, "it has fired"
        assert await ref.cancel_timer("c")
        assert (await ref.remind("cake", after_s=5, id="c")).message.text == "cake", "it was cancelled"
        await trio.sleep(100)
        assert (await ref.info()).turn == 1
        with pytest.raises(UsageError, match="id of a message"):
            await say(ref, "m")
            await ref.remind("tea", after_s=1, id="m")
        assert (await say(ref, "t")).message_id == "t" and (await ref.info()).turn == 2, "nor is a message with its id a new one"
    assert len(await events(store, e.TimerSet)) == 2


async def test_who_waits_for_a_reminder_that_is_taken_back_hears_of_it(autojump_clock: MockClock) -> None:
    async with opened(ECHO, now=Wall()) as (_, ref):
        timer = await ref.remind("tea", after_s=60)
        with pytest.RaisesGroup(InputDropped):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ref.outcome, timer.id)
                await wait_all_tasks_blocked()
                await ref.cancel_timer(timer.id)
        with pytest.raises(InputDropped):
            await ref.outcome(timer.id)
        again = await ref.remind("tea", every_s=60)
        await trio.sleep(70)
        await ref.cancel_timer(again.id)
        assert (await ref.outcome(again.id)).text == "tea", "it had fired before"


async def test_reminders_that_make_no_sense_are_refused() -> None:
    async with opened(ECHO) as (_, ref):
        naive = datetime(2026, 12, 1)
        cases: tuple[tuple[dict[str, Any], str], ...] = (
            ({}, "needs to know when"),
            ({"after_s": -1}, "needs to know when"),
            ({"after_s": float("nan")}, "needs to know when"),
            ({"after_s": 1, "at": EIGHT}, "not both"),
            ({"at": naive}, "no zone"),
            ({"every_s": 0}, "no period"),
        )
        for options, why in cases:
            with pytest.raises(UsageError, match=why):
                await ref.remind("tea", **options)
        with pytest.raises(InputRefused, match="empty"):
            await ref.remind(" ", after_s=1)
        zoned = datetime(2100, 1, 1, tzinfo=timezone(timedelta(hours=3)))
        assert (await ref.remind("tea", at=zoned)).due == zoned


@tool(replay="safe")
async def remind_me(ctx: ToolContext[Any], text: str) -> str:
    """Say it again later."""
    await ctx.agent.remind(f"{text} 1", after_s=60)
    await ctx.agent.remind(f"{text} 2", after_s=120, route=ctx.route)
    return "set"


def reminded(request: Request) -> Reply:
    """Sets reminders for what it is told, and repeats what it is reminded of."""
    last = request.messages[-1]
    if last.results or last.text != "tea":
        return Reply.text(f"ok {last.text}")
    return Reply.tools(("c", "remind_me", {"text": last.text}))


async def test_a_tool_that_runs_again_after_a_crash_reminds_once(autojump_clock: MockClock) -> None:
    agent = Agent("demo", model=ScriptedModel(reminded), tools=[remind_me], plugins=())
    wall = Wall()

    async def scenario(store: Store) -> str:
        async with System.open(store, agents=[agent], now=wall) as system:
            ref = await system.spawn(agent, id="a")
            await ref.ask("tea", message_id="m")
            await trio.sleep(300)
            return (await ref.outcome(turn=3)).text

    crashes = 0
    async for crash in every_crash(scenario):
        assert crash.result == "ok tea 2", crash
        assert [event.id[-2:] for event in await events(crash.store, e.TimerSet)] == ["#1", "#2"]
        assert len(await events(crash.store, e.InboxPut)) == 3
        crashes += 1
    assert crashes > 6


async def test_timers_of_an_agent_without_a_definition_wait_for_one(autojump_clock: MockClock) -> None:
    store, wall = MemoryStore(), Wall()
    async with opened(ECHO, store, now=wall) as (_, ref):
        await ref.remind("tea", after_s=5)
    async with System.open(store, now=wall) as system:
        await trio.sleep(100)
        system.define(ECHO)
        await trio.sleep(31)
        assert len(await events(store, e.TurnEnd)) == 1


async def test_input_that_waits_for_its_time_runs_then_also_after_a_restart(autojump_clock: MockClock) -> None:
    store, wall = MemoryStore(), Wall()

    async def put(system: System, id: str, after_s: float) -> None:
        actor = await system._runtime.registry.actor("a")  # pyright: ignore[reportPrivateUsage]
        message = e.InboxPut(message=to_message(id, id=id), lane="next-turn", not_before=int((wall() + after_s) * 1000))
        actor.log.append(message)
        actor.wake()
        await actor.log.commit()

    async with opened(ECHO, store, now=wall, idle_after=20) as (system, ref):
        await put(system, "late", 900)
        await put(system, "soon", 90)
        await trio.sleep(80)
        assert await events(store, e.TurnStart) == []
        await trio.sleep(20)
        assert len(await events(store, e.TurnEnd)) == 1
        assert (await ref.outcome("soon")).text == "soon"
    (head,) = await store.agents(flag="timer")
    assert not head.summary.attention
    async with System.open(store, agents=[ECHO], now=wall) as system:
        assert system.report.woken == system.report.timed == []
        assert (await (await system.get("a")).outcome("late")).turn == 2
    await check(store)
    assert await store.agents(flag="timer") == []


async def test_a_time_that_is_set_anew_again_and_again_costs_no_memory(autojump_clock: MockClock) -> None:
    wall = Wall()
    async with opened(ECHO, now=wall) as (system, ref):
        for number in range(200):
            await ref.remind("tea", after_s=1000 - number, id="always earlier")
            await ref.cancel_timer("always earlier")
            await ref.remind("coffee", after_s=2000 - number, id=f"c{number}")
            if number:
                await ref.cancel_timer(f"c{number - 1}")
        schedule: Any = system._runtime.schedule  # pyright: ignore[reportPrivateUsage]
        assert (len(schedule), len(schedule._heap) < 100) == (1, True)
        assert (await ref.outcome("c199")).text == "coffee"
