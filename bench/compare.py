"""Two runs compared: what moved beyond the noise, and what did not.

A rate says little on another machine or in a busier hour, a share of the floor of the same run much more, and a count (flushes,
bytes) does not depend on the machine at all. So each case is judged by its share where it has one, by its rate only between runs
on one machine, and by its counts always. A figure has moved if the medians differ by more than can be trusted *and* no repetition
of the one run lies within those of the other: a wide spread says that nothing can be said. Nor can it be of one repetition alone,
or of a rate or a share that was taken while others used most of the machine: such a change is *unsure*.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from .measure import Sample, quiet

TRUST, TRUST_COUNT = 1.3, 1.1
"""By which factor rates and shares, and counts, have to differ at least."""

Verdict = Literal["better", "worse", "same", "unsure"]


class Figures(Struct, frozen=True):
    """One case of a run, as `--out` keeps it."""

    case: str
    samples: list[Sample]
    shares: list[float]
    share_by_cpu: float | None = None


class Run(Struct, frozen=True):
    """A run, as `--out` keeps it."""

    time: int
    machine: dict[str, str]
    figures: list[Figures]


class Change(Struct, frozen=True):
    """One figure of one case in both runs. `ratio` is the second median over the first."""

    case: str
    figure: str
    before: float
    after: float
    ratio: float
    verdict: Verdict


def _of_samples(name: str) -> Callable[[Figures], list[float]]:
    return lambda figures: [value for s in figures.samples if (value := getattr(s, name)) is not None]


RATES = _of_samples("per_s")
COUNTS: Mapping[str, Callable[[Figures], list[float]]] = {
    name: _of_samples(name) for name in ("flushes", "file_bytes", "held_bytes", "last_to_first")
}
"""Of these, less is better."""
MACHINE = ("processor", "cores")
"""What has to be the same for two rates to be compared."""


def compare(before: Run, after: Run) -> list[Change]:
    """Every figure that both runs have and that may be compared."""
    known = {figures.case: figures for figures in before.figures}
    alike = all(before.machine.get(name) == after.machine.get(name) for name in MACHINE)
    return [change for new in after.figures if new.case in known for change in _changes(known[new.case], new, alike)]


def _changes(old: Figures, new: Figures, alike: bool) -> Iterator[Change]:
    sure = quiet(old.samples) and quiet(new.samples)
    if old.shares and new.shares:
        yield judged(new.case, "share", old.shares, new.shares, TRUST, more=True, sure=sure)
    elif alike:
        yield judged(new.case, "per_s", RATES(old), RATES(new), TRUST, more=True, sure=sure)
    for name, values in COUNTS.items():
        if any(values(old)) and values(new):
            yield judged(new.case, name, values(old), values(new), TRUST_COUNT, more=False)


def judged(
    case: str, figure: str, old: Sequence[float], new: Sequence[float], factor: float, *, more: bool, sure: bool = True
) -> Change:
    """One figure, by the repetitions of both runs. `more`: whether more of it is better."""
    before, after = statistics.median(old), statistics.median(new)
    ratio = after / before
    apart = min(new) > max(old) or max(new) < min(old)
    verdict: Verdict = "same"
    if apart and not 1 / factor <= ratio <= factor:
        verdict = "better" if (ratio > 1) == more else "worse"
        if not sure or min(len(old), len(new)) < 2:
            verdict = "unsure"
    return Change(case, figure, before, after, ratio, verdict)


def told(changes: Sequence[Change]) -> str:
    """What people read: what moved, one line each, and how much did not."""
    moved = [c for c in changes if c.verdict != "same"]
    lines = [f"{c.case}: {c.figure} {c.before:,.2f} -> {c.after:,.2f}, {c.ratio:.2f} times: {c.verdict}" for c in moved]
    lines.append(f"{len(changes) - len(moved)} of {len(changes)} figures did not move beyond the noise")
    return "\n".join(lines)
