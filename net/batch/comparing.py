"""Two runs, task by task. The same tasks are easy or hard for both, so the differences are much surer than the two means.
Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Protocol

from msgspec import Struct

from ...storage.errors import UsageError
from .rows import Row
from .statistics import Mean, mean_of
from .summary import by_task, counted, score_names

SHOWN = 20
"""Tasks in the table."""


class Scored(Protocol):
    """What can be compared: a `BatchRun`, or what-if."""

    @property
    def name(self) -> str: ...
    @property
    def rows(self) -> Sequence[Row]: ...


class Pair(Struct, frozen=True):
    """One task in both runs: the mean score of its attempts in each."""

    task: str
    first: float
    second: float

    @property
    def difference(self) -> float:
        """The second less the first."""
        return self.second - self.first


class Comparison(Struct, frozen=True, kw_only=True):
    """What changed from the first run to the second; `print` shows it as a table."""

    first: str
    second: str
    score: str
    pairs: tuple[Pair, ...]
    difference: Mean
    """Second less first, with its interval."""
    only_first: int
    """Tasks that only one of the runs has, or has an answer to."""
    only_second: int

    @property
    def wins(self) -> int:
        """Tasks at which the second is better."""
        return sum(pair.difference > 0 for pair in self.pairs)

    @property
    def losses(self) -> int:
        """Tasks at which it is worse."""
        return sum(pair.difference < 0 for pair in self.pairs)

    @property
    def ties(self) -> int:
        """Tasks at which they are the same."""
        return len(self.pairs) - self.wins - self.losses

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def compare(first: Scored, second: Scored, *, score: str | None = None) -> Comparison:
    """Pair two runs by task, on the score of this name (default: the first that both have).

    Raises:
        UsageError: they have no score or no task in common.
    """
    rows = [[row for row in run.rows if row.stands] for run in (first, second)]
    names = [score_names(each) for each in rows]
    common = [name for name in names[0] if name in names[1]]
    name = score if score is not None else next(iter(common), None)
    if name is None or name not in common:
        raise UsageError(f"{first.name} and {second.name} have no score {name or ''} in common; score both alike")
    one, two = (by_task(each, name) for each in rows)
    pairs = tuple(Pair(task, fmean(one[task]), fmean(two[task])) for task in one if task in two)
    difference = mean_of([pair.difference for pair in pairs])
    if difference is None:
        raise UsageError(f"{first.name} and {second.name} have no task in common")
    return Comparison(
        first=first.name,
        second=second.name,
        score=name,
        pairs=pairs,
        difference=difference,
        only_first=len(one.keys() - two.keys()),
        only_second=len(two.keys() - one.keys()),
    )


def _lines(found: Comparison) -> list[str]:
    sure = found.difference.half is not None and abs(found.difference.mean) > found.difference.half
    lines = [
        f"{found.first} → {found.second}, score {found.score}, {counted(len(found.pairs), 'task')} in both",
        f"difference {_signed(found.difference)}{'' if sure else ' (may well be chance)'}",
        f"better at {found.wins:,}, worse at {found.losses:,}, the same at {found.ties:,}",
    ]
    if found.only_first or found.only_second:
        lines.append(f"in one run alone: {found.only_first:,} and {found.only_second:,}")
    changed = sorted((pair for pair in found.pairs if pair.difference), key=lambda pair: (pair.difference, pair.task))
    shown = changed if len(changed) <= SHOWN else [*changed[: SHOWN // 2], *changed[-SHOWN // 2 :]]
    if shown:
        width = max(4, *(len(pair.task) for pair in shown))
        lines += ["", f"{'task':<{width}}  {'first':>6}  {'second':>6}  {'':>6}"]
        lines += [f"{p.task:<{width}}  {p.first:>6.3f}  {p.second:>6.3f}  {p.difference:>+6.3f}" for p in shown]
        if len(shown) < len(changed):
            lines.append(f"… {len(changed) - len(shown):,} more in between")
    return lines


def _signed(mean: Mean) -> str:
    return f"{mean.mean:+.3f}" + ("" if mean.half is None else f" ± {mean.half:.3f}")
