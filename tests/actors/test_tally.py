"""What a system counts of its own work, as `statistics` tells it."""

from __future__ import annotations

from typing import Any

from callboard import Agent, System
from callboard.actors.plugins import Retry
from callboard.actors.tally import LONGEST, MOST, OTHER, Tally
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage.events import Errored, Limited
from callboard.storage.messages import NO_USAGE, Failure
from callboard.storage.timings import Timings


def test_durations_are_counted_by_their_bounds() -> None:
    timings = Timings((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 3.0):
        timings.add(seconds)
    read = timings.read()
    assert (read.bounds, read.at_most, read.count) == ((0.1, 1.0), (2, 3), 4)
    assert abs(read.total_s - 3.65) < 1e-9


async def test_turns_steps_tokens_and_failures_are_counted(autojump_clock: object) -> None:
    model = ScriptedModel([Reply.text("a"), Reply.fail("SERVER"), Reply.text("b"), Reply.fail("BAD_REQUEST")])
    agent: Agent[Any, Any] = Agent("demo", model=model, plugins=[Retry()])
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        outcomes = [await ref.ask(text) for text in ("1", "2", "3")]
        done = system.statistics()["done"]
        assert done["turns"] == {("demo", "completed"): 2, ("demo", "error"): 1}
        assert done["steps"] == {"demo": 3}
        assert done["usage"]["demo"] == outcomes[0].usage + outcomes[1].usage + outcomes[2].usage
        assert done["failed_attempts"] == {"SERVER": 1, "BAD_REQUEST": 1}
        assert done["errors"] == {"BAD_REQUEST": 1}
        assert done["turn_seconds"].count == 3
        writer = system.statistics()["writer"]
        assert writer["flush_seconds"].count == writer["flushes"] > 0


def test_codes_without_end_are_counted_together() -> None:
    tally = Tally()
    for n in range(1000):
        tally.attempt(f"REQUEST-{n}")
        tally.turn("demo", Errored(Failure(f"REQUEST-{n}", "no")), steps=1, usage=NO_USAGE, seconds=1)
    tally.attempt("REQUEST-7")
    tally.attempt("x" * 1000)
    tally.turn("demo", Limited("y" * 1000, "no"), steps=1, usage=NO_USAGE, seconds=1)
    read = tally.read()
    assert len(read["failed_attempts"]) == len(read["errors"]) == MOST + 1
    assert read["failed_attempts"]["REQUEST-7"] == 2 and read["failed_attempts"][OTHER] == 901
    assert read["errors"][OTHER] == 901 and read["turns"] == {("demo", "error"): 1000, ("demo", "limit"): 1}


def test_a_code_is_no_longer_than_a_label_should_be() -> None:
    tally = Tally()
    tally.attempt("x" * 1000)
    assert tally.read()["failed_attempts"] == {"x" * LONGEST: 1}
