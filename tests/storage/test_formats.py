"""C146: logs of every released format open, verify, and leave as they came."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from callboard.storage import export_log, import_log, open_store, verify

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("format-*/*.jsonl"))


def read(path: Path) -> bytes:
    return path.read_bytes()


def test_there_are_fixtures() -> None:
    assert len(FIXTURES) >= 3


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
@pytest.mark.parametrize("memory", [True, False], ids=["memory", "lmdb"])
async def test_c146_a_log_of_a_released_format_opens_and_verifies(fixture: Path, memory: bool, tmp_path: Path) -> None:
    kept = read(fixture)
    async with open_store(":memory:" if memory else tmp_path / "state") as store:
        agent = await import_log(store, io.BytesIO(kept))
        report = await verify(store)
        assert report.ok, "\n".join(map(str, report.problems))
        assert report.requests > 0
        out = io.BytesIO()
        await export_log(store, agent, out)
    assert out.getvalue() == kept
