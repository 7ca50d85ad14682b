"""`callboard fork STATE ID [--at N | --turn N] [--id NEW]`: a new agent that shares another's records, in a store nobody runs."""

from __future__ import annotations

import argparse
import time

from ...actors.forking import fork_in_store
from ...storage.opening import open_store
from .log import check_agent
from .output import Output
from .problems import OK


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Fork, and say under which id."""
    async with open_store(arguments.state, readonly=True) as store:
        await check_agent(store, arguments.agent)  # a folder that is not there is not made
    async with open_store(arguments.state) as store:
        now = int(time.time() * 1000)
        new = await fork_in_store(store, arguments.agent, at=arguments.at, turn=arguments.turn, id=arguments.id, now_ms=now)
        head = await store.head(new)
    assert head is not None, "it was just made"
    output.text(f"{new} shares the records of {arguments.agent} up to {head.last - 1}; its first message takes it up")
    output.value({"id": new, "source": arguments.agent, "at": head.last - 1})
    return OK
