"""The two engines as the conformance suite wants them."""

from __future__ import annotations

import shutil
from pathlib import Path

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

    def __init__(self, folder: Path, lazy_commits: int = 64) -> None:
        self.folder, self.lazy_commits, self.crashes = folder, lazy_commits, 0

    async def open(self) -> Store:
        return await LmdbStore.open(self.folder, sync=False, lazy_commits=self.lazy_commits)

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
