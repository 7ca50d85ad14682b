"""Programs that a tool runs: a process, everything it starts, and a sure end for all of them.

The process leads a session of its own, so that one signal reaches its whole group. The group ends with its leader, whether
that returned, ran out of time or was cancelled: nothing is left running that no log knows of, and no zombie. Output is bounded
while it is read; a program that prints without end costs no memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import trio
from msgspec import Struct

from ...storage.errors import ToolError

OUTPUT_LIMIT = 1_048_576
"""How much of each stream is kept (bytes): half from its beginning, half from its end."""
GRACE_S = 2.0
"""How long a group may take between SIGTERM and SIGKILL. Shorter than `Limits.abandon_s`, or the tool would be given up."""
_POLL_S = 0.01
_REST_S = 0.2  # what the others of a group get when their leader has obeyed; zombies that nobody reaps would use up all of it
_DRAIN_S = 1.0  # who left the session may hold the pipes for ever


class Completed(Struct, frozen=True):
    """How a program ended; `truncated` if more was printed than is kept. Killed by a signal: `returncode` is minus its number."""

    returncode: int
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False

    @property
    def ok(self) -> bool:
        """Whether it returned 0."""
        return self.returncode == 0


async def run_process(
    *argv: str,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    input: str | bytes | None = None,
    output_limit: int = OUTPUT_LIMIT,
    grace_s: float = GRACE_S,
) -> Completed:
    """Run a program to its end, and its whole process group with it.

    Args:
        argv: the program and its arguments; no shell is involved unless you name one.
        timeout: seconds until it is killed.
        env: its whole environment; None means ours.
        cwd: where it runs.
        input: what it reads; nothing by default.
        output_limit: bytes of each stream that are kept.
        grace_s: seconds between SIGTERM and SIGKILL.

    Raises:
        ToolError: TIMEOUT, with the last it printed.
        OSError: there is no such program.
    """
    streams = _Kept(output_limit), _Kept(output_limit)
    data = input.encode() if isinstance(input, str) else input
    process = await trio.lowlevel.open_process(
        argv,
        stdin=subprocess.DEVNULL if data is None else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        cwd=cwd,
        start_new_session=True,
    )
    group = ProcessGroup(process)
    with trio.CancelScope() as scope:
        if timeout is not None:
            scope.deadline = trio.current_time() + timeout
        await _communicate(group, data, streams, grace_s)
    if scope.cancelled_caught:
        printed = (streams[1].text() or streams[0].text())[-2000:]
        raise ToolError(
            f"{argv[0]} was not done after {timeout} s and was killed. It last printed: {printed or 'nothing'}", code="TIMEOUT"
        )
    out, err = streams
    return Completed(process.returncode or 0, out.text(), err.text(), out.truncated or err.truncated)


class _Kept:
    """The beginning and the end of a stream, in bounded memory."""

    def __init__(self, limit: int) -> None:
        self._head_size = limit - limit // 2
        self._tail_size = limit // 2
        self._head, self._tail = bytearray(), bytearray()
        self._dropped = 0

    @property
    def truncated(self) -> bool:
        return self._overflow() > 0

    def feed(self, data: bytes) -> None:
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._tail_size + 65_536:  # cut rarely: each cut copies the tail
            self._cut()

    def text(self) -> str:
        self._cut()
        gap = f"\n[{self._dropped} bytes left out]\n".encode() if self._dropped else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")

    def _overflow(self) -> int:
        return self._dropped + max(0, len(self._tail) - self._tail_size)

    def _cut(self) -> None:
        extra = max(0, len(self._tail) - self._tail_size)
        del self._tail[:extra]
        self._dropped += extra


class ProcessGroup:
    """A process that leads a group (`start_new_session=True`), and everything it started."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process

    async def end(self, grace_s: float) -> None:
        """Leave nothing of the group: ask, wait, kill, reap.

        When the leader has been reaped and the group is empty, its number may be given to somebody else; so nothing is
        signalled after the first sign of that, and the caller lets no time pass between the reaping and this.
        """
        if not self._signal(signal.SIGTERM):
            return
        with trio.move_on_after(grace_s):
            await self.process.wait()
            with trio.move_on_after(_REST_S):
                await self._wait_empty()
                return
        self._signal(signal.SIGKILL)
        await self.process.wait()

    async def _wait_empty(self) -> None:
        # The kernel tells a parent about its child, and nobody about a group.
        while self._signal(0):  # noqa: ASYNC110
            await trio.sleep(_POLL_S)

    def _signal(self, number: int) -> bool:
        """False if nothing of the group is left. (macOS forbids signals to a group of zombies, which is the same.)"""
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True


async def _communicate(group: ProcessGroup, data: bytes | None, streams: tuple[_Kept, _Kept], grace_s: float) -> None:
    """Read while the group lives, also while it is ended: who prints to a closed pipe dies before it has cleaned up."""
    process, drains = group.process, [trio.CancelScope(shield=True) for _ in range(3)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_write, process.stdin, data, drains[0])
        nursery.start_soon(_read, process.stdout, streams[0], drains[1])
        nursery.start_soon(_read, process.stderr, streams[1], drains[2])
        try:
            await process.wait()
        finally:
            with trio.CancelScope(shield=True):
                await group.end(grace_s)
            for drain in drains:
                drain.deadline = trio.current_time() + _DRAIN_S


async def _write(pipe: Any, data: bytes | None, drain: trio.CancelScope) -> None:
    if data is None:
        return
    with drain:
        async with pipe:
            try:
                await pipe.send_all(data)
            except trio.BrokenResourceError:
                return  # the program chose not to read all of it


async def _read(pipe: Any, kept: _Kept, drain: trio.CancelScope) -> None:
    with drain:
        async with pipe:
            async for data in pipe:
                kept.feed(data)
