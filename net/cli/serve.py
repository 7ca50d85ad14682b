"""`callboard serve STATE FILE`: the agents of a Python file behind a port, until it is interrupted."""

from __future__ import annotations

import argparse
from functools import partial

import trio

from ...actors.system import System
from ..service import Server, serve
from .loading import load_agents
from .output import Output
from .problems import OK


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Open the system, serve, and say where."""
    agents, deps = load_agents(arguments.file)
    async with System.open(arguments.state, agents=agents, deps=deps) as system, trio.open_nursery() as nursery:
        start = partial(serve, system, host=arguments.host, port=arguments.port, tokens=arguments.tokens)
        server: Server = await nursery.start(start)
        names = ", ".join(sorted(system.definitions))
        output.text(f"serving {names} of {arguments.state} at {server.url}")
        for id, error in system.report.failed.items():
            output.text(f"{id} could not be taken up: {error}")
        output.value({"url": server.url, "port": server.port, "agents": sorted(system.definitions)})
        output.flush()
        await trio.sleep_forever()
    return OK
