"""Opening a store by its address: a folder, or `:memory:`.

The address is the only thing a program or a command line has to know; which engine answers is decided here, and what cannot
be opened is refused in one sentence that says what to do.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import trio

from .engines.lmdb import LmdbStore
from .engines.memory import MemoryStore
from .errors import UsageError
from .store import Store


@asynccontextmanager
async def open_store(where: str | os.PathLike[str], *, readonly: bool = False, **options: Any) -> AsyncGenerator[Store]:
    """The store at `where`, closed at the end of the block; `options` are the engine's own."""
    store = await open_engine(where, readonly=readonly, **options)
    try:
        yield store
    finally:
        with trio.CancelScope(shield=True):
            await store.aclose()


async def open_engine(where: str | os.PathLike[str], *, readonly: bool = False, **options: Any) -> Store:
    """The store at `where`, for those who close it themselves.

    Raises:
        UsageError: the address is of a kind that is not supported.
        StoreInUse: another process owns the folder.
        StoreFormat: the folder holds something else.
        StoreError: the folder cannot be used, or there is nothing to read in it.
    """
    address = os.fspath(where)
    if address == ":memory:":
        if readonly:
            raise UsageError("a store in memory starts empty, so there is nothing to read: open it for writing")
        return MemoryStore(**options)
    if "://" in address:
        raise UsageError(f"{address.split('://')[0]} databases are not supported yet: give a folder or ':memory:'")
    return await LmdbStore.open(address, readonly=readonly, **options)
