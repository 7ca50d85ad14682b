"""A histogram of durations: how many took at most so long, how many there were, and how long all of them took.

It is what a monitor needs to draw percentiles over many processes, and costs a search in a short list for each duration.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from msgspec import Struct


class Histogram(Struct, frozen=True):
    """What was measured: for each bound in seconds how many were at most that long, the number of all, and their sum."""

    bounds: tuple[float, ...]
    at_most: tuple[int, ...]
    count: int
    total_s: float


class Timings:
    """Durations, counted by these bounds."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total_s = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self._counts[bisect_left(self._bounds, seconds)] += 1
        self._total_s += seconds

    def read(self) -> Histogram:
        """All so far."""
        so_far, at_most = 0, list[int]()
        for count in self._counts:
            so_far += count
            at_most.append(so_far)
        return Histogram(self._bounds, tuple(at_most[:-1]), so_far, self._total_s)
