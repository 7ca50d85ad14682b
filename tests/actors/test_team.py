"""The program team.py: work is sent back, a writer is restarted, and a kill behind every commit changes nothing."""

from __future__ import annotations

import runpy
import sys
from functools import partial
from pathlib import Path

import pytest
from trio.testing import MockClock

from callboard.actors.models.registry import BUILT_IN
from callboard.actors.testing import Reply, ScriptedModel, every_crash, trio_wall
from callboard.storage import Request, Store, verify
from callboard.storage.engines.memory import MemoryStore

PROGRAM = Path(__file__).resolve().parent.parent.parent / "docs" / "examples" / "team.py"
WALL = "2026-12-01T08:00Z"
TEXT = "It began in 1475. It goes on today."
STORY = [
    "desk/coffee: turn 1 completed",
    "desk/coffee/1.1.s0: sent back: when?",
    "desk/coffee/1.1.s0: turn 1 completed",
    "desk/coffee/1.1.s1: turn 1 error",
    "desk/coffee/1.1.s1: the supervisor puts the task again",
    "desk/coffee/1.1.s1: turn 2 completed",
]


def team(request: Request) -> Reply:
    """The whole desk: a planner with two sections, a writer who is vague, one who fails at first, and a strict editor."""
    results = [text for message in request.messages for text in message.results.values()]
    asked = next(m.text for m in reversed(request.messages) if m.role == "user")
    if request.model == "claude":
        return Reply.output({"accepted": False, "notes": "when?"} if asked == "It began." else {"accepted": True})
    if request.model == "gpt-5":
        sections = enumerate(("beginnings", "today"))
        return Reply.text(" ".join(results)) if results else Reply.tools(*((f"s{n}", "writer", {"task": s}) for n, s in sections))
    if asked == "today" and sum(m.text == asked for m in request.messages) == 1:
        return Reply.fail("BAD_REQUEST")
    draft = "It goes on today." if asked == "today" else "It began in 1475." if results else "It began."
    if results and results[-1] == "accepted":
        return Reply.text(draft)
    return Reply.tools((f"h{len(results)}", "hand_in", {"draft": draft}))


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> dict[str, ScriptedModel]:
    """The desk's models under the names of the providers."""
    found = {name: ScriptedModel(team, provider=name) for name in ("openai", "anthropic")}
    for name in found:
        monkeypatch.setitem(BUILT_IN, name, partial(found.__getitem__, name))
    return found


async def test_team_work_is_sent_back_and_a_restart_is_seen_in_the_log(
    autojump_clock: MockClock, models: dict[str, ScriptedModel]
) -> None:
    program, store, wall = runpy.run_path(str(PROGRAM)), MemoryStore(), trio_wall(WALL)
    assert await program["write"]("coffee", store, wall) == (TEXT, STORY)
    asked = {name: len(model.requests) for name, model in models.items()}
    assert asked["anthropic"] == 3, "two drafts of one section, one of the other"
    assert await program["write"]("coffee", store, wall) == (TEXT, STORY)
    assert {name: len(model.requests) for name, model in models.items()} == asked, "the second run reads the logs"
    assert (await verify(store)).ok


@pytest.mark.usefixtures("models")
async def test_team_survives_a_kill_behind_every_commit(autojump_clock: MockClock) -> None:
    program, wall = runpy.run_path(str(PROGRAM)), trio_wall(WALL)

    async def write(store: Store) -> str:
        text: str = (await program["write"]("coffee", store, wall))[0]
        return text

    async for crash in every_crash(write):
        assert crash.result == TEXT, crash


@pytest.mark.usefixtures("models")
def test_team_runs_as_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["team.py", "coffee"])
    runpy.run_path(str(PROGRAM), run_name="__main__")
    assert capsys.readouterr().out.splitlines() == [TEXT, *STORY]
