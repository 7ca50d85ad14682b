"""`callboard ls STATE`: the agents of a store, from its index; no log is opened, and the store may be in use."""

from __future__ import annotations

import argparse
import time
from collections.abc import AsyncIterator

from ...storage.opening import open_store
from ...storage.store import Head, Store
from .lines import ago
from .output import Output
from .problems import OK

PAGE = 200


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """List them, in order of their ids."""
    async with open_store(arguments.state, readonly=True) as store:
        seen = 0
        async for head in heads(store, arguments.prefix):
            if not seen:
                output.text(f"{'STATUS':<8} {'TURN':>5} {'RECORDS':>8} {'TOKENS':>10} {'AGO':>5}  AGENT")
            seen += 1
            output.text(_line(head))
            output.value(_value(head))
    if not seen:
        output.text(
            f"no agents in {arguments.state}" + (f" with ids that begin {arguments.prefix!r}" if arguments.prefix else "")
        )
    return OK


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


def _line(head: Head) -> str:
    summary = head.summary
    age = ago(int(time.time() * 1000) - head.time)
    return (
        f"{status_of(head):<8} {summary.turn:>5} {head.last + 1:>8,} {summary.usage.total:>10,} {age:>5}  "
        f"{head.agent} ({summary.name})"
    )


def _value(head: Head) -> dict[str, object]:
    summary = head.summary
    return {
        "id": head.agent,
        "name": summary.name,
        "status": status_of(head),
        "turn": summary.turn,
        "head": head.last,
        "updated": head.time,
        "parent": summary.parent,
        "labels": summary.labels or {},
        "usage": summary.usage,
        "waits": summary.waits,
    }
