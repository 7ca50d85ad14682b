"""The benchmarks start, measure, and say what they mean; how fast things are is not a test's business."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_a_case_is_measured_beside_its_floor_and_kept_as_json(tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    done = bench("turn x1", "--repeat", "1", "--wait", "0", "--out", str(out))
    assert done.returncode == 0, done.stderr
    kept = json.loads(out.read_text(encoding="utf-8"))
    floor, ours = kept["figures"]
    assert [floor["case"], ours["case"]] == ["floor turn x1", "turn x1"]
    assert ours["shares"] == [ours["median"]["per_s"] / floor["median"]["per_s"]]
    assert {"processor", "cores", "python", "trio", "lmdb"} <= set(kept["machine"])
    assert "| turn x1" in done.stdout and "others" in done.stdout


def test_a_simple_turn_costs_two_flushes_and_a_tool_turn_four(tmp_path: Path) -> None:
    for case, flushes in (("turn x1", 2), ("tool x1", 4)):
        done = bench("--one", case)
        assert done.returncode == 0, done.stderr
        assert round(json.loads(done.stdout)["flushes"]) == flushes, case


def test_an_unknown_case_is_refused_with_the_list() -> None:
    done = bench("turn x3")
    assert done.returncode == 2
    assert "there is no case 'turn x3'" in done.stderr and "floor turn x200" in done.stderr
