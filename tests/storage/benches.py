"""The two engines as the conformance suite wants them."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from callboard.storage.conformance_kit import Bench
from callboard.storage.engines import lmdb_plan
from callboard.storage.engines.lmdb import LmdbStore
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.store import Store


class MemoryBench:
    """Memory: a crash, and a second opening, are copies."""

    async def open(self) -> Store:
        return MemoryStore()

    async def reopen(self, store: Store) -> Store:
        assert isinstance(store, MemoryStore)
        copy = store.copy()
        await store.aclose()
        return copy

    async def crash(self, store: Store) -> Store:
        return await self.reopen(store)


class LmdbBench:
    """A folder; a crash is a copy of the file as it lies there, with nothing written at closing."""

    def __init__(self, folder: Path, *, lazy_commits: int = 64, lazy_rows: int = 256) -> None:
        self.folder, self.lazy_commits, self.lazy_rows, self.crashes = folder, lazy_commits, lazy_rows, 0

    async def open(self) -> Store:
        return await LmdbStore.open(self.folder, sync=False, lazy_commits=self.lazy_commits, lazy_rows=self.lazy_rows)

    async def reopen(self, store: Store) -> Store:
        await store.aclose()
        return await self.open()

    async def crash(self, store: Store) -> Store:
        self.crashes += 1
        image = self.folder.with_name(f"{self.folder.name}-{self.crashes}")
        image.mkdir()
        shutil.copy(self.folder / "data.mdb", image)
        await store.aclose()
        self.folder = image
        return await self.open()


ENGINES = ("memory", "lmdb", "lmdb-eager", "lmdb-drops")


@contextmanager
def engine_bench(engine: str, folder: Path) -> Generator[Bench]:
    """The engine's bench for the length of a block; `eager` writes derived tables at every commit, which takes other paths than
    never, and `drops` a row or two of them, so that they are never whole."""
    with pytest.MonkeyPatch.context() as patch:
        if engine == "lmdb-drops":
            patch.setattr(lmdb_plan, "CATCH_UP", 0)
        if engine == "memory":
            yield MemoryBench()
        elif engine == "lmdb":
            yield LmdbBench(folder)
        else:
            yield LmdbBench(folder, lazy_commits=0, lazy_rows=1 if engine == "lmdb-drops" else 256)
