"""The short form of `kill_batch.py`: a few kills, in every run of the tests."""

from __future__ import annotations

from pathlib import Path

from kill_batch import torture


def test_a_batch_that_is_killed_gives_the_results_of_one_that_is_not(tmp_path: Path) -> None:
    assert torture(tmp_path, tasks=150, kills=3, seed=2) == []
