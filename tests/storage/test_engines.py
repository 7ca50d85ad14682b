"""Both engines against the conformance suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from benches import ENGINES, engine_bench

from callboard.storage import conformance
from callboard.storage.conformance import Check


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
async def test_c232_every_engine_passes_the_suite(check: Check, engine: str, tmp_path: Path) -> None:
    with engine_bench(engine, tmp_path / "store") as bench:
        await check(bench)
