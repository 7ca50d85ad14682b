"""`callboard log STATE [ID] --search TEXT`: where something was said, one record a line, with what stands around it."""

from __future__ import annotations

import argparse
import time as clock
from collections.abc import Collection

from msgspec import Struct

from ...storage.searching import SEARCHED, Hit, Search
from ...storage.store import Store
from .output import Output

PAGE = 100


class Found(Struct, frozen=True):
    """A hit as programs read it."""

    agent: str
    seq: int
    time: int
    type: str
    context: str


async def search(store: Store, arguments: argparse.Namespace, output: Output, types: Collection[str] | None) -> None:
    """Print every record of the agent, or of all agents, that holds the text.

    Raises:
        UsageError: the text is empty.
    """
    wanted = SEARCHED if types is None else SEARCHED & set(types)
    named: str | None = arguments.agent
    found = 0
    agents = await _page(store) if named is None else [named]
    while agents:
        for agent in agents:
            looking = Search(arguments.search)
            async for record in store.read(agent, after=arguments.after, types=wanted):
                hit = looking.see(record)
                if hit is not None:
                    found += 1
                    output.value(Found(agent, hit.seq, hit.time, hit.type, hit.context))
                    output.text(_line(hit, agent if named is None else ""))
        agents = await _page(store, after=agents[-1]) if named is None else []
    if not found:
        output.notice(f"{arguments.search!r} stands nowhere")


async def _page(store: Store, after: str | None = None) -> list[str]:
    return [head.agent for head in await store.agents(after=after, limit=PAGE)]


def _line(hit: Hit, agent: str) -> str:
    moment = clock.strftime("%Y-%m-%d %H:%M:%S", clock.localtime(hit.time / 1000))
    return f"{agent}{'  ' if agent else ''}{hit.seq:>6}  {moment}  {hit.type:<17} {hit.context}"
