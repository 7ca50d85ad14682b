"""The short form of `kill_store.py`: ten kills."""

from __future__ import annotations

from pathlib import Path

from kill_store import torture


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path: Path) -> None:
    known, wrong = torture(tmp_path / "store", rounds=10)
    assert wrong == []
    assert known.told >= 5
