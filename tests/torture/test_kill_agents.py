"""The short form of `kill_agents.py`: a few kills, in every run of the tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("kill_agents", Path(__file__).with_name("kill_agents.py"))
assert _SPEC is not None and _SPEC.loader is not None
kill_agents = importlib.util.module_from_spec(_SPEC)
sys.modules["kill_agents"] = kill_agents
_SPEC.loader.exec_module(kill_agents)


def test_agents_that_are_killed_lose_nothing_and_pay_nothing_twice() -> None:
    assert kill_agents.torture(kills=3, seed=2, agents=20) >= 1
