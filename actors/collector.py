"""The garbage collector of a process that serves many agents.

An agent in memory is many small objects that live long, and Python's collector looks at all that live again and again: with 200
to 5,000 agents that costs a fifth to two thirds of the time. What a server does about it: freeze what is there by now, so that
nobody looks at it any more, and look less often. It is the application's choice and not a library's, so it is asked for
(`System.open(gc="server")`); the commands, which are applications, do it by themselves.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

from ..storage.errors import UsageError

Mode = Literal["server"]
THRESHOLD = (50_000, 20, 50)
"""Allocations before a look at the youngest, and how many looks at one generation before one at the next."""


def serve_many() -> None:
    """Freeze what is there and look less often, for the rest of the process."""
    gc.freeze()
    gc.set_threshold(*THRESHOLD)


@contextmanager
def collector(mode: Mode | None) -> Generator[None]:
    """The collector in this mode for the length of a block; None leaves it as it is.

    Raises:
        UsageError: there is no such mode.
    """
    if mode is None:
        yield
        return
    if mode != "server":  # pyright: ignore[reportUnnecessaryComparison]
        raise UsageError(f"gc={mode!r} is no mode: write 'server', or leave it out")
    before = gc.get_threshold()
    serve_many()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
