"""The benchmarks start, measure, and say what they mean; how fast things are is not a test's business."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from callboard import System
from callboard.storage.engines.memory import MemoryStore

ROOT = Path(__file__).resolve().parent.parent


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


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


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    """A module of bench/, to be run with small numbers."""
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    name: str = request.param
    return importlib.import_module(f"bench.{name}")


@pytest.mark.parametrize("case", ["cancel_tree"], indirect=True)
async def test_a_cancelled_tree_closes_every_log_from_below_and_leaves_nothing(case: Any, tmp_path: Path) -> None:
    assert case.size(case.FAN) == 100
    await case.measure((2, 2, 3), 1, tmp_path)  # it looks at every log, and at tasks, threads and programs


@pytest.mark.parametrize("case", ["idle"], indirect=True)
async def test_agents_that_rest_have_no_task_and_are_hardly_held(case: Any, tmp_path: Path) -> None:
    await case.measure(20, False, tmp_path)
    sample = await case.measure(20, True, tmp_path)
    assert sample.held_bytes < 5_000, "the books of a system are in it, shared by few"


@pytest.mark.parametrize("case", ["active"], indirect=True)
async def test_an_agent_in_the_middle_of_an_answer_has_one_task(case: Any, tmp_path: Path) -> None:
    sample = await case.measure(20, tmp_path)  # it counts the tasks
    assert 5_000 < sample.held_bytes < 50_000


@pytest.mark.parametrize("case", ["year"], indirect=True)
async def test_a_year_of_chat_fits_its_window_at_every_request_and_can_be_rebuilt(case: Any) -> None:
    store = MemoryStore()
    sample = await case.live(1_000, store)  # it looks at every request, and rebuilds them all
    assert case.WINDOW // 4 < sample.largest <= case.WINDOW
    cuts = [r.seq async for r in store.read("year", types={"surface/replace"})]
    assert 20 < len(cuts) < 200
    late = sum(seq > cuts[-1] // 2 for seq in cuts)
    assert 0.4 < late / len(cuts) < 0.6, "it compacts as often in the second half as in the first"


@pytest.mark.parametrize("case", ["listing"], indirect=True)
async def test_a_page_and_an_opening_read_as_much_among_many_as_among_few(case: Any, tmp_path: Path) -> None:
    read: dict[str, set[int]] = {"page": set(), "opened": set()}

    async def counted(look: str, system: System, id: str) -> None:
        before = system.store.statistics()["frames_read"]
        await getattr(case, look)(system, id)
        read[look].add(system.store.statistics()["frames_read"] - before)

    for agents in (300, 1_500):
        for look in read:
            await case.measure(agents, partial(counted, look), tmp_path / f"{look}-{agents}")
    assert read == {"page": {0}, "opened": {1}}


@pytest.mark.parametrize("case", ["mail"], indirect=True)
async def test_every_letter_is_in_the_inbox_that_it_was_for(case: Any, tmp_path: Path) -> None:
    sample = await case.measure(3, 5, tmp_path)  # it counts the letters
    assert sample.file_bytes > 0


@pytest.mark.parametrize("case", ["restart"], indirect=True)
async def test_turns_that_a_kill_cut_are_all_taken_up_and_end_with_their_whole_answer(case: Any, tmp_path: Path) -> None:
    case.killed(tmp_path, 5)
    assert (await case.measure(tmp_path, 5)).p99_ms > 0  # it looks at every answer


@pytest.mark.parametrize("case", ["curves"], indirect=True)
async def test_the_curves_say_what_grew_and_what_it_cost(case: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(case, "PIECE", 3)
    growing = await case.growing(2, tmp_path / "growing")
    many = await case.many((1, 2, 3), 6, tmp_path / "many")
    assert [x for x, _ in growing.points] == [101, 200], "33 records a turn, and 2 at the beginning"
    assert [x for x, _ in many.points] == [1, 2, 3] and all(cost > 0 for _, cost in many.points)


@pytest.mark.parametrize("case", ["spawning"], indirect=True)
async def test_forks_and_new_agents_are_clocked_one_by_one(case: Any, tmp_path: Path) -> None:
    spawned = await case.measure_spawn(3, 2, tmp_path / "spawn")
    forked = await case.measure_fork(3, 3, tmp_path / "fork")
    assert spawned.p50_ms > 0 and forked.file_bytes < 10_000, "a fork copies nothing"


def test_a_run_is_compared_with_one_that_was_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    assert bench("spawn x200", "--repeat", "1", "--wait", "0", "--out", str(kept)).returncode == 0
    figures = json.loads(kept.read_text(encoding="utf-8"))
    figures["figures"][0]["samples"][0]["file_bytes"] = 1
    figures["figures"][0]["samples"] *= 2
    kept.write_text(json.dumps(figures), encoding="utf-8")
    command = ("spawn x200", "--repeat", "2", "--wait", "0", "--compare", str(kept))
    for fail, code in (((), 0), (("--fail",), 1)):
        done = bench(*command, *fail)
        assert done.returncode == code, done.stderr
        assert "spawn x200: file_bytes 1.00 ->" in done.stdout and "worse" in done.stdout
