"""The demo as a person runs it, over a store on disk: its report, its second and third run, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from callboard.net.cli import main
from callboard.net.cli.demo import invoked_as


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    found = tmp_path / "notes"
    found.mkdir()
    (found / "guide.md").write_text("# Guide\n\nHow the harbour works.\n\n## Cranes\n\nThe harbour has cranes.\n")
    (found / "crane.py").write_text('"""Cranes."""\n\nclass Crane:\n    pass\n\ndef lift(): ...\n')
    (found / "log.csv").write_text("".join(f"{n},harbour\n" for n in range(30)))
    (found / "crane.png").write_bytes(b"\x89PNG\0")
    monkeypatch.chdir(found)
    return found


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(["demo", *words]) == code
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refused(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    assert main(["demo", *words]) == code
    out, err = capsys.readouterr()
    assert err.startswith("callboard: ") and err.count("\n") == 1 and "Traceback" not in out + err
    return err


def test_a_run_writes_the_report_checks_itself_and_says_where_to_look(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys)
    assert "3 text files in" in out and "left out: 1 binary" in out
    assert "reader of guide.md: done, 4 steps" in out
    assert "reader of log.csv is asked back" in out
    assert "report.md is written (" in out
    assert re.search(r"4 agents, \d+ records; \d+ requests rebuilt from the log: all as they were sent\.", out)
    commands = re.findall(rf"^  {invoked_as()} (\w+) callboard-state ?(\S*)$", out, re.MULTILINE)
    assert [command for command, _ in commands] == ["ls", "log", "log", "verify"]
    assert f"  {invoked_as()} serve callboard-state   (a page to look at)" in out
    assert commands[1][1] == "demo" and commands[2][1].startswith("demo/")
    for command, agent in commands:
        assert main([command, "callboard-state", *([agent] if agent else [])]) == 0
    text = (folder / "report.md").read_text()
    assert "| csv | 1 | 30 | 30 | 320 |" in text
    assert "asked back, the reader adds its longest lines: line 11" in text


def test_what_to_type_is_what_a_shell_finds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", [".venv/bin/callboard", "demo"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert invoked_as() == ".venv/bin/callboard"
    (tmp_path / "callboard").touch(0o755)
    assert invoked_as() == "callboard"


def test_again_it_says_that_it_is_done(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys)
    written = (folder / "report.md").read_bytes()
    requests = json.loads(said(capsys, "--json"))["requests"]
    out = said(capsys)
    assert "It is done already" in out and "reader of" not in out
    assert (folder / "report.md").read_bytes() == written
    assert json.loads(said(capsys, "--json"))["requests"] == requests


def test_a_report_that_is_gone_is_written_again_and_one_that_was_edited_is_left(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said(capsys)
    written = (folder / "report.md").read_bytes()
    (folder / "report.md").unlink()
    assert "written again from the log" in said(capsys)
    assert (folder / "report.md").read_bytes() == written
    (folder / "report.md").write_bytes(written + b"\nMy remark.\n")
    assert "left as it is" in said(capsys)
    assert (folder / "report.md").read_bytes().endswith(b"My remark.\n")


def test_json_is_one_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "--json")
    value = json.loads(out)
    assert (value["status"], value["files"], value["left_out"], value["agents"], value["verified"]) == ("written", 3, 1, 4, True)
    assert value["bytes"] == (folder / "report.md").stat().st_size


def test_another_folder_in_the_same_state_is_another_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said(capsys)
    other = folder.parent / "other"
    other.mkdir()
    (other / "a.txt").write_text("alone\n")
    value = json.loads(said(capsys, str(other), "--report", "other.md", "--json"))
    assert (value["lead"], value["files"], value["status"]) == ("demo-2", 1, "written")
    assert json.loads(said(capsys, "--json"))["status"] == "done before"


def test_a_report_is_never_written_over_a_persons_own_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "report.md").write_text("mine\n")
    assert "move it away" in refused(capsys, code=2)
    assert (folder / "report.md").read_text() == "mine\n"
    assert not (folder / "callboard-state").exists()


def test_bad_input_is_one_sentence_and_leaves_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = folder.parent / "empty"
    empty.mkdir()
    (empty / "x.bin").write_bytes(b"\0")
    assert "there is no folder" in refused(capsys, str(folder / "none"), code=2)
    assert "is no folder" in refused(capsys, str(folder / "guide.md"), code=2)
    assert "no text file to read" in refused(capsys, str(empty), code=2)
    assert "left out: 1 binary" in refused(capsys, str(empty), code=2)
    assert "no text file to read" in refused(capsys, "--limit", "0", code=2)
    assert "no place for a file" in refused(capsys, "--report", str(folder / "none" / "r.md"), code=2)
    assert "whole number" in refused(capsys, "--limit", "-1", code=2)
    assert "seconds" in refused(capsys, "--pace", "soon", code=2)
    assert not (folder / "callboard-state").exists()
    (folder / "callboard-state").write_text("a file")
    refused(capsys, code=4)


def test_a_store_that_another_process_owns_is_named_with_its_process(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    holder = (
        "import sys, trio\n"
        "from callboard.storage.opening import open_store\n"
        "async def hold():\n"
        "    async with open_store('callboard-state'):\n"
        "        print('held', flush=True)\n"
        "        await trio.to_thread.run_sync(sys.stdin.read)\n"
        "trio.run(hold)\n"
    )
    with subprocess.Popen([sys.executable, "-P", "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == b"held\n"
        assert str(process.pid) in refused(capsys, code=3)
        process.stdin.close()
    assert "report.md is written" in said(capsys)


def demo(folder: Path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "callboard.net.cli", "demo", *words]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ))


@pytest.mark.parametrize(("signal", "code"), [(2, 130), (15, 143)])
def test_an_interrupted_run_ends_quietly_and_the_next_goes_on(
    folder: Path, capsys: pytest.CaptureFixture[str], signal: int, code: int
) -> None:
    with demo(folder, "--pace", "0.2") as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stdout:
            if b"starts" in line:
                process.send_signal(signal)
                break
        rest, err = process.stdout.read(), process.stderr.read()
    assert (process.returncode, err, b"written" in rest) == (code, b"", False)
    out = said(capsys)
    assert "goes on" in out and "report.md is written" in out


def test_output_that_nobody_reads_any_more_is_no_error(folder: Path) -> None:
    with demo(folder) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert (process.wait(timeout=120), process.stderr.read()) == (141, b"")
