"""The short form of `kill_delivery.py`: a few kills, in every run of the tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_replies_of_a_system_that_is_killed_arrive_in_order_under_one_id() -> None:
    # A process of its own, since it forks: pytest has threads, which a fork leaves behind.
    script = str(Path(__file__).with_name("kill_delivery.py"))
    command = [sys.executable, script, "--kills", "5", "--seed", "3", "--chats", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 kills" in done.stdout and "0 lost, 0 changed, 0 out of order" in done.stdout
