"""Logs as they leave and enter the house: JSON lines, and copies of whole folders.

An export holds every record, also those of types and with fields that this version does not know; an import writes the same
records again and computes what the index needs, since that is not in the file. Blobs are exported by reference: their digests
are in the records, their bytes stay in the store (a `backup` has both).
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from .codec import columns
from .engines.checks import check_agent
from .engines.lmdb import LmdbStore
from .errors import StoreError, StoreFormat, UsageError
from .events import CommandRun, InboxPut, LogCreated, LogForked, TimerSet
from .index import IndexFold
from .records import Record, from_json, to_json
from .store import Batch, Delete, Store

BLOCK = 1 << 16
"""Bytes to one write of an export."""
TOGETHER = 1000
"""Records to one commit of an import."""


class Sink(Protocol):
    """A binary file to write to, of the standard library or of trio."""

    def write(self, data: bytes, /) -> int | Awaitable[int]: ...


class Origin(Protocol):
    """A binary file to read lines from, of the standard library or of trio."""

    def readline(self) -> bytes | Awaitable[bytes]: ...


async def export_log(store: Store, agent: str, file: Sink) -> int:
    """Write the agent's log as JSON lines, a shared prefix too; answers how many records it has.

    Raises:
        AgentNotFound: there is no such agent.
    """
    count, waiting = 0, bytearray()
    async for record in store.read(agent):
        waiting += to_json(record) + b"\n"
        count += 1
        if len(waiting) >= BLOCK:
            await _write(file, bytes(waiting))
            waiting.clear()
    await _write(file, bytes(waiting))
    return count


async def _write(file: Sink, data: bytes) -> None:
    written = file.write(data)
    if inspect.isawaitable(written):
        await written


async def import_log(store: Store, file: Origin, *, id: str | None = None) -> str:
    """Write the log in these JSON lines as a new agent; answers its id, which is the one it had unless `id` gives another.

    A file that turns out to be broken leaves nothing behind.

    Raises:
        UsageError: there is an agent with this id already; give another one.
        StoreFormat: a line is not a record, or records are missing.
    """
    lines = _Lines(file)
    records = await lines.some()
    agent = id or _name_in(records) or _no_name()
    check_agent(agent)
    if await store.head(agent) is not None:
        raise UsageError(
            f"there is an agent {agent!r} in {store.name} already: delete it, or import under another id", agent=agent
        )
    epoch = await store.own(agent)
    index, follows = IndexFold(), -1
    try:
        while records:
            await _commit(store, agent, epoch, follows, records, index)
            follows = records[-1].seq
            records = await lines.some()
    except BaseException:
        if follows >= 0:
            with trio.CancelScope(shield=True):
                await store.commit([[Delete(agent, epoch)]])
        raise
    return agent


async def _commit(store: Store, agent: str, epoch: int, follows: int, records: list[Record], index: IndexFold) -> None:
    ids: dict[str, int] = {}
    for record in records:
        index.apply(record)
        event = record.event
        if isinstance(event, LogForked):
            ids.clear()  # a fork inherits no ids
        elif isinstance(event, InboxPut):
            ids[event.message.id] = record.seq
        elif isinstance(event, CommandRun | TimerSet):
            ids.setdefault(event.id, record.seq)
    for error in await store.commit([[Batch(agent, epoch, follows, columns(records), index.summary(), ids)]]):
        if error is not None:
            raise error


class _Lines:
    """Reads records, and notes where it is for the error."""

    def __init__(self, file: Origin) -> None:
        self._file, self._line, self._next = file, 0, 0

    async def some(self) -> list[Record]:
        """The next records, so many as go into one commit; none at the end."""
        records: list[Record] = []
        while len(records) < TOGETHER:
            line = await self._readline()
            if not line:
                break
            if line.strip():
                records.append(self._record(line))
        return records

    async def _readline(self) -> bytes:
        self._line += 1
        line = self._file.readline()
        return await line if inspect.isawaitable(line) else line

    def _record(self, line: bytes) -> Record:
        try:
            record = from_json(line)
        except msgspec.DecodeError as e:
            raise StoreFormat(f"line {self._line} is not a record of a log: {e}") from e
        if record.seq != self._next:
            raise StoreFormat(f"line {self._line} has seq {record.seq}, but {self._next} is the next: records are missing")
        self._next += 1
        return record


def _name_in(records: list[Record]) -> str | None:
    """The id that the log has given itself last; a fork's own comes after that of its source."""
    names = [r.event.agent for r in records if isinstance(r.event, LogCreated | LogForked)]
    return names[-1] if names else None


def _no_name() -> str:
    raise StoreFormat("the file holds no log: it has no record that names an agent")


async def backup(store: Store, to: str | os.PathLike[str]) -> None:
    """Copy the whole store into the new folder `to`: compacted, whole, while it is written to.

    Raises:
        UsageError: the store is in memory, so there is nothing to copy.
        StoreError: there is a store in `to` already, or it cannot be written.
    """
    if not isinstance(store, LmdbStore):
        raise UsageError(f"{store.name} is not in a folder and cannot be copied; export its logs one by one")
    target = Path(to)
    await trio.to_thread.run_sync(_prepare, target)
    await store.backup(target)


def _prepare(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StoreError(f"{target} exists and is not an empty folder; give another name for the backup")
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise StoreError(f"the folder {target} cannot be created: {e.strerror}") from e


__all__ = ["backup", "export_log", "import_log"]
