"""Followers: how long a piece of an answer takes to the sockets of all who follow one agent, and what each of them holds.

One agent streams, at the pace of a quick model; so many clients follow it over real sockets, in a process of their own that does
nothing but read. The model's words are the time at which they were said (the clock is the machine's, the same in both processes),
so each arrival says how long it took: through the log, its commit, the page that all followers share, and the socket. Followers
are reached one after another, so the last of them tells most; the figure to trust is the p99.

The floor is a loop that writes the same bytes to as many sockets, and does nothing else: what the machine itself allows.
"""

from __future__ import annotations

import gc
import os
import re
import selectors
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import trio

from callboard import Agent, System
from callboard.actors import Model
from callboard.net import Server, ServiceLimits, serve
from callboard.storage import Request, chunks

from .case import Case
from .measure import Meter, Sample

PIECES = 150
WORD = re.compile(rb'"text":"t(\d+)"')
UPGRADE = (
    b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"
    b"sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: callboard.v1\r\n\r\n"
)
FRAME = b"\x81\x7e\x00\xf0" + b'{"jsonrpc":"2.0","method":"records","params":{"records":[{"text":"t%d"}]}}'.ljust(240)
"""What the floor writes: as long as a page of one piece is."""
FOLLOW = b'{"jsonrpc":"2.0","id":1,"method":"follow","params":{"agent":"a","stream":1,"after":null}}'


class Clock(Model):
    """A model that says what time it is, every so often."""

    provider, name = "bench", "clock"

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s

    async def stream(self, request: Request) -> AsyncIterator[Any]:
        """The answer."""
        yield chunks.block_start(0, "text")
        for _ in range(PIECES):
            await trio.sleep(self._every_s)
            yield chunks.text_delta(0, f"t{time.monotonic_ns()}")
        yield chunks.block_end(0)
        yield chunks.finish("stop")


class Arrivals(msgspec.Struct):
    """What the followers saw: how long each piece took to each, in milliseconds."""

    p50_ms: float
    p99_ms: float
    worst_ms: float
    seen: int


async def sample(followers: int, every_s: float, folder: Path) -> Sample:
    """One sample."""
    agent = Agent("bench", model=Clock(every_s), plugins=[])
    limits = ServiceLimits(connections=followers + 10)
    async with System.open(folder, agents=[agent]) as system, trio.open_nursery() as nursery:
        server: Server = await nursery.start(partial(serve, system, limits=limits))
        ref = await system.spawn(agent, id="a")
        gc.collect()
        before = _resident()
        reading = Reading(server.port, followers)
        nursery.start_soon(reading.run)
        while server.statistics()["followers"] < followers:  # noqa: ASYNC110 (they come over sockets)
            await trio.sleep(0.05)
        held = (_resident() - before) / followers
        with Meter() as meter:
            await ref.ask("go")
        await reading.done.wait()
        arrivals = msgspec.json.decode(reading.said, type=Arrivals)
        assert arrivals.seen == PIECES * followers, f"{arrivals.seen} arrivals of {PIECES * followers}"
        encoded = server.statistics()["feeds"]["encoded"]
        assert encoded < 2 * PIECES, f"{encoded} records were encoded"
        nursery.cancel_scope.cancel()
    sent = meter.sample([0.0] * arrivals.seen)
    return msgspec.structs.replace(sent, p50_ms=arrivals.p50_ms, p99_ms=arrivals.p99_ms, held_bytes=held)


class Reading:
    """The process that reads, and what it said in the end."""

    def __init__(self, port: int, followers: int) -> None:
        self._command = [sys.executable, "-m", "bench.followers", str(port), str(followers)]
        self.said, self.done = b"", trio.Event()

    async def run(self) -> None:
        """From its start to its end."""
        self.said = (await trio.run_process(self._command, capture_stdout=True)).stdout
        self.done.set()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def bare(followers: int, every_s: float) -> Sample:
    """One sample of the floor: no service, no log, no protocol; a loop that writes to each socket in turn."""
    with socket.create_server(("127.0.0.1", 0), backlog=followers) as door:
        reading = Reading(int(door.getsockname()[1]), followers)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reading.run)
            doors = await trio.to_thread.run_sync(_accepted, door, followers)
            with Meter() as meter:
                for _ in range(PIECES):
                    await trio.sleep(every_s)
                    frame = FRAME % time.monotonic_ns()
                    for each in doors:
                        os.write(each.fileno(), frame)
                await reading.done.wait()
    for each in doors:
        each.close()
    arrivals = msgspec.json.decode(reading.said, type=Arrivals)
    sent = meter.sample([0.0] * arrivals.seen)
    return msgspec.structs.replace(sent, p50_ms=arrivals.p50_ms, p99_ms=arrivals.p99_ms)


def _accepted(door: socket.socket, followers: int) -> list[socket.socket]:
    """Connections of the reading process, after what it says first."""
    doors: list[socket.socket] = []
    for _ in range(followers):
        near, _ = door.accept()
        near.recv(65536)
        near.sendall(b"hello")
        near.recv(65536)
        doors.append(near)
    return doors


def run_bare(followers: int, every_s: float) -> Sample:
    """One sample of the floor."""
    return trio.run(bare, followers, every_s)


def run(followers: int, every_s: float) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(sample, followers, every_s, Path(folder))


# -- the process that reads


def read(port: int, followers: int) -> Arrivals:
    """Follow with so many sockets until each has seen every piece."""
    selector = selectors.DefaultSelector()
    for _ in range(followers):
        door = socket.create_connection(("127.0.0.1", port))
        door.sendall(UPGRADE)
        while b"hello" not in door.recv(65536):
            pass
        door.sendall(_masked(FOLLOW))
        door.setblocking(False)
        selector.register(door, selectors.EVENT_READ, [0, b""])
    took: list[int] = []
    left = followers
    while left:
        for key, _ in selector.select():
            state: list[Any] = key.data
            data = state[1] + cast("socket.socket", key.fileobj).recv(1 << 20)
            now, end = time.monotonic_ns(), 0
            for found in WORD.finditer(data):
                took.append(now - int(found[1]))
                state[0] += 1
                end = found.end()
            state[1] = data[end:][-200:]
            if state[0] == PIECES:
                state[0] += 1
                left -= 1
    took.sort()
    return Arrivals(took[len(took) // 2] / 1e6, took[len(took) * 99 // 100] / 1e6, took[-1] / 1e6, len(took))


def _masked(text: bytes) -> bytes:
    """A text frame of a client; a mask of zeros leaves it as it is."""
    return b"\x81" + bytes([0x80 | len(text)]) + b"\0\0\0\0" + text


CASES = (
    Case("followers x1", partial(run, 1, 0.02), "arrivals/s", short=False),
    Case("followers x100", partial(run, 100, 0.02), "arrivals/s", short=False),
    Case("floor followers x1,000", partial(run_bare, 1000, 0.04), "arrivals/s", short=False),
    Case("followers x1,000", partial(run, 1000, 0.04), "arrivals/s", against="floor followers x1,000", short=False),
)

if __name__ == "__main__":
    print(msgspec.json.encode(read(int(sys.argv[1]), int(sys.argv[2]))).decode())
