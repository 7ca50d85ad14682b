"""The short form of `full_disk.py`: the disk fills and frees twice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_disk_that_fills_and_frees_is_called_by_its_name_and_loses_nothing() -> None:
    command = [sys.executable, str(Path(__file__).with_name("full_disk.py")), "--fills", "2", "--seed", "2", "--agents", "10"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the disk was full 2 times" in done.stdout
