"""docs/examples/p04_approval.py as three processes: asked, killed, started again, allowed over the socket; paid once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import trio

from callboard.net.cli import main
from callboard.storage import open_store, verify

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "p04_approval.py"
PROVIDED = """
import runpy, sys
from callboard.actors.models.registry import BUILT_IN
from callboard.actors.testing import Reply, ScriptedModel

def model(request):
    if request.messages[-1].role == "tool":
        return Reply.text(f"Your money is {request.messages[-1].text}.")
    return Reply.tools(("c1", "refund", {"order": "17", "cents": 8000}))

BUILT_IN["openai"] = lambda: ScriptedModel(model, provider="openai")
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""The example, with a script that answers as the provider it names."""

Start = Callable[[str], "subprocess.Popen[str]"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def start(tmp_path: Path) -> Generator[Start]:
    surroundings = {**os.environ, "SHOP_PORT": str(free_port()), "SHOP_TOKEN": "test-token"}
    running: list[subprocess.Popen[str]] = []

    def run(role: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-P", "-W", "error", "-c", PROVIDED, str(EXAMPLE), role]
        process = subprocess.Popen(command, cwd=tmp_path, env=surroundings, stdout=subprocess.PIPE, text=True)
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


async def until_asked(state: Path) -> None:
    """Wait for the question to be on disk."""
    with trio.fail_after(120):
        async with open_store(state, readonly=True) as store:
            while not any("approval" in head.summary.waits for head in await store.agents()):  # noqa: ASYNC110 (another process writes)
                await trio.sleep(0.02)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_p04_approval(start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = start("serve")
    assert line(first).startswith("serving at ws://127.0.0.1:")
    trio.run(until_asked, tmp_path / "state")
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    second = start("serve")
    url = line(second).removeprefix("serving at ")
    assert main(["approvals", url, "--token", "test-token"]) == 0
    assert "Refund 80.00 EUR for order 17?" in capsys.readouterr().out
    clerk = start("clerk")
    assert clerk.communicate(timeout=120)[0].splitlines() == [
        "desk/17 Refund 80.00 EUR for order 17?",
        "Your money is refunded.",
    ]
    assert line(second) == "Your money is refunded."
    second.kill()
    second.wait()
    paid = [json.loads(entry) for entry in (tmp_path / "payments.jsonl").read_text().splitlines()]
    assert [(entry["order"], entry["cents"]) for entry in paid] == [("17", 8000)]
    trio.run(check, tmp_path / "state")


async def check(state: Path) -> None:
    async with open_store(state, readonly=True) as store:
        types = [record.type async for record in store.read("desk/17")]
        for once in ("inbox/put", "approval/asked", "approval/answered", "tool/call", "tool/result", "turn/end"):
            assert types.count(once) == 1, once
        assert (await verify(store)).ok


def test_p04_a_folder_is_answered_while_nobody_runs_it(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = start("serve")
    line(first)
    trio.run(until_asked, tmp_path / "state")
    assert main(["approvals", "state", "--json"]) == 0
    question = json.loads(capsys.readouterr().out)
    assert (question["agent"], question["tool"], question["question"]) == (
        "desk/17",
        "refund",
        "Refund 80.00 EUR for order 17?",
    )
    assert json.loads(question["arguments"]) == {"order": "17", "cents": 8000}
    assert main(["answer", "state", question["id"], "allow", "--by", "ann"]) == 3
    err = capsys.readouterr().err
    assert f"process {first.pid}" in err and "URL" in err and err.count("\n") == 1
    first.kill()
    first.wait()
    assert main(["answer", "state", question["id"], "allow", "--by", "ann"]) == 0
    assert main(["answer", "state", question["id"], "deny", "--by", "bob"]) == 2
    out, err = capsys.readouterr()
    assert "goes on when a program opens state again" in out and "was answered" in err
    assert main(["approvals", "state"]) == 0
    assert "nothing waits" in capsys.readouterr().out
    second = start("serve")
    line(second)
    assert line(second) == "Your money is refunded."
    assert len((tmp_path / "payments.jsonl").read_text().splitlines()) == 1
    second.kill()
    second.wait()
    trio.run(check, tmp_path / "state")
