"""Counts of what a system has done since it was opened, for those who watch many systems at once.

Kept at the one exit of a turn and where an attempt fails, not by an observer: an observer reads every record once more and
hurries the writer, and all that a monitor wants is a few sums. What must survive the process is in the logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ..storage.events import EndReason, Errored, Limited
from ..storage.messages import NO_USAGE, Usage
from ..storage.timings import Timings

MOST, LONGEST, OTHER = 100, 64, "OTHER"
"""Codes are made by adapters and plugins, which may make a new one each time: after so many there is one for all others."""
TURN_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Tally:
    """Turns, steps, tokens and failures so far."""

    def __init__(self) -> None:
        self._turns: Counter[tuple[str, str]] = Counter()
        self._steps: Counter[str] = Counter()
        self._usage: dict[str, Usage] = {}
        self._errors: Counter[str] = Counter()
        self._attempts: Counter[str] = Counter()
        self._seconds = Timings(TURN_S)

    def turn(self, definition: str, reason: EndReason, *, steps: int, usage: Usage, seconds: float) -> None:
        """A turn has ended."""
        self._turns[definition, reason.kind] += 1
        self._steps[definition] += steps
        self._usage[definition] = self._usage.get(definition, NO_USAGE) + usage
        self._seconds.add(seconds)
        if isinstance(reason, Errored):
            _count(self._errors, reason.error.code)
        elif isinstance(reason, Limited):
            _count(self._errors, f"LIMIT {reason.limit}")

    def attempt(self, code: str) -> None:
        """An attempt at a request has failed, whether another follows or not."""
        _count(self._attempts, code)

    def read(self) -> Mapping[str, Any]:
        """All so far: turns by definition and reason, steps and tokens by definition, the codes that ended turns and attempts."""
        return {
            "turns": dict(self._turns),
            "steps": dict(self._steps),
            "usage": dict(self._usage),
            "errors": dict(self._errors),
            "failed_attempts": dict(self._attempts),
            "turn_seconds": self._seconds.read(),
        }


def _count(counts: Counter[str], code: str) -> None:
    code = code[:LONGEST]
    counts[code if code in counts or len(counts) < MOST else OTHER] += 1
