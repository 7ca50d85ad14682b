"""`callboard ls STATE-or-URL`: the agents of a store, from its index; no log is opened, and the store may be in use."""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator, Mapping

from msgspec import Struct

from ...actors.values import AgentSummary
from ...storage.messages import Usage
from ...storage.opening import open_store
from ...storage.store import Head, Store
from .lines import ago
from .output import Output
from .problems import OK
from .where import connected, is_url

PAGE = 200


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """List them, in order of their ids."""
    where, prefix, sheet = arguments.where, arguments.prefix, Sheet(output)
    if is_url(where):
        async with connected(where, arguments.token) as client:
            async for agent in client.agents(prefix):
                sheet.add(_of_service(agent))
    else:
        async with open_store(where, readonly=True) as store:
            async for head in heads(store, prefix):
                sheet.add(_of_folder(head))
    if not sheet.rows:
        output.text(f"no agents in {where}" + (f" with ids that begin {prefix!r}" if prefix else ""))
    return OK


class Row(Struct, frozen=True):
    """One agent; `--json` prints it."""

    id: str
    name: str
    status: str
    turn: int
    head: int
    updated: int | None
    parent: str | None
    labels: Mapping[str, str]
    usage: Usage
    waits: tuple[str, ...]


class Sheet:
    """Prints the agents as they come, below a line of headings."""

    def __init__(self, output: Output) -> None:
        self.rows = 0
        self._output = output

    def add(self, row: Row) -> None:
        """One more."""
        if not self.rows:
            self._output.text(f"{'STATUS':<8} {'TURN':>5} {'RECORDS':>8} {'TOKENS':>10} {'AGO':>5}  AGENT")
        self.rows += 1
        self._output.text(_line(row))
        self._output.value(row)


async def heads(store: Store, prefix: str = "") -> AsyncIterator[Head]:
    """All agents, page by page."""
    after: str | None = None
    while page := await store.agents(prefix=prefix, after=after, limit=PAGE):
        for head in page:
            yield head
        after = page[-1].agent


def status_of(head: Head) -> str:
    """`running`: a turn is open, also one that waits for a restart; `waiting`: for something to happen, also for a child in the
    background; `due`; `idle`."""
    if head.summary.open:
        return "waiting" if head.summary.waits else "running"
    if "child" in head.summary.waits:
        return "waiting"
    return "due" if head.summary.attention else "idle"


def _line(row: Row) -> str:
    age = "" if row.updated is None else ago(int(time.time() * 1000) - row.updated)
    return f"{row.status:<8} {row.turn:>5} {row.head + 1:>8,} {row.usage.total:>10,} {age:>5}  {row.id} ({row.name})"


def _of_folder(head: Head) -> Row:
    known = head.summary
    return Row(
        head.agent,
        known.name,
        status_of(head),
        known.turn,
        head.last,
        head.time,
        known.parent,
        known.labels or {},
        known.usage,
        tuple(known.waits),
    )


def _of_service(agent: AgentSummary) -> Row:
    waits = agent.status == "running" and bool(agent.waits)
    return Row(
        agent.id,
        agent.name,
        "waiting" if waits else agent.status,
        agent.turn,
        agent.head,
        None if agent.updated is None else int(agent.updated.timestamp() * 1000),
        agent.parent,
        agent.labels,
        agent.usage,
        agent.waits,
    )
