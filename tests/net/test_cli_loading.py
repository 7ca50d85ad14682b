"""`FILE:NAME`: the agent it names, and a sentence for everything else that it may be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.net.cli.loading import load_agent
from callboard.net.cli.problems import Refused

TWO = "from callboard.actors.agent import Agent\nplanner = Agent('planner')\nwriter = Agent('writer')\nlimit = 3\n"


@pytest.fixture(autouse=True)
def clean_imports() -> Iterator[None]:
    """What a loaded file adds to the interpreter is taken back."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if not name.startswith("callboard"):
            del sys.modules[name]


def file(tmp_path: Path, text: str, name: str = "shopagents.py") -> str:
    (tmp_path / name).write_text(text)
    return str(tmp_path / name)


def refusal(where: str) -> str:
    with pytest.raises(Refused) as caught:
        load_agent(where)
    assert "\n" not in caught.value.message
    return caught.value.message


def test_a_name_in_a_file(tmp_path: Path) -> None:
    assert load_agent(file(tmp_path, TWO) + ":writer").agent.name == "writer"


def test_the_only_agent_needs_no_name(tmp_path: Path) -> None:
    where = file(tmp_path, "from callboard.actors.agent import Agent\nx = Agent('solo')\n")
    assert load_agent(where).agent.name == "solo"
    assert load_agent(where + ":").agent.name == "solo"


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    file(tmp_path, "NAME = 'beside'\n", "shopnames.py")
    where = file(tmp_path, "import shopnames\nfrom callboard.actors.agent import Agent\na = Agent(shopnames.NAME)\n")
    assert load_agent(where).agent.name == "beside"


def test_c230_a_bad_agent_file_is_one_sentence(tmp_path: Path) -> None:
    where = file(tmp_path, TWO)
    assert "did you mean planner?" in refusal(where + ":planer")
    assert "its Agents are planner, writer" in refusal(where + ":zzz")
    assert "its Agents are planner, writer" in refusal(where)
    assert "limit in" in refusal(where + ":limit") and "no Agent but a int" in refusal(where + ":limit")
    assert "there is no file" in refusal(str(tmp_path / "none.py") + ":a")
    assert "no Python file" in refusal(file(tmp_path, "x", "a.txt") + ":a")
    assert "there is no Agent in it" in refusal(file(tmp_path, "x = 1\n", "empty.py") + ":a")


def test_c230_a_file_that_fails_says_where(tmp_path: Path) -> None:
    assert "ZeroDivisionError at line 2: " in refusal(file(tmp_path, "x = 1\n1 / 0\n", "zero.py") + ":a")
    assert "SyntaxError at line 1" in refusal(file(tmp_path, "def\n", "syntax.py") + ":a")
    assert "No module named 'nowhere'" in refusal(file(tmp_path, "import nowhere\n", "imports.py") + ":a")
    assert "fails when it is loaded" in refusal(file(tmp_path, "raise SystemExit(3)\n", "leaves.py") + ":a")


RUNS = "import trio\ntrio.run(trio.lowlevel.checkpoint)\n"


async def test_c230_a_file_that_runs_something_is_told_where_to_put_it(tmp_path: Path) -> None:
    assert "runs something at line 2; put that under" in refusal(file(tmp_path, RUNS, "inside.py") + ":a")
