"""Where followers read: the committed part of one agent's log, open or not.

An agent whose definition this system does not have cannot run here, but what it did is in its log, and a log can be read by
anybody. So a follower of such an agent gets what is there, and waits for the definition as others wait for the next record.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import trio

from ..storage.errors import DefinitionMissing
from ..storage.records import Record
from .folding import fold_log

if TYPE_CHECKING:
    from .runtime import Runtime
    from .state import AgentState

PAGE = 256
"""Records that are read at once."""


class LogSource:
    """Where followers of one agent read."""

    def __init__(self, runtime: Runtime, id: str) -> None:
        self._runtime, self._id = runtime, id

    def last(self) -> int:
        """The last committed seq."""
        return self._runtime.registry.last(self._id)

    def epoch(self) -> int:
        """The owner epoch under which the log is open, -1 if it is not: another agent with this id has another."""
        return self._runtime.registry.epoch(self._id)

    async def read_page(self, after: int, types: Collection[str] | None) -> tuple[Sequence[Record], int]:
        """Up to a page of records, and how far was looked."""
        with suppress(DefinitionMissing):  # it can be read all the same
            await self._runtime.registry.actor(self._id)
        head = self.last()
        if head <= after:
            await trio.lowlevel.checkpoint()
            return (), after
        page: list[Record] = []
        async for record in self._runtime.store.read(self._id, after, head, types):
            page.append(record)
            if len(page) == PAGE:
                return page, record.seq
        return page, head

    async def wait_beyond(self, seq: int) -> None:
        """Until a record after `seq` is committed. While somebody waits, the writer hurries."""
        while True:
            try:
                actor = await self._runtime.registry.actor(self._id)
                break
            except DefinitionMissing:
                if self.last() > seq:
                    return
                await self._runtime.definitions.changed.park()
        log = actor.log
        log.followers += 1
        self._runtime.writer.followed(log)
        try:
            await log.wait_beyond(seq)
        finally:
            log.followers -= 1


async def state_of(runtime: Runtime, id: str) -> AgentState:
    """What the log of an agent says of it, also where its definition is missing.

    Raises:
        AgentNotFound, AgentDeleted: there is no such agent.
        StoreError: its log cannot be read.
    """
    try:
        return (await runtime.registry.actor(id)).state
    except DefinitionMissing:
        return await fold_log(runtime.store, id)
