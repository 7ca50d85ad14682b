"""The lesson's observation task: a plain message and `/help`, and the states that each went through; also after a restart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from callboard.actors import Agent, System
from callboard.actors.plugins import Commands
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.cli import main
from callboard.net.cli.trace import trace_lines
from callboard.storage.events import Aborted, Cause, TraceEntry, TurnEnd

WALKED = ["RESTORE", "COMPACT", "COMMAND", "BUILD", "RUN", "SAVE", "RESPOND"]


async def talk(state: str, *texts: str) -> None:
    agent = Agent(
        "demo", model=ScriptedModel([Reply.text("hi"), Reply.fail("BAD_REQUEST", "no such model")]), plugins=[Commands()]
    )
    async with System.open(state, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        for text in texts:
            await ref.ask(text)


@pytest.fixture
def state(tmp_path: Path) -> str:
    folder = str(tmp_path / "state")
    trio.run(talk, folder, "hello", "/help")
    return folder


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert not err, err
    return out


def turns(capsys: pytest.CaptureFixture[str], state: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said(capsys, "log", state, "a", "--trace", "--json").splitlines()]


def test_c150_a_message_and_a_command_visit_different_states(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    plain, command = turns(capsys, state)
    assert [entry["state"] for entry in plain["trace"]] == WALKED
    assert [entry["event"] for entry in plain["trace"]] == ["ok", "ok", "dispatch", "ok", "ok", "ok", "ok"]
    assert [(entry["state"], entry["event"]) for entry in command["trace"]] == [
        ("RESTORE", "ok"),
        ("COMPACT", "ok"),
        ("COMMAND", "shortcut"),
    ]
    assert plain["reason"] == command["reason"] == {"kind": "completed"}


def test_c153_the_traces_read_the_same_after_a_restart(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = turns(capsys, state)
    trio.run(talk, state, "again", "and again")
    assert turns(capsys, state)[:2] == before


async def leave(state: str) -> None:
    agent = Agent("demo", model=ScriptedModel([Reply.hang()] * 2), plugins=[Commands()])
    async with System.open(state, agents=[agent], grace=0) as system:
        await (await system.spawn(agent, id="a")).followup("and", message_id="and")
        await trio.testing.wait_all_tasks_blocked()


def test_a_turn_that_is_suspended_is_shown_as_far_as_it_came(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    for left in (1, 2):
        trio.run(leave, state)
        ended, command, open_one = turns(capsys, state)
        assert (ended["turn"], command["turn"], open_one["turn"], open_one["reason"]) == (1, 2, 3, None)
        walked = [entry["state"] for entry in open_one["trace"]]
        assert walked == [*WALKED[:5], *["RESTORE", "RUN"] * (left - 1)]
    lines = said(capsys, "log", state, "a", "--trace").splitlines()
    assert lines[-1].split() == ["3", "waits", "for", "the", "next", "start"]
    assert lines[-2].endswith("Cancelled")


def test_people_read_a_table(state: str, capsys: pytest.CaptureFixture[str]) -> None:
    trio.run(talk, state, "again", "and again")
    lines = said(capsys, "log", state, "a", "--trace").splitlines()
    assert lines[0].split() == ["TURN", "STATE", "START", "TOOK", "EVENT"]
    words = [line.split() for line in lines[1:]]
    assert [row[1] for row in words[:7]] == WALKED
    assert [row[0] for row in words if row[1] == "RESTORE"] == ["1", "2", "3", "4"]
    failed = next(line for line in lines if " RUN " in line and "no such model" in line)
    assert failed.split()[:2] == ["4", "RUN"]
    assert "error BAD_REQUEST: no such model" in lines[-1]


def test_a_state_that_was_cancelled_says_so() -> None:
    entry = TraceEntry("RUN", 1_764_500_000_123, 2_500_000, None, "Cancelled")
    first, last = trace_lines(TurnEnd(turn=3, reason=Aborted(Cause("user")), latency_ms=2501, trace=(entry,)))
    assert first.endswith("2.500 s  Cancelled")
    assert last.split() == ["3", "2.501", "s", "aborted", "by", "user"]
