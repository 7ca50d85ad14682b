"""What the benchmarks make of their figures: what moved since another run, which aims hold, where we stand among peers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
MACHINE = {"processor": "quick", "cores": "2"}


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])


def module(name: str) -> Any:
    return importlib.import_module(f"bench.{name}")


def sample(per_s: float, **figures: Any) -> Any:
    return module("measure").Sample(per_s, **figures)


def figures(case: str, rates: Sequence[float], shares: Sequence[float] = (), **more: Any) -> Any:
    return module("compare").Figures(case, [sample(rate, **more) for rate in rates], list(shares))


def moved(before: Any, after: Any, machine: dict[str, str] = MACHINE) -> dict[str, str]:
    compare = module("compare")
    changes = compare.compare(compare.Run(1, MACHINE, [before]), compare.Run(2, machine, [after]))
    return {change.figure: change.verdict for change in changes}


def test_a_share_that_moved_beyond_the_spread_is_told_and_one_within_it_is_not() -> None:
    old = figures("turn", [100, 110, 90], [0.30, 0.33, 0.28])
    assert moved(old, figures("turn", [50, 60, 40], [0.20, 0.21, 0.19])) == {"share": "worse"}
    assert moved(old, figures("turn", [50, 60, 40], [0.45, 0.50, 0.47])) == {"share": "better"}
    assert moved(old, figures("turn", [50, 60, 40], [0.20, 0.29, 0.19])) == {"share": "same"}, "the spreads meet"
    assert moved(old, figures("turn", [50, 60, 40], [0.26, 0.27, 0.25])) == {"share": "same"}, "apart, but hardly"


def test_a_rate_counts_on_one_machine_alone_and_a_count_everywhere() -> None:
    old = figures("append", [100, 101], flushes=2.0)
    new = figures("append", [30, 31], flushes=4.0)
    assert moved(old, new) == {"per_s": "worse", "flushes": "worse"}
    assert moved(old, new, {**MACHINE, "processor": "slow"}) == {"flushes": "worse"}
    assert moved(old, figures("append", [100, 101], flushes=2.1)) == {"per_s": "same", "flushes": "same"}


def test_what_was_taken_once_or_beside_others_is_unsure() -> None:
    old = figures("append", [100, 101])
    assert moved(old, figures("append", [30])) == {"per_s": "unsure"}
    assert moved(old, figures("append", [30, 31], others=0.9)) == {"per_s": "unsure"}
    assert moved(old, figures("append", [30, 31], others=0.1)) == {"per_s": "worse"}


def test_cases_that_only_one_run_has_are_left_out_and_the_rest_is_said_in_words() -> None:
    compare = module("compare")
    assert moved(figures("old", [1, 1]), figures("new", [1, 1])) == {}
    change = compare.judged("turn", "share", [0.5, 0.5], [0.25, 0.25], 1.3, more=True)
    same = compare.judged("turn", "share", [0.5, 0.5], [0.5, 0.5], 1.3, more=True)
    said = compare.told([change, same]).splitlines()
    assert said == ["turn: share 0.50 -> 0.25, 0.50 times: worse", "1 of 2 figures did not move beyond the noise"]


def test_an_aim_is_judged_round_by_round_and_left_out_if_a_case_did_not_run() -> None:
    aims = module("aims")
    ratio = aims.Aim("ours", "per_s", at_least=0.5, over="floor")
    small = aims.Aim("ours", "file_bytes", at_most=10)
    rounds = {"ours": [sample(60, file_bytes=11.0), sample(10), sample(80)], "floor": [sample(100), sample(100), sample(100)]}
    rounds["ours"] = [sample(60, file_bytes=11.0), sample(10, file_bytes=12.0), sample(80, file_bytes=9.0)]
    found = list(aims.results(rounds, (ratio, small)))
    assert [(r.value, r.holds, r.sure) for r in found] == [(0.6, True, True), (11.0, False, True)]
    noisy = {name: [sample(s.per_s, others=0.9, file_bytes=11.0) for s in samples] for name, samples in rounds.items()}
    assert [r.sure for r in aims.results(noisy, (ratio, small))] == [False, True], "a count does not depend on others"
    assert "| ours | file_bytes: at most 10 | 11.00 | missed |" in aims.table(found)
    assert list(aims.results({"ours": rounds["ours"]}, (ratio,))) == []


def test_every_aim_is_about_a_case_that_there_is() -> None:
    cases = module("__main__").CASES
    for aim in module("aims").AIMS:
        assert aim.case in cases and (aim.over is None or aim.over in cases), aim
        assert (aim.at_least is None) != (aim.at_most is None), aim
        assert aim.figure in module("measure").Sample.__struct_fields__


def test_standings_are_our_rate_over_that_of_the_peer_that_comes_closest() -> None:
    standings = module("peers.standings")
    rounds = {
        "turn x200": [sample(4_000), sample(4_400)],
        "dbos sqlite turn x200": [sample(100), sample(100)],
        "langgraph sqlite turn x200": [sample(220), sample(200)],
        "langgraph memory turn x200": [sample(5_000), sample(5_000)],
        "pykka memory turn x200": [sample(9_000), sample(9_000)],
    }
    table = standings.table(rounds)
    assert "| dbos sqlite |  | 42 (40-44) |  |  |" in table and "tool x1" in table
    assert "openai-agents" not in table, "it did not run"
    durable, memory = standings.aims(rounds)
    assert durable.endswith("20.1 times langgraph sqlite: holds")
    assert memory.endswith("0.8 times langgraph memory: missed"), "message passing is no framework"


def test_a_curve_is_the_median_at_each_place() -> None:
    measure = module("measure")
    curves = [((1, 5), (10, 6)), ((1, 7), (10, 4)), ((1, 6), (10, 9))]
    assert measure.middle([sample(1, points=curve) for curve in curves]).points == ((1, 6), (10, 6))
    assert measure.middle([sample(1)]).points is None
