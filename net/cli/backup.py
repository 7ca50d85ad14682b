"""`callboard backup STATE TO`: a whole, compacted copy of a store, also while a process runs its agents."""

from __future__ import annotations

import argparse

from ...storage.exchange import backup
from ...storage.opening import open_store
from .ls import heads
from .output import Output
from .problems import OK


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Copy, and say what the copy holds."""
    async with open_store(arguments.state, readonly=True) as store:
        await backup(store, arguments.to)
    async with open_store(arguments.to, readonly=True) as copy:
        agents = records = 0
        async for head in heads(copy):
            agents, records = agents + 1, records + head.last + 1
    output.text(f"{arguments.to} holds {agents:,} agents with {records:,} records; `callboard verify {arguments.to}` checks them")
    output.value({"to": arguments.to, "agents": agents, "records": records})
    return OK
