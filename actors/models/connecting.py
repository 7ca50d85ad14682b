"""The deadline for connecting, which is the agent's and which only an adapter can keep.

All other deadlines of a model call are kept by the loop, which sees chunks come. When a connection stands it does not see; an
adapter does, or its HTTP client. So the loop says how long connecting may take while it reads, and an adapter asks. One that does
not ask is bounded all the same: the first chunk has to come within `connect_s` and `first_chunk_s` together.
"""

from __future__ import annotations

from contextvars import ContextVar

CONNECT_S: ContextVar[float | None] = ContextVar("callboard.connect_s", default=None)
"""Set by the loop while it reads a stream."""


def connect_s() -> float | None:
    """Seconds that connecting may take for the request under way: its agent's `Limits.connect_s`. None where no loop reads."""
    return CONNECT_S.get()
