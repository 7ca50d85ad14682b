"""`callboard serve`, `tail`, `approvals`, `answer`: a real service as a process, and what cannot be done in one sentence."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from callboard.net.cli import main

SOURCE = """
from callboard import Agent, System, tool
from callboard.actors.testing import Reply, ScriptedModel

deps = "the shop"

@tool(replay="safe", approval="May I?")
async def look(ctx) -> str:
    "Look."
    return ctx.deps

def answer(request):
    last = request.messages[-1]
    return Reply.text(f"saw {last.text}") if last.role == "tool" else Reply.tools(("c1", "look", {}))

clerk = Agent("clerk", model=ScriptedModel(answer).named("m"), tools=[look], plugins=[])
echo = Agent("echo", model=ScriptedModel(lambda r: Reply.text(r.messages[-1].text)).named("m"), plugins=[])
"""
Run = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with agents and tokens."""
    (tmp_path / "shop.py").write_text(SOURCE)
    (tmp_path / "tokens.toml").write_text('["a-token"]\nscopes = ["admin"]\n')
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(shop: Path) -> Generator[Run]:
    """Start a command as a process; whatever still runs in the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def start(*words: str, **surroundings: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-W", "error", "-m", "callboard.net.cli", *words]
        process = subprocess.Popen(
            command, cwd=shop, env={**os.environ, **surroundings}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_a_served_file_is_tailed_and_its_questions_are_answered(
    shop: Path, run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["run", "state", "shop.py:echo", "hello", "--id", "e/1"]) == 0
    served = run("serve", "state", "shop.py", "--port", "0", "--tokens", "tokens.toml", "--json")
    said = json.loads(line(served))
    port = said["port"]
    page = f"http://127.0.0.1:{port}/"
    assert said == {"url": f"ws://127.0.0.1:{port}", "port": port, "page": page, "agents": ["clerk", "echo"]}
    url = said["url"]
    for where, surroundings in ((url, {"CALLBOARD_TOKEN": "a-token"}), ("state", {})):
        tail = run("tail", where, "e/1", "--types", "turn/end,inbox/put", **surroundings)
        assert "hello" in line(tail)
        assert "turn 1 completed" in line(tail)
        tail.send_signal(signal.SIGINT)
        assert tail.wait(120) == 130
    capsys.readouterr()
    assert main(["approvals", url]) == 4
    assert "missing or wrong" in capsys.readouterr().err
    monkeypatch.setenv("CALLBOARD_TOKEN", "a-token")
    assert main(["approvals", url]) == 0
    assert capsys.readouterr().out == f"nothing waits for a person in {url}\n"
    assert main(["approvals", page]) == 0  # what a browser shows names the service, too
    capsys.readouterr()
    assert main(["answer", url, "e/1!7", "allow", "--by", "ann"]) == 2
    assert "was answered" in capsys.readouterr().err
    served.send_signal(signal.SIGTERM)
    assert served.wait(120) == 143
    assert served.communicate()[1] == ""
    assert main(["approvals", url]) == 4
    err = capsys.readouterr().err
    assert "is the service running there?" in err and err.count("\n") == 1


def test_run_again_as_it_is_told_ends_with_the_answer(shop: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    asked = run("run", "state", "shop.py:clerk", "Look there.")
    assert asked.stderr is not None
    told = asked.stderr.readline()
    asked.send_signal(signal.SIGINT)
    assert asked.wait(120) == 130
    found = re.search(r"`callboard (answer state) '(\S+)' allow --by NAME`.* again with (--message-id) (\w+)\.", told)
    assert found is not None, told
    assert main([*found[1].split(), found[2], "allow", "--by", "ann"]) == 0
    capsys.readouterr()
    assert main(["run", "state", "shop.py:clerk", "Look there.", found[3], found[4]]) == 0
    assert capsys.readouterr().out == "saw the shop\n"


def test_a_port_that_is_taken_is_one_sentence(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "state", "shop.py", "--port", str(port)]) == 2
    err = capsys.readouterr().err
    assert f"port {port} of 127.0.0.1" in err and "choose another one, or 0" in err and err.count("\n") == 1


def test_a_reader_that_goes_away_ends_a_look_at_a_service_quietly(shop: Path, run: Run) -> None:
    assert main(["run", "state", "shop.py:echo", "hello", "--id", "e/1"]) == 0
    url = json.loads(line(run("serve", "state", "shop.py", "--port", "0", "--json")))["url"]
    for words in (["ls", url], ["log", url, "e/1"], ["tail", url, "e/1"]):
        look = run(*words)
        assert look.stdout is not None
        look.stdout.close()
        assert look.wait(120) == 141
        assert look.stderr is not None and "callboard:" not in look.stderr.read()


def test_a_tail_sees_what_a_running_process_writes(shop: Path, run: Run) -> None:
    assert main(["run", "state", "shop.py:echo", "one", "--id", "e/1"]) == 0
    tail = run("tail", "state", "e/1", "--types", "turn/end", "--json")
    assert json.loads(line(tail))["turn"] == 1
    assert main(["run", "state", "shop.py:echo", "two", "--id", "e/1"]) == 0
    assert json.loads(line(tail))["turn"] == 2


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["serve", "state", "none.py"], 2, "there is no file"),
        (["serve", "shop.py"], 2, "before it comes any folder"),
        (["chat", "shop.py:echo"], 2, "before it comes any folder"),
        (["run", "shop.py:echo", "hi", "there"], 2, "before it comes any folder"),
        (["mcp", "shop.py:echo", "--agent", "shop.py:echo"], 2, "before it comes any folder"),
        (["serve", "state", "shop.py:echo"], 2, "all Agents of a file are served"),
        (["serve", "state", "empty.py"], 2, "there is no Agent in"),
        (["serve", "state", "shop.py", "--port", "99999"], 2, "is not a port"),
        (["serve", "state", "shop.py", "--host", "0.0.0.0"], 2, "loopback only"),
        (["serve", "state", "shop.py", "--tokens", "none.toml"], 2, "cannot be read"),
        (["tail", "nowhere", "a"], 4, "nowhere"),
        (["tail", "ws://127.0.0.1:1", "a"], 4, "is the service running there?"),
        (["tail", "localhost:8000", "a"], 2, "write ws://localhost:8000"),
        (["ls", "localhost:8000/"], 2, "write ws://localhost:8000"),
        (["ls", "ws://localhost:99999"], 2, "is no address of a service"),
        (["approvals", "nowhere"], 4, "nowhere"),
        (["answer", "nowhere", "a!1", "allow", "--by", "ann"], 4, "nowhere"),
        (["answer", "nowhere", "a!1", "maybe", "--by", "ann"], 2, "maybe"),
        (["answer", "nowhere", "a!1", "allow"], 2, "--by"),
        (["answer", "nowhere", "a!1", "reply", "--by", "ann"], 2, "--text"),
    ],
)
def test_c230_what_cannot_be_done_is_one_sentence(
    shop: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    (shop / "empty.py").write_text("x = 1\n")
    assert main(words) == code
    out, err = capsys.readouterr()
    assert out == "" and says in err and err.count("\n") == 1 and "Traceback" not in err
    assert not (shop / "nowhere").exists()
    assert main([*words, "--json"]) == code
    out, err = capsys.readouterr()
    assert err == "" and says in json.loads(out)["error"]["message"]


def test_c230_an_answer_to_what_is_no_question(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "state", "shop.py:echo", "one", "--id", "e/1"]) == 0
    capsys.readouterr()
    for id, says in (("e/1", "no approval's id"), ("e/2!3", "no agent 'e/2'"), ("e/1!3", "was answered")):
        assert main(["answer", "state", id, "allow", "--by", "ann"]) == 2
        assert says in capsys.readouterr().err
