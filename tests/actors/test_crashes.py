"""The crash helper and the clock that users get for their own tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
import trio
from trio.testing import MockClock

from callboard.actors.agent import Agent
from callboard.actors.system import System
from callboard.actors.testing import Reply, ScriptedModel, every_crash, trio_wall
from callboard.actors.tools import tool
from callboard.storage.errors import UsageError
from callboard.storage.events import StepEnd
from callboard.storage.messages import Request
from callboard.storage.records import Record
from callboard.storage.store import Batch, Store

effects: list[str] = []


@tool(replay="never")
async def pay() -> str:
    """Pay once."""
    effects.append("pay")
    return "paid"


def cashier(request: Request) -> Reply:
    """Pays, then says what came of it."""
    results = request.messages[-1].results
    return Reply.text(f"it was {results['c1']}") if results else Reply.tools(("c1", "pay", {}))


AGENT = Agent("cashier", model="scripted:demo", tools=[pay], plugins=())


async def buy(store: Store) -> str:
    """Re-runnable: every id is chosen."""
    async with System.open(store, agents=[AGENT], models={"*": ScriptedModel(cashier)}) as system:
        ref = await system.spawn(AGENT, id="t")
        return (await ref.ask("a hat", message_id="m1")).text


async def test_the_run_goes_on_behind_a_commit_until_it_wants_to_write_again() -> None:
    seen: list[tuple[int, tuple[str, ...], int, str]] = []
    effects.clear()
    async for crash in every_crash(buy):
        seen.append((crash.commit, crash.lost[-2:], len(effects), crash.result[:13]))
        effects.clear()
    assert seen == [
        (1, ("t: request/context", "t: request/sent"), 1, "it was paid"),
        (2, ("t: assistant/message", "t: tool/call"), 1, "it was paid"),
        (3, ("t: step/start", "t: request/sent"), 1, "it was The pr"),  # the body ran, its result was lost: outcome unknown
        (4, ("t: step/end", "t: turn/end"), 1, "it was paid"),
        (5, (), 1, "it was paid"),
    ]


async def test_a_crash_says_where_to_look() -> None:
    crash = await anext(every_crash(buy))
    assert repr(crash).startswith("<Crash killed behind commit 1 (logs ended at t: 0 log/created; 8 records lost (t: inbox/put, ")
    assert crash.lost_records == len(crash.lost) == 8
    assert crash.left == ("t: 0 log/created",)
    head = await crash.store.head("t")
    assert head is not None and not head.summary.open


async def test_a_scenario_that_cannot_be_run_again_is_told_where_it_failed() -> None:
    runs: list[str] = []

    async def scenario(store: Store) -> None:
        async with System.open(store, agents=[AGENT], models={"*": ScriptedModel(cashier)}) as system:
            runs.append("run")
            await system.spawn(AGENT, id="t")
            if len(runs) == 2:
                raise ValueError("the second time is different")

    with pytest.raises(ValueError, match="second time") as failed:
        await anext(every_crash(scenario))
    assert failed.value.__notes__ == ["in the run killed behind commit 1 (logs ended at t: 0 log/created; nothing lost)"]


async def test_what_fails_before_the_kill_is_no_crash() -> None:
    async def scenario(store: Store) -> None:
        raise ValueError("at once")

    with pytest.raises(ValueError, match="at once"):
        await anext(every_crash(scenario))


async def test_a_log_that_breaks_a_rule_fails_the_walk() -> None:
    async def scenario(store: Store) -> None:
        await buy(store)
        head, epoch = await store.head("t"), await store.own("t")
        assert head is not None
        stray = Record(head.last + 1, head.time, StepEnd(turn=9, step=9))
        await store.commit([[Batch("t", epoch, head.last, [stray], head.summary)]])

    with pytest.raises(
        AssertionError, match=r"killed behind commit 1 .* does not verify:\n't' seq .*: step/end of turn 9 step 9 lies"
    ):
        await anext(every_crash(scenario))


async def test_a_scenario_that_writes_nothing_is_refused() -> None:
    async def scenario(store: Store) -> None:
        await trio.lowlevel.checkpoint()

    with pytest.raises(UsageError, match="nothing to crash"):
        await anext(every_crash(scenario))


async def test_the_walk_is_over_once(autojump_clock: MockClock) -> None:
    crashes = every_crash(buy)
    assert [crash.commit async for crash in crashes] == [1, 2, 3, 4, 5]
    assert [crash async for crash in crashes] == []


START = datetime(2026, 12, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    "start",
    ["2026-12-01T08:00Z", "2026-12-01T08:00", START, START.astimezone(timezone(timedelta(hours=5))), START.timestamp()],
)
async def test_a_wall_clock_goes_as_trio_goes(start: str | datetime | float, autojump_clock: MockClock) -> None:
    now = trio_wall(start)
    assert now() == START.timestamp()
    await trio.sleep(3600)
    assert now() == START.timestamp() + 3600


async def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="needs an ISO time"):
        trio_wall("tomorrow")
