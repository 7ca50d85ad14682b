"""A server that is a program of ours: started, spoken to over its pipes, and ended with everything it started.

The program leads a group of its own. When the connection is over it is asked to end (its input is closed), then its group is
told to, then it is killed: nothing of it is left, whatever it does. If this process is killed it reads the end of its input. It
gets a small environment and what it was given, so that a server never sees the keys that this process holds by chance.
"""

from __future__ import annotations

import logging
import subprocess
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from msgspec import Struct

from ...actors.texts import well_formed
from ...actors.tools.process import ProcessGroup
from .lines import TooLongError, read_lines, receive_messages, send_messages

_log = logging.getLogger("callboard.mcp")
GRACE_S = 2.0
"""How long a program may take to end once its input is closed, and again once it was told to."""
_LINE = 2_000


class Program(Struct, frozen=True):
    """How to start a server: no shell is involved."""

    argv: Sequence[str]
    env: Mapping[str, str] | None = None
    cwd: str | Path | None = None


@asynccontextmanager
async def running(program: Program, *, name: str, gone: Callable[[], None], said: list[str]) -> AsyncGenerator[tuple[Any, Any]]:
    """The SDK's two streams to the program, for as long as it runs.

    Args:
        program: how to start it.
        name: what logs call it.
        gone: called when it has gone, by itself or not.
        said: gets the last lines of its standard error, for whoever has to say why it went.

    Raises:
        OSError: there is no such program.
    """
    import anyio
    from mcp.client.stdio import get_default_environment

    process = await trio.lowlevel.open_process(
        list(program.argv),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**get_default_environment(), **(program.env or {})},
        cwd=program.cwd,
        start_new_session=True,
    )
    incoming, read = anyio.create_memory_object_stream[Any](0)
    write, outgoing = anyio.create_memory_object_stream[Any](0)
    life = _Life(process)
    async with read, write, trio.open_nursery() as nursery:
        try:
            nursery.start_soon(_watch, life, gone)
            nursery.start_soon(_receive, process, incoming, name, gone)
            nursery.start_soon(_send, process, outgoing, gone)
            nursery.start_soon(_listen, process, name, said)
            yield read, write
        finally:
            with trio.CancelScope(shield=True):
                await _end(life)
            nursery.cancel_scope.cancel()


async def _receive(process: trio.Process, incoming: Any, name: str, gone: Callable[[], None]) -> None:
    assert process.stdout is not None, "opened with pipes"
    async with process.stdout:
        await receive_messages(process.stdout, incoming, name=f"MCP server {name!r}")
        gone()


async def _send(process: trio.Process, outgoing: Any, gone: Callable[[], None]) -> None:
    assert process.stdin is not None, "opened with pipes"
    await send_messages(outgoing, process.stdin)
    gone()


async def _listen(process: trio.Process, name: str, said: list[str]) -> None:
    """What it prints beside the protocol goes to our log; it must be read, or it would stop in the middle of a print."""
    assert process.stderr is not None, "opened with pipes"

    async def take(line: bytes) -> None:
        text = well_formed(line[:_LINE].decode("utf-8", "replace")).rstrip()
        _log.info("%s: %s", name, text)
        said.append(text)
        del said[:-5]

    async with process.stderr:
        while True:
            try:
                return await read_lines(process.stderr, take, longest=2**20)
            except TooLongError:
                _log.debug("%s prints a line without an end", name)


class _Life:
    """A program's life: its group is ended once, by whoever is the first to see its leader end or to want it gone."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self._ending = False
        self._over = trio.Event()

    async def end(self) -> None:
        """Leave nothing of the group; call it at once when the leader was seen to end."""
        if not self._ending:
            self._ending = True
            with trio.CancelScope(shield=True):
                await ProcessGroup(self.process).end(GRACE_S)
            self._over.set()
        await self._over.wait()


async def _watch(life: _Life, gone: Callable[[], None]) -> None:
    """Its pipes do not tell of its death: a program that it started may have them, too, and live on."""
    await life.process.wait()
    await life.end()
    gone()


async def _end(life: _Life) -> None:
    assert life.process.stdin is not None, "opened with pipes"
    await life.process.stdin.aclose()
    with trio.move_on_after(GRACE_S):
        await life.process.wait()
    await life.end()
