"""`callboard why STATE-or-URL ID`: what an agent waits for, and what will make it go on.

A folder is read as it is, also while a process runs its agents: what is open, asked, timed or parked is in the log. Only what
has not reached the disk is missing; a service knows that too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from ...actors.folding import fold_log
from ...actors.information import info_in_log, waits_in_log
from ...actors.state import AgentState
from ...actors.timers import to_timer
from ...actors.values import AgentInfo, Status, Timer, Wait
from ...mailbox.items import Item
from ...storage.engines.lmdb_lock import owner_of
from ...storage.opening import open_store
from .lines import ago, shorten
from .log import check_agent
from .output import Output
from .problems import OK
from .where import connected, is_url

_VERBS = {
    "approval": "a person's word",
    "model": "the model",
    "model-slot": "a free model slot",
    "tool": "a tool",
    "child": "a child",
    "ask": "another agent's answer",
    "retry": "its next attempt",
    "commit": "the disk",
    "timer": "its time",
    "definition": "a definition, of",
    "wait_idle": "another agent to be idle",
    "dispose": "another agent's end",
    "delete": "another agent's end",
}


class Why(Struct, frozen=True):
    """All that is known; `--json` prints it. `owner`: the process that runs the folder's agents, if one does."""

    info: AgentInfo
    pending: Sequence[Item]
    timers: Sequence[Timer] = ()
    owner: int | None = None


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Say what it waits for, one thing a line."""
    served = is_url(arguments.where)
    why = await (_of_service(arguments) if served else _of_folder(arguments))
    output.value(why)
    for line in explained(why, int(time.time() * 1000), served=served):
        output.text(line)
    return OK


async def _of_service(arguments: argparse.Namespace) -> Why:
    async with connected(arguments.where, arguments.token) as client:
        ref = await client.open(arguments.agent)
        return Why(await ref.info(), await ref.pending())


async def _of_folder(arguments: argparse.Namespace) -> Why:
    async with open_store(arguments.where, readonly=True) as store:
        await check_agent(store, arguments.agent)
        return of_log(arguments.agent, await fold_log(store, arguments.agent), owner=owner_of(arguments.where))


def of_log(id: str, state: AgentState, *, owner: int | None) -> Why:
    """What the log alone says."""
    status: Status = "running" if state.position.open else "idle"
    info = info_in_log(id, state, status=status, waits=tuple(waits_in_log(state)))
    timers = sorted((to_timer(timer) for timer in state.timers.all()), key=lambda timer: timer.due)
    return Why(info, state.inbox.pending(), timers, owner)


def explained(why: Why, now: int, *, served: bool = False) -> Iterator[str]:
    """For people: where it stands, what it waits for, what is queued, and who runs it."""
    info = why.info
    at = (
        f"turn {info.turn} is open, step {info.step}"
        if info.status == "running"
        else f"no turn is open, the last was {info.turn}"
    )
    yield f"{info.id} ({info.definition}): {at}"
    for wait in info.waits:
        yield f"  waits for {_VERBS[wait.kind]}: {shorten(wait.what)}{_times(wait, now)}"
    for item in why.pending:
        yield f"  {'parked' if item.parked else 'pending'} ({item.lane}): {shorten(item.message.text)}"
    if any(item.parked for item in why.pending):
        yield "  what is parked stood behind a turn that failed or was cancelled; the next message to the agent runs it"
    shown = {wait.until for wait in info.waits}
    for timer in why.timers:
        if timer.due not in shown:
            yield f"  reminder {_in(timer.due, now)}: {shorten(timer.message.text)}"
    if not served:
        yield _who_runs(why)


def _times(wait: Wait, now: int) -> str:
    since = "" if wait.since is None else f", for {ago(now - _ms(wait.since))}"
    return since + ("" if wait.until is None else f", {_in(wait.until, now)}")


def _in(moment: datetime, now: int) -> str:
    left = _ms(moment) - now
    return f"due in {ago(left)}" if left > 0 else f"due for {ago(-left)}"


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _who_runs(why: Why) -> str:
    if why.owner is not None:
        return f"process {why.owner} runs it" if why.owner > 0 else "another process runs it"
    parked = bool(why.pending) and all(item.parked for item in why.pending)
    if why.info.status == "running" or why.timers or (why.pending and not parked):
        return "no process runs it: it goes on when a program opens the store again"
    return "no process runs it, and it has nothing to do until somebody writes to it"
