"""The command line where nobody listens: standard output closed from the start, or a reader that leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

AGENT = """
from callboard import Agent
from callboard.actors.testing import Reply, ScriptedModel
agent = Agent("a", model=ScriptedModel(lambda request: Reply.text("hello")), plugins=())
"""


def command(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = f"{sys.executable} -m callboard.net.cli {line}"
    return subprocess.run(["sh", "-c", program], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(AGENT)
    return tmp_path


def test_a_closed_standard_output_is_no_error(folder: Path) -> None:
    done = command("run state agent.py hi >&-", folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert command("run state agent.py hi 2>&- --id b", folder).stdout == "hello\n"


def test_a_demo_whose_reader_leaves_says_nothing_more(folder: Path) -> None:
    for number in range(4):
        (folder / f"{number}.txt").write_text("a harbour and a crane\n" * 40)
    done = command("demo . --state state | head -1 >/dev/null", folder)
    assert "Traceback" not in done.stderr
