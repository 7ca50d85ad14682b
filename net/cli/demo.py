"""`callboard demo [FOLDER]`: a team of local agents reads a folder and writes a report. Kill it at any time and run it again."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from pathlib import Path

import trio
from rich.console import Console

from ...storage.opening import open_store
from ...storage.verify import Report, verify
from ..demo.discovery import Listing, discover, reasons
from ..demo.performance import Done, Plan, lead_of, open_system, perform, remember
from ..demo.progress import Board
from ..demo.screen import Lines, LiveTree, Screen
from ..demo.tools import may_replace
from .output import Output
from .problems import FAILED, OK, Refused

WATCHABLE_S = 0.15
"""How long a model's answer takes where a person watches."""


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Perform it, check it, say where to look."""
    plan = _plan(arguments, output)
    listing = await trio.to_thread.run_sync(_look, plan)
    output.text(_opening(plan, listing))
    board, done = await _perform(plan, len(listing.files), output)
    async with open_store(str(plan.state), readonly=True) as store:
        report = await verify(store, progress=lambda agent, records: output.progress(f"checking {agent}: {records:,} records"))
    output.progress("")
    _tell(plan, listing, board, done, report, output)
    return OK if report.ok else FAILED


def _plan(arguments: argparse.Namespace, output: Output) -> Plan:
    pace = arguments.pace if arguments.pace is not None else (WATCHABLE_S if output.terminal else 0.0)
    return Plan(
        folder=_folder(arguments.folder),
        state=Path(os.path.abspath(arguments.state)),
        report=Path(os.path.abspath(arguments.report)),
        limit=arguments.limit,
        pace=pace,
    )


def _folder(name: str) -> Path:
    path = Path(os.path.abspath(name))
    if not path.exists():
        raise Refused(f"there is no folder {name}; give one that exists, or none for the current one")
    if not path.is_dir():
        raise Refused(f"{name} is no folder; give the folder it is in")
    return path


def _look(plan: Plan) -> Listing:
    """What is in the folder, before anything is started or written.

    Raises:
        Refused: there is nothing to read, or no place for the report.
    """
    try:
        listing = discover(plan.folder, leave_out=(plan.state, plan.report), limit=plan.limit)
    except OSError as e:
        raise Refused(f"the folder {plan.folder} cannot be read: {e.strerror}") from e
    if not listing.files:
        left = ", ".join(f"{n} {why}" for why, n in reasons(listing.skipped))
        raise Refused(f"there is no text file to read in {plan.folder}{f' (left out: {left})' if left else ''}")
    if plan.report.is_dir() or not plan.report.parent.is_dir():
        raise Refused(f"{plan.report} is no place for a file; name another with --report")
    if not may_replace(plan.report):
        raise Refused(f"{plan.report} was not written by the demo; move it away, or name another file with --report")
    return listing


async def _perform(plan: Plan, files: int, output: Output) -> tuple[Board, Done]:
    async with open_store(str(plan.state)) as store:
        agent, over = await lead_of(store, plan.labels)
        board = Board(agent, files=files)
        await remember(store, board)
    if board.finished and not over:
        output.text(f"Going on: {board.finished} of {len(list(board.readers))} readers were done before.")
    screen = _screen(board, output, over=over)
    lead, system = open_system(plan, screen)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(screen.run)
        async with system as opened:
            done = await perform(opened, plan, lead, agent, over=over)
        nursery.cancel_scope.cancel()
    return board, done


def _screen(board: Board, output: Output, *, over: bool) -> Screen:
    if output.terminal and not over:
        return LiveTree(board, Console(file=output.stream))
    return Lines(board, output.text)


def _opening(plan: Plan, listing: Listing) -> str:
    left = ", ".join(f"{n} {why}" for why, n in reasons(listing.skipped))
    return f"{len(listing.files)} text files in {plan.folder}{f'; left out: {left}' if left else ''}"


_STATUS = {
    "written": "{report} is written ({bytes:,} bytes).",
    "done before": "It is done already: {report} is as it was written ({bytes:,} bytes).",
    "written again": "{report} was missing; it is written again from the log ({bytes:,} bytes).",
    "done before, changed since": "It is done already; {report} has been changed since, and is left as it is.",
}


def _tell(plan: Plan, listing: Listing, board: Board, done: Done, report: Report, output: Output) -> None:
    output.text(_STATUS[done.status].format(report=_short(plan.report), bytes=done.bytes))
    output.text(
        f"{report.agents:,} agents, {report.records:,} records; {report.requests:,} requests rebuilt from the log: "
        f"{'all as they were sent.' if report.ok else f'{len(report.problems)} problems, see `callboard verify`.'}"
    )
    state = shlex.quote(_short(plan.state))
    reader = next((row.agent for row in board.readers), None)
    commands = [
        f"ls {state}",
        f"log {state} {done.lead}",
        *([f"log {state} {reader}"] if reader else []),
        f"verify {state}",
        f"serve {state}   (a page to look at)",
    ]
    program = invoked_as()
    output.text("\n" + "\n".join(f"  {program} {command}" for command in commands))
    output.text(f"\nTo read the folder afresh, remove {state} (or choose another --state).")
    output.value(
        {
            "status": done.status,
            "report": str(plan.report),
            "bytes": done.bytes,
            "sha256": done.sha256,
            "files": len(listing.files),
            "left_out": len(listing.skipped),
            "state": str(plan.state),
            "lead": done.lead,
            "agents": report.agents,
            "requests": report.requests,
            "verified": report.ok,
        }
    )


def invoked_as() -> str:
    """What to type for this program: `callboard` where a shell finds it, otherwise its path, such as `.venv/bin/callboard`."""
    return "callboard" if shutil.which("callboard") else shlex.quote(sys.argv[0])


def _short(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative
