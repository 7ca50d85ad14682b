"""`callboard tail STATE-or-URL ID`: an agent's records as they come, until it is interrupted. A folder may be in use."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator

import trio

from ...storage.errors import AgentDeleted
from ...storage.opening import open_store
from ...storage.records import Record, to_json
from ...storage.store import Store
from .lines import line_of
from .log import CHUNK, check_agent, check_types
from .output import Output
from .problems import OK
from .where import connected, is_url

LOOK_S = 0.25
"""How often a folder is looked at: another process writes there, and does not tell."""


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Print what there is and what comes; people see no chunks unless they ask for them."""
    types = check_types(arguments.types)
    shown = arguments.chunks or output.json or CHUNK in (types or ())
    if is_url(arguments.where):
        async with connected(arguments.where, arguments.token, patience=None) as client:
            ref = await client.open(arguments.agent)
            await _show(ref.follow(arguments.after, types), output, chunks=shown)
    else:
        async with open_store(arguments.where, readonly=True) as store:
            await check_agent(store, arguments.agent)
            await _show(_follow(store, arguments.agent, arguments.after, types), output, chunks=shown)
    return OK


async def _show(records: AsyncIterator[Record], output: Output, *, chunks: bool) -> None:
    async for record in records:
        if output.json:
            output.raw(to_json(record))
            output.flush()
        elif chunks or record.type != CHUNK:
            output.text(line_of(record))


async def _follow(store: Store, agent: str, after: int, types: list[str] | None) -> AsyncIterator[Record]:
    while True:
        head = await store.head(agent)
        if head is None:
            raise AgentDeleted(f"the agent {agent!r} was deleted", agent=agent)
        if head.last > after:
            async for record in store.read(agent, after, head.last, types):
                yield record
            after = head.last
        await trio.sleep(LOOK_S)
