"""Serving over standard input and output: one client, which started this program.

Whatever is printed in this process must not get between the messages, so while it serves, the descriptor of standard output is
that of standard error, and standard input is empty. Reading is done in a thread that is left behind at the end: a read of a
pipe, a file or a terminal cannot be cancelled, and an interrupted server must end all the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import trio

from .lines import receive_messages, send_messages


async def serve_stdio(server: Any) -> None:
    """Serve the SDK's `Server` to whoever started this program, until they close our input."""
    with standard_streams() as (incoming, outgoing):
        await serve_descriptors(server, incoming, outgoing)


@contextmanager
def standard_streams() -> Generator[tuple[int, int]]:
    """Standard input and output for us alone, as descriptors, for as long as the block lasts."""
    sys.stdout.flush()
    with _taken(0) as incoming, _taken(1) as outgoing:
        try:
            yield incoming, outgoing
        finally:
            sys.stdout.flush()  # what was printed meanwhile still sits in Python's buffer, and goes where the rest went


async def serve_descriptors(server: Any, incoming: int, outgoing: int) -> None:
    """The same over any two descriptors; they stay open."""
    import anyio

    to_session, read = anyio.create_memory_object_stream[Any](0)
    write, from_session = anyio.create_memory_object_stream[Any](0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_receive, _Descriptor(incoming), to_session)
        nursery.start_soon(send_messages, from_session, _Descriptor(outgoing))
        await server.run(read, write, server.create_initialization_options())
        nursery.cancel_scope.cancel()


async def _receive(source: _Descriptor, to_session: Any) -> None:
    await receive_messages(source, to_session, name="the MCP client")


class _Descriptor:
    """A descriptor, read and written in threads."""

    def __init__(self, number: int) -> None:
        self._number = number

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """What is there; b"" at the end."""
        return await trio.to_thread.run_sync(os.read, self._number, max_bytes or 65_536, abandon_on_cancel=True)

    async def send_all(self, data: bytes) -> None:
        """All of it; a reader that stops holds up nobody else."""
        try:
            await trio.to_thread.run_sync(self._write, data, abandon_on_cancel=True)
        except BrokenPipeError as error:
            raise trio.BrokenResourceError from error

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._number, rest) :]


@contextmanager
def _taken(number: int) -> Generator[int]:
    """A copy of a standard descriptor; in its place are nothing to read, or standard error to write to."""
    own = os.dup(number)
    stand_in = os.open(os.devnull, os.O_RDONLY) if number == 0 else os.dup(2)
    os.dup2(stand_in, number)
    os.close(stand_in)
    try:
        yield own
    finally:
        os.dup2(own, number)
        os.close(own)
