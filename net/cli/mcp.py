"""`callboard mcp STATE --agent FILE:NAME`: agents as tools of an MCP server on standard input and output."""

from __future__ import annotations

import argparse

from ...actors.system import System
from ..mcp.agents import agents_server
from ..mcp.library import library
from ..mcp.stdio import serve_descriptors, standard_streams
from .loading import load_agent
from .output import Output
from .problems import OK

GRACE_S = 1
"""Seconds for running turns once the client has gone: clients wait two, and then they kill. What is open goes on next time."""


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Open the system and serve until the client closes our input."""
    library()
    with standard_streams() as (incoming, outgoing):  # from here on: the file, too, may print
        agents = [load_agent(where) for where in arguments.agent]
        async with System.open(arguments.state, agents=agents, grace=GRACE_S) as system:
            output.notice(f"serving {', '.join(sorted(agent.name for agent in agents))} of {arguments.state} over MCP")
            await serve_descriptors(agents_server(system, agents, prefix=arguments.prefix), incoming, outgoing)
    return OK
