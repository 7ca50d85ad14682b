"""The program p10_ops: what an operator does in a day, over a store on disk."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import trio

from callboard.actors.models.registry import BUILT_IN
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import Request, open_store, verify

PROGRAM = Path(__file__).resolve().parent.parent.parent / "docs" / "examples" / "p10_ops.py"


def test_p10_ops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def says(request: Request) -> Reply:
        if request.messages[-1].text == "Three days in Oslo":
            return Reply.text("Museums.")
        return Reply.text("By bus." if "Never" in request.system else "By night train.")

    monkeypatch.setitem(BUILT_IN, "openai", lambda: ScriptedModel(says, provider="openai"))
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(PROGRAM), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("trip-42 is idle, turn 2, 0 pending, ")
    assert lines[1].startswith("timer Ask whether the tickets came None ")
    assert lines[2:6] == ["By night train.", "By bus.", "- trip-42", "+ trip-42-alt"]
    assert [line.strip() for line in lines[7:14]] == [
        "turn 2, step 1",
        "system",
        "- You plan trips.",
        "+ You plan trips. Never propose a night train.",
        "answer",
        "- By night train.",
        "+ By bus.",
    ]
    assert lines[-1] == "[]"
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["trip-42-alt.jsonl", "trip-42.jsonl"]
    assert b'"customer":"acme"' in (tmp_path / "trip-42.jsonl").read_bytes().splitlines()[0]
    trio.run(check_backup)


async def check_backup() -> None:
    """Everything that was there before it was handed over."""
    async with open_store("backup", readonly=True) as store:
        assert [head.agent for head in await store.agents()] == ["trip-42", "trip-42-alt"]
        assert (await verify(store)).ok
