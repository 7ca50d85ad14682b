"""`callboard serve STATE FILE`: the agents of a Python file behind a port, until it is interrupted.

The first signal drains: nothing new is taken, what is under way finishes or is left, and clients are told to come again. The
second one ends it at once; then open turns go on at the next start, as after a kill.
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import trio

from ...actors.system import System
from ..access import Tokens, tokens_in
from ..service import Server, serve
from .loading import load_served
from .output import Output
from .problems import Refused


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Open the system, serve, and say where; the exit code says which signal ended it."""
    served = load_served(arguments.file)
    opening = System.open(
        arguments.state, agents=served.agents, deps=served.deps, channels=served.channels, grace=arguments.grace
    )
    async with trio.open_nursery() as nursery:
        start = partial(serve, opening, host=arguments.host, port=arguments.port, origins=arguments.origin)
        server: Server = await nursery.start(partial(start, tokens=_tokens(arguments), tls=_tls(arguments)))
        _announce(server, arguments, output)
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            number = await anext(signals)
            output.text(f"closing; open turns {'finish' if arguments.drain == 'finish' else 'go on at the next start'}")
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


def _announce(server: Server, arguments: argparse.Namespace, output: Output) -> None:
    system = server.system
    names = sorted(system.definitions)
    output.text(f"serving {', '.join(names)} of {arguments.state} at {server.url}; the page is {server.page}")
    for id, error in system.report.failed.items():
        output.text(f"{id} could not be taken up: {error}")
    output.value({"url": server.url, "port": server.port, "page": server.page, "agents": names})
    output.flush()


def _tokens(arguments: argparse.Namespace) -> Tokens | str | None:
    return arguments.tokens if arguments.tokens is not None else tokens_in(os.environ)


def _tls(arguments: argparse.Namespace) -> Any:
    if arguments.cert is None and arguments.key is not None:
        raise Refused("--key goes with --cert")
    return None if arguments.cert is None else (arguments.cert, arguments.key or arguments.cert)
