"""A wall clock that keeps step with trio's: under a mock clock an hour of reminders passes in no time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import trio

from ...storage.errors import UsageError


def trio_wall(start: str | datetime | float) -> Callable[[], float]:
    """A `now` for `System.open` that shows `start` at this moment and then goes as trio's clock goes. Call it in a trio run.

    Args:
        start: ISO text (`"2026-12-01T08:00Z"`), a datetime, or Unix seconds; without a zone it is UTC.
    """
    first, begin = _unix(start), trio.current_time()
    return lambda: first + trio.current_time() - begin


def _unix(start: str | datetime | float) -> float:
    if isinstance(start, str):
        try:
            start = datetime.fromisoformat(start)
        except ValueError:
            raise UsageError(f"trio_wall({start!r}) needs an ISO time, for example '2026-12-01T08:00Z'") from None
    if isinstance(start, datetime):
        return (start if start.tzinfo is not None else start.replace(tzinfo=UTC)).timestamp()
    return float(start)
