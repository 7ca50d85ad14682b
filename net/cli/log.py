"""`callboard log STATE-or-URL ID`: what happened to an agent, one record a line. The store may be in use."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import AsyncIterator

from ...storage.errors import AgentNotFound
from ...storage.events import EVENTS, TurnEnd, TurnSuspend
from ...storage.opening import open_store
from ...storage.records import Record, to_json
from ...storage.store import Store
from .lines import line_of
from .output import Output
from .problems import OK, Refused
from .search import search
from .trace import HEAD, trace_lines, trace_value
from .where import connected, is_url

CHUNK = "assistant/chunk"
_TRACED = frozenset({"turn/end", "turn/suspend", "turn/resume"})
"""What a walk is read from, and what says that a turn which was suspended has gone on."""
_GUESSES = 2000
"""A wrong id is compared with at most so many right ones."""


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Print the records asked for. People see no chunks unless they ask for them; JSON is the whole log."""
    types = check_types(arguments.types)
    agent: str | None = arguments.agent
    if agent is None and arguments.search is None:
        raise Refused("of which agent? `callboard ls` lists them; without an ID there is only --search TEXT")
    shown = arguments.chunks or output.json or CHUNK in (types or ())
    if is_url(arguments.where):
        await _of_service(arguments, output, types, shown=shown)
        return OK
    async with open_store(arguments.where, readonly=True) as store:
        if agent is not None:
            await check_agent(store, agent)
        if agent is None or arguments.search is not None:
            await search(store, arguments, output, types)
            return OK
        wanted = _TRACED if arguments.trace else types
        await _print(store.read(agent, after=arguments.after, types=wanted), arguments, output, shown=shown)
    return OK


async def _of_service(arguments: argparse.Namespace, output: Output, types: list[str] | None, *, shown: bool) -> None:
    if arguments.search is not None:
        raise Refused("a service is not searched: give the store's folder, which may be in use")
    wanted = _TRACED if arguments.trace else types
    async with connected(arguments.where, arguments.token) as client:
        ref = await client.open(arguments.agent)
        await _print(ref.read(after=arguments.after, types=wanted), arguments, output, shown=shown)


async def _print(records: AsyncIterator[Record], arguments: argparse.Namespace, output: Output, *, shown: bool) -> None:
    if arguments.trace:
        await _trace(records, output)
        return
    async for record in records:
        if output.json:
            output.raw(to_json(record))
        elif shown or record.type != CHUNK:
            output.text(line_of(record))


async def _trace(records: AsyncIterator[Record], output: Output) -> None:
    """The walk of each turn that has ended, and of one that a close has suspended; of any other that is open it is written with
    its end."""
    output.text(HEAD)
    suspended: TurnSuspend | None = None
    async for record in records:
        if isinstance(record.event, TurnEnd):
            _walk(record.event, output)
        suspended = record.event if isinstance(record.event, TurnSuspend) else None
    if suspended is not None:
        _walk(suspended, output)


def _walk(end: TurnEnd | TurnSuspend, output: Output) -> None:
    output.value(trace_value(end))
    for line in trace_lines(end):
        output.text(line)


async def check_agent(store: Store, agent: str) -> None:
    """Make sure that the agent exists.

    Raises:
        AgentNotFound: there is none; the sentence names the closest one.
    """
    if await store.head(agent) is not None:
        return
    known = [head.agent for head in await store.agents(limit=_GUESSES)]
    close = difflib.get_close_matches(agent, known, n=1, cutoff=0.5)
    guess = f"did you mean {close[0]!r}?" if close else "`callboard ls` lists those there are"
    raise AgentNotFound(f"there is no agent {agent!r} in {store.name}; {guess}", agent=agent)


def check_types(types: list[str] | None) -> list[str] | None:
    """The types that were asked for.

    Raises:
        Refused: one of them does not exist; the sentence names the closest.
    """
    for name in types or ():
        if name not in EVENTS:
            close = difflib.get_close_matches(name, EVENTS, n=1)
            guess = f"did you mean {close[0]!r}?" if close else "docs/events.md lists them"
            raise Refused(f"there is no record type {name!r}; {guess}")
    return types
