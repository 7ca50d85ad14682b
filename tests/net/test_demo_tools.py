"""The demo's tools alone: no path leads out of the folder, no person's file is overwritten, every body leaves its line."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from callboard.actors.testing.contexts import Handle, tool_context
from callboard.actors.values import Outcome
from callboard.net.demo import tools
from callboard.net.demo.report import MARK, code
from callboard.net.demo.tools import Stage, may_replace, replace_file
from callboard.storage.errors import ToolError
from callboard.storage.events.base import Completed, Interrupted

Make = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("inside\n")
    (tmp_path / "secret").write_text("outside\n")
    labels = {"folder": str(tmp_path / "in"), "report": str(tmp_path / "report.md")}

    def context(**fields: Any) -> Any:
        return tool_context(deps=Stage(tmp_path / "state"), labels=labels, agent=Handle("demo/r"), **fields)

    return context


@pytest.mark.parametrize("path", ["../secret", "/etc/hostname", "link", "a.txt/../../secret"])
def test_no_path_leads_out_of_the_folder(make: Make, tmp_path: Path, path: str) -> None:
    (tmp_path / "in" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(ToolError, match="not in the folder"):
        tools.read_slice(make(), path)


def test_what_cannot_be_read_is_said_to_the_model(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolError, match=r"none\.txt cannot be read: No such file"):
        tools.file_facts(make(), "none.txt")
    monkeypatch.setattr(tools, "MAX_BYTES", 3)
    with pytest.raises(ToolError, match="grown beyond 3 bytes"):
        tools.file_facts(make(), "a.txt")


def test_a_body_that_came_to_its_end_leaves_one_line(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALLBOARD_EFFECTS", str(tmp_path / "ledger"))
    tools.file_facts(make(effect_key="k1"), "a.txt")
    with pytest.raises(ToolError):
        tools.file_facts(make(effect_key="k2"), "none.txt")
    assert (tmp_path / "ledger").read_text() == f"file_facts\tk1\t{os.getpid()}\n"


async def test_a_reader_is_asked_under_an_id_that_stays(make: Make) -> None:
    outcome = Outcome(agent="demo/r1", turn=2, reason=Completed(), text="more")
    context = make(answers={"demo/r1": outcome}, effect_key="k")
    assert await tools.ask_reader(context, "demo/r1", "and?") == "more"
    assert [(sent.to, sent.content, sent.message_id) for sent in context.recorded.asked] == [("demo/r1", "and?", "k#1")]


async def test_a_reader_whose_turn_did_not_complete_is_no_answer(make: Make) -> None:
    outcome = Outcome(agent="demo/r1", turn=2, reason=Interrupted(), text="half")
    with pytest.raises(ToolError, match="demo/r1 was interrupted"):
        await tools.ask_reader(make(answers={"demo/r1": outcome}), "demo/r1", "and?")


def test_a_report_replaces_only_a_report(make: Make, tmp_path: Path) -> None:
    report = tmp_path / "report.md"
    tools.write_report(make(), MARK + "\none\n")
    assert tools.write_report(make(), MARK + "\ntwo\n").bytes == report.stat().st_size
    report.write_text("mine\n")
    assert not may_replace(report)
    with pytest.raises(ToolError, match="move it away"):
        tools.write_report(make(), MARK)
    assert report.read_text() == "mine\n"


def test_a_full_disk_leaves_the_report_as_it_was(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "report.md"
    replace_file(report, MARK.encode())

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ToolError, match="cannot be written: No space left on device"):
        tools.write_report(make(), MARK + "\nnew\n")
    assert report.read_text() == MARK


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a b", "`a b`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("a\nb\x1b[2J", "`a b [2J`"), ("", "`  `")],
)
def test_code_spans_hold_anything(text: str, expected: str) -> None:
    assert code(text) == expected
