"""`callboard log STATE ID`: what happened to an agent, one record a line. The store may be in use."""

from __future__ import annotations

import argparse
import difflib

from ...storage.errors import AgentNotFound
from ...storage.events import EVENTS, TurnEnd
from ...storage.opening import open_store
from ...storage.records import to_json
from ...storage.store import Store
from .lines import line_of
from .output import Output
from .problems import OK, Refused
from .search import search
from .trace import HEAD, trace_lines, trace_value

CHUNK = "assistant/chunk"
_GUESSES = 2000
"""A wrong id is compared with at most so many right ones."""


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Print the records asked for. People see no chunks unless they ask for them; JSON is the whole log."""
    types = check_types(arguments.types)
    agent: str | None = arguments.agent
    if agent is None and arguments.search is None:
        raise Refused("of which agent? `callboard ls` lists them; without an ID there is only --search TEXT")
    shown = arguments.chunks or output.json or CHUNK in (types or ())
    async with open_store(arguments.state, readonly=True) as store:
        if agent is not None:
            await check_agent(store, agent)
        if agent is None or arguments.search is not None:
            await search(store, arguments, output, types)
            return OK
        if arguments.trace:
            await _trace(store, arguments, output)
            return OK
        async for record in store.read(agent, after=arguments.after, types=types):
            if output.json:
                output.raw(to_json(record))
            elif shown or record.type != CHUNK:
                output.text(line_of(record))
    return OK


async def _trace(store: Store, arguments: argparse.Namespace, output: Output) -> None:
    """The walk of each turn that has ended; the trace of one that is open is written with its end."""
    output.text(HEAD)
    async for record in store.read(arguments.agent, after=arguments.after, types={"turn/end"}):
        if isinstance(record.event, TurnEnd):
            output.value(trace_value(record.event))
            for line in trace_lines(record.event):
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
