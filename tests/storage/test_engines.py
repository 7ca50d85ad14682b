"""Both engines against the conformance suite, and against a model of plain dicts."""

from __future__ import annotations

from pathlib import Path

import pytest
from benches import LmdbBench, MemoryBench

from callboard.storage import conformance
from callboard.storage.conformance import Check
from callboard.storage.conformance_kit import Bench


def bench(engine: str, folder: Path) -> Bench:
    """The engine's bench; `lazy` writes derived tables at every commit, which takes other paths than never."""
    if engine == "memory":
        return MemoryBench()
    return LmdbBench(folder / "store", lazy_commits=0 if engine == "lmdb-eager" else 64)


@pytest.mark.parametrize("engine", ["memory", "lmdb", "lmdb-eager"])
@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
async def test_c232_every_engine_passes_the_suite(check: Check, engine: str, tmp_path: Path) -> None:
    await check(bench(engine, tmp_path))
