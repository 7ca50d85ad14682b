"""Limits: how much of everything one agent may hold, take and wait for.

They bound the structure of an agent's work (queues, sizes, depth, deadlines); what it may spend is the `Budget` plugin's.
Every queue and every wait of the runtime has its number here, so that none is unbounded by oversight.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from ..storage.errors import UsageError

_AT_LEAST_ONE = frozenset({"boundary", "parallel"})
# With 0 of these a turn could never go on: it would wait for room that never comes.


class Limits(Struct, frozen=True, kw_only=True):
    """What one agent may hold, take and wait for. 0 means 0; `math.inf` is "no limit" for the times.

    Raises:
        UsageError: a value is negative, or not a number; it names the field.
    """

    pending: int = 10_000
    """Messages that wait in one lane; with 0 nothing is accepted from outside."""
    boundary: int = 64
    """Messages of the next-step lane that one boundary takes; the rest waits for the next boundary."""
    message_bytes: int = 1_048_576
    """Bytes of one message, media apart."""
    recoveries: int = 5
    """Crashes that one turn is taken up after; over it the turn ends with `limit`. As many may fall into the sending of a reply
    that a crash left unsent; over it the reply is given up."""
    depth: int = 4
    """Generations of children below the first agent of a tree."""
    children: int = 100
    """Children of one agent that are alive at once."""
    parallel: int = 8
    """Tool bodies of one step that run at once."""
    tool_timeout: float = 300
    """Seconds that a tool body has, if the tool does not say otherwise."""
    output_retries: int = 2
    """Invalid outputs that the model may correct before the turn ends `OUTPUT_INVALID`."""
    output_bytes: int = 262_144
    """Bytes of a tool's result that stay in the message; over it the result is a blob with a preview."""
    abandon_s: float = 5
    """Seconds that a cancelled body may take to end before it is given up."""
    connect_s: float = 30
    """Seconds until a model's connection stands. The built-in adapters keep it; whatever an adapter does, the first chunk comes
    within this and `first_chunk_s` together."""
    first_chunk_s: float = 120
    """Seconds from there until the first chunk of a model's answer."""
    chunk_gap_s: float = 60
    """Seconds between two chunks."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            _check(field, getattr(self, field))


def _check(field: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise UsageError(f"Limits({field}={value!r}) is not a number; give one (0 means 0)")
    if isinstance(value, float) and not field.endswith(("_s", "timeout")):
        raise UsageError(f"Limits({field}={value!r}) counts things; give a whole number")
    least = 1 if field in _AT_LEAST_ONE else 0
    if value < least:
        raise UsageError(f"Limits({field}={value!r}) is too small; give {least} or more")


DEFAULT_LIMITS = Limits()
"""The limits of an agent that names none."""
