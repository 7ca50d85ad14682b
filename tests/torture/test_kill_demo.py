"""The short form of `kill_demo.py`: a few kills, in every run of the tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location("kill_demo", Path(__file__).with_name("kill_demo.py"))
assert _SPEC is not None and _SPEC.loader is not None
kill_demo = importlib.util.module_from_spec(_SPEC)
sys.modules["kill_demo"] = kill_demo
_SPEC.loader.exec_module(kill_demo)


def test_a_demo_that_is_killed_writes_the_report_of_one_that_is_not() -> None:
    assert kill_demo.torture(kills=4, seed=3, files=6) >= 1
