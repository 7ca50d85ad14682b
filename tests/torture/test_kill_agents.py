"""The short form of `kill_agents.py`: a few kills, in every run of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_trees_of_agents_that_are_killed_lose_nothing_and_pay_nothing_twice() -> None:
    # A process of its own, since it forks: pytest has threads, which a fork leaves behind.
    command = [sys.executable, str(Path(__file__).with_name("kill_agents.py")), "--kills", "6", "--seed", "2", "--agents", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 kills" in done.stdout and "0 inputs lost, 0 effects repeated" in done.stdout
