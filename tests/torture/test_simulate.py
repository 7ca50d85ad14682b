"""The trees in simulated time: everything fails, nothing is lost; and one seed is one life."""

from __future__ import annotations

import logging

import pytest
from simulate import Chances, simulate


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    # Timers and observers say that a full disk makes them wait; of these there are many.
    caplog.set_level(logging.CRITICAL, logger="callboard")


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_trees_whose_store_models_clock_and_process_fail_lose_nothing(seed: int) -> None:
    life = simulate(seed, chances=Chances(full=0.1))
    assert life.happened["deaths"] and life.happened["failed commits"] and life.happened["clock set"]
    assert set(life.kept.turns.values()) == {"completed", "error"}  # an error: the first try of each clerk


def test_a_seed_is_replayed_record_by_record() -> None:
    first, again, other = simulate(5).text, simulate(5).text, simulate(6).text
    assert first == again
    assert first != other


def test_a_wall_clock_that_is_set_again_and_again_fires_each_timer_once_and_record_times_never_go_back() -> None:
    life = simulate(21, chances=Chances(full=0, slow=0, failed=0, hung=0, deaths=0, jumps=40))
    assert life.happened.keys() == {"clock set"} and life.kept.fired.total() == 4
