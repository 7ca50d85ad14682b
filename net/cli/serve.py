"""`callboard serve STATE [FILE]`: the agents of a Python file behind a port, until it is interrupted.

The first signal drains: nothing new is taken, what is under way finishes or is left, and clients are told to come again. The
second one ends it at once; then open turns go on at the next start, as after a kill. Without a file nothing runs, and what is
in the store can be looked at.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import trio

from ...actors.system import System
from ..access import Tokens, tokens_in
from ..guesses import THIS_MACHINE
from ..limits import ServiceLimits
from ..service import Server, serve
from .loading import Served, load_served
from .output import Output
from .problems import Refused


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Open the system, serve, and say where; the exit code says which signal ended it."""
    served = load_served(arguments.file) if arguments.file is not None else _to_look_at(arguments.state)
    opening = System.open(
        arguments.state,
        agents=served.agents,
        deps=served.deps,
        channels=served.channels,
        models=served.models,
        grace=arguments.grace,
    )
    async with trio.open_nursery() as nursery:
        limits = ServiceLimits(connections=arguments.connections)
        start = partial(serve, opening, host=arguments.host, port=arguments.port, origins=arguments.origin, limits=limits)
        start = partial(start, proxies=[*THIS_MACHINE, *arguments.proxy])
        server: Server = await nursery.start(partial(start, tokens=_tokens(arguments), tls=_tls(arguments)))
        _announce(server, arguments, output)
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            number = await anext(signals)
            output.text(_farewell(arguments))
            output.flush()
            await _drain(server, arguments, signals)
        nursery.cancel_scope.cancel()
    return 128 + int(number)


async def _drain(server: Server, arguments: argparse.Namespace, signals: AsyncIterator[int]) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_again, signals, nursery.cancel_scope)
        await server.drain(arguments.drain, grace=arguments.grace)
        nursery.cancel_scope.cancel()


async def _again(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    await anext(signals)
    scope.cancel()


def _farewell(arguments: argparse.Namespace) -> str:
    if arguments.drain == "leave":
        return "closing; open turns go on at the next start"
    return f"closing; open turns have {arguments.grace:g} s to finish, or go on at the next start; the same again ends it at once"


def _to_look_at(state: str) -> Served:
    """No definitions: nothing runs, and everything that ever ran can be read.

    Raises:
        Refused: there is no store at all.
    """
    if not Path(state).is_dir():
        raise Refused(f"there is no store {state} to look at; to make one, give a Python file with Agents, too")
    return Served([], None, None, None)


def _announce(server: Server, arguments: argparse.Namespace, output: Output) -> None:
    system = server.system
    names = sorted(system.definitions)
    what = f"serving {', '.join(names)} of" if names else "nothing runs; looking at"
    output.text(f"{what} {arguments.state} at {server.url}; the page is {server.page}")
    for id, error in system.report.failed.items() if names else ():
        output.text(f"{id} could not be taken up: {error}")
    output.value({"url": server.url, "port": server.port, "page": server.page, "agents": names})
    output.flush()


def _tokens(arguments: argparse.Namespace) -> Tokens | str | None:
    return arguments.tokens if arguments.tokens is not None else tokens_in(os.environ)


def _tls(arguments: argparse.Namespace) -> Any:
    if arguments.cert is None and arguments.key is not None:
        raise Refused("--key goes with --cert: give the certificate, too")
    return None if arguments.cert is None else (arguments.cert, arguments.key or arguments.cert)
