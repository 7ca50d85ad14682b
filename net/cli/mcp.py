"""`callboard mcp STATE --agent FILE:NAME`: agents as tools of an MCP server on standard input and output."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from ...actors.agent import Agent
from ...actors.system import System
from ..mcp.agents import agents_server
from ..mcp.library import library
from ..mcp.stdio import serve_descriptors, standard_streams
from .loading import Files, agent_in
from .output import Output
from .problems import OK, Refused

GRACE_S = 1
"""Seconds for running turns once the client has gone: clients wait two, and then they kill. What is open goes on next time."""


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Open the system and serve until the client closes our input."""
    library()
    with standard_streams() as (incoming, outgoing):  # from here on: the file, too, may print
        agents, deps, models = load(arguments.agent)
        async with System.open(arguments.state, agents=agents, deps=deps, models=models, grace=GRACE_S) as system:
            output.notice(f"serving {', '.join(sorted(agent.name for agent in agents))} of {arguments.state} over MCP")
            await serve_descriptors(agents_server(system, agents, prefix=arguments.prefix), incoming, outgoing)
    return OK


def load(places: Sequence[str]) -> tuple[list[Agent[Any, Any]], Any, dict[str, Any]]:
    """The agents at these places, and the `deps` and the `models` of their files.

    Raises:
        Refused: one cannot be loaded, or two files have `deps`, and a system has one.
    """
    files, agents, deps, models = Files(), list[Agent[Any, Any]](), dict[int, Any](), dict[str, Any]()
    for where in places:
        names, file, name = files.look(where)
        agents.append(agent_in(names, file, name))
        if names.get("deps") is not None:
            deps[id(names["deps"])] = names["deps"]
        models |= names.get("models") or {}
    if len(deps) > 1:
        raise Refused("two of these files have `deps`, and a system has one: import it from one of them in the other")
    return agents, next(iter(deps.values()), None), models
