"""The short form of `stop_owner.py`: one owner goes on, one is killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_nobody_takes_over_from_an_owner_that_stands_still() -> None:
    command = [sys.executable, str(Path(__file__).with_name("stop_owner.py")), "--rounds", "2", "--seed", "2", "--agents", "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 owners stopped (1 went on, 1 were killed)" in done.stdout
