"""`callboard verify STATE [ID]`: rebuild every request from the log before it, and check every invariant."""

from __future__ import annotations

import argparse

from ...storage.opening import open_store
from ...storage.verify import verify
from .log import check_agent
from .output import Output
from .problems import FAILED, OK


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Check all agents or one; problems are listed one a line."""
    async with open_store(arguments.state, readonly=True) as store:
        if arguments.agent is not None:
            await check_agent(store, arguments.agent)
        agents = None if arguments.agent is None else [arguments.agent]
        report = await verify(store, agents, progress=lambda agent, records: output.progress(f"{agent}: {records:,} records"))
    output.progress("")
    for problem in report.problems:
        output.text(f"{problem.agent} at {problem.seq}: {problem.what}")
    output.text(
        f"{'ok' if report.ok else f'{len(report.problems)} problems'}: {report.agents:,} agents, {report.records:,} records, "
        f"{report.turns:,} turns, {report.requests:,} requests rebuilt"
    )
    output.value(report)
    return OK if report.ok else FAILED
