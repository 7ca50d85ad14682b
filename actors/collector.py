"""What a process that serves many agents asks of its interpreter: look at garbage seldom, hand the lock over soon.

An agent in memory is many small objects that live long, and Python's collector looks at all that live again and again: with 200
to 5,000 agents that costs a fifth to two thirds of the time. What a server does about it: freeze what is there by now, so that
nobody looks at it any more, and look less often.

A thread that computes, as a tool that is a plain function may, keeps Python's lock for 5 ms whenever another one wants it. The
loop and the thread that commits want it several times for each commit, so one busy tool makes a commit of 2 ms one of 30. A
server has the lock handed over ten times as often, which costs the busy thread next to nothing.

Both are settings of the whole process: the application's choice and not a library's, so they are asked for
(`System.open(gc="server")`); the commands, which are applications, make it by themselves.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from ..storage.errors import UsageError

Mode = Literal["server"]
THRESHOLD = (50_000, 20, 50)
"""Allocations before a look at the youngest, and how many looks at one generation before one at the next."""
SWITCH_S = 0.0005
"""How long a thread may keep Python's lock while another one waits for it."""


def serve_many() -> None:
    """Freeze what is there, look less often and hand the lock over sooner, for the rest of the process."""
    gc.freeze()
    gc.set_threshold(*THRESHOLD)
    if sys.getswitchinterval() > SWITCH_S:
        sys.setswitchinterval(SWITCH_S)


@contextmanager
def collector(mode: Mode | None) -> Generator[None]:
    """The interpreter in this mode for the length of a block; None leaves it as it is.

    Raises:
        UsageError: there is no such mode.
    """
    if mode is None:
        yield
        return
    if mode != "server":  # pyright: ignore[reportUnnecessaryComparison]
        raise UsageError(f"gc={mode!r} is no mode: write 'server', or leave it out")
    threshold, interval = gc.get_threshold(), sys.getswitchinterval()
    serve_many()
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
        gc.unfreeze()
