"""The garbage collector's mode is the application's choice, and ends with the system that asked for it."""

from __future__ import annotations

import gc

import pytest

from callboard import System
from callboard.actors.collector import THRESHOLD
from callboard.storage import UsageError


async def test_a_system_that_serves_tunes_the_collector_while_it_is_open() -> None:
    before = gc.get_threshold()
    async with System.open(":memory:", gc="server"):
        assert gc.get_threshold() == THRESHOLD and gc.get_freeze_count() > 0
    assert gc.get_threshold() == before and gc.get_freeze_count() == 0


async def test_a_library_leaves_it_alone() -> None:
    before = gc.get_threshold()
    async with System.open(":memory:"):
        assert gc.get_threshold() == before


async def test_another_mode_is_refused() -> None:
    with pytest.raises(UsageError, match="gc='fast'"):
        async with System.open(":memory:", gc="fast"):  # type: ignore[arg-type]
            pass
