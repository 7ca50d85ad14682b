"""How the interpreter is tuned is the application's choice, and ends with the system that asked for it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator

import pytest

from callboard import System
from callboard.actors.collector import SWITCH_S, THRESHOLD
from callboard.storage import UsageError


@pytest.fixture
def interval() -> Generator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


async def test_a_system_that_serves_tunes_the_collector_while_it_is_open() -> None:
    before = gc.get_threshold()
    async with System.open(":memory:", gc="server"):
        assert gc.get_threshold() == THRESHOLD and gc.get_freeze_count() > 0
    assert gc.get_threshold() == before and gc.get_freeze_count() == 0


async def test_its_threads_hand_the_lock_over_sooner_while_it_is_open(interval: None) -> None:
    sys.setswitchinterval(0.005)
    async with System.open(":memory:", gc="server"):
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    assert sys.getswitchinterval() == pytest.approx(0.005)


async def test_an_application_that_wants_it_sooner_still_has_its_way(interval: None) -> None:
    sys.setswitchinterval(0.0001)
    async with System.open(":memory:", gc="server"):
        assert sys.getswitchinterval() == pytest.approx(0.0001)


async def test_a_library_leaves_it_alone() -> None:
    before = gc.get_threshold(), sys.getswitchinterval()
    async with System.open(":memory:"):
        assert (gc.get_threshold(), sys.getswitchinterval()) == before


async def test_another_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="gc='fast'"):
        async with System.open(":memory:", gc="fast"):  # type: ignore[arg-type]
            pass
