"""The program p08_batch: tasks three times over on two models, one of which is worse at what ends with a seven."""

from __future__ import annotations

import json
import runpy
from functools import partial
from pathlib import Path

import pytest

from callboard.actors.models.registry import BUILT_IN
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import Request

PROGRAM = Path(__file__).resolve().parent.parent.parent / "docs" / "examples" / "p08_batch.py"
TASKS = 200


def test_p08_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def doubles(request: Request) -> Reply:
        number = int(request.messages[-1].text)
        if number == 13 and request.provider == "openai":
            return Reply.fail("BAD_REQUEST", status=400)
        wrong = number % 10 == 7 and request.provider == "anthropic"
        return Reply.text(str(number * 2 + wrong))

    for provider in ("openai", "anthropic"):
        monkeypatch.setitem(BUILT_IN, provider, partial(ScriptedModel, doubles, provider=provider))
    lines = [json.dumps({"id": f"n{n}", "input": str(n), "expected": str(n * 2)}) for n in range(TASKS)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(PROGRAM), run_name="__main__")
    out = capsys.readouterr().out
    assert "runs/a: solver on openai:gpt-5" in out and "600 attempts at 200 tasks, 597 completed" in out
    assert "ended otherwise: error BAD_REQUEST 3" in out
    assert "pass@1 0.995  pass@2 0.995  pass@3 0.995" in out
    assert "difference -0.095 ± 0.0" in out and "better at 1, worse at 20, the same at 179" in out
    assert len([line for line in out.splitlines() if line.startswith("n13 Errored(")]) == 3
    assert len((tmp_path / "runs" / "b" / "results.jsonl").read_bytes().splitlines()) == 3 * TASKS
