"""Listings: pages of the store's index as one plain iterator.

It is no generator: nothing is open between two steps, so a caller may break off whenever it likes and leave nothing behind.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

from ..storage.store import Flag, Head, Store

T = TypeVar("T")


class Listing(Generic[T]):
    """What `look` makes of every agent with this prefix and these labels, in order of their ids; with a `flag`, of those that the
    index has under it, so that the others cost nothing."""

    def __init__(
        self,
        store: Store,
        look: Callable[[Head], Awaitable[Sequence[T]]],
        *,
        prefix: str = "",
        labels: Mapping[str, str] | None = None,
        flag: Flag | None = None,
        after: str | None = None,
    ) -> None:
        self._store, self._look, self._prefix, self._labels, self._after = store, look, prefix, labels, after
        self._flag: Flag | None = flag
        self._heads: deque[Head] = deque()
        self._found: deque[T] = deque()
        self._over = False

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    async def __anext__(self) -> T:
        while not self._found:
            if not self._heads:
                await self._turn_page()
            self._found.extend(await self._look(self._heads.popleft()))
        return self._found.popleft()

    async def _turn_page(self) -> None:
        page = [] if self._over else await self._store.agents(self._prefix, self._labels, self._flag, self._after)
        if not page:
            self._over = True
            raise StopAsyncIteration
        self._heads.extend(page)
        self._after = page[-1].agent
