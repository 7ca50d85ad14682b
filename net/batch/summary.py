"""The summary of a run, as data and as a table. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean

from msgspec import Struct

from ...storage.events import Errored, Limited
from ...storage.messages import NO_USAGE, Usage
from .rows import Row
from .statistics import Mean, mean_of, pass_at

PASSED = 1.0
"""An attempt passes with this score or a higher one."""


class ScoreSummary(Struct, frozen=True):
    """One score: its mean over tasks, and pass@k for every k up to the number of attempts (1, 2, 4, ... and the last)."""

    name: str
    mean: Mean
    passes: dict[int, float]


class Summary(Struct, frozen=True, kw_only=True):
    """What a run came to."""

    name: str
    what: str
    tasks: int
    attempts: int
    completed: int
    ends: dict[str, int]
    """How the others ended: reason → how many, the most frequent first."""
    to_run_again: int
    """Of these, how many failed for a reason that was not the task's: they count in no score, and the next run tries them
    again."""
    why_again: str
    """What the first of those failed with; empty if there is none."""
    scores: tuple[ScoreSummary, ...]
    steps: Mean | None
    usage: Usage
    cost: float | None

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def summarise(name: str, what: str, rows: Sequence[Row]) -> Summary:
    """The summary of these rows."""
    counted = [row for row in rows if row.stands]
    usage, cost = NO_USAGE, [row.cost for row in rows if row.cost is not None]
    for row in rows:
        usage = usage + row.usage
    ends = Counter(_end(row) for row in rows if not row.outcome.ok)
    return Summary(
        name=name,
        what=what,
        tasks=len({row.task.id for row in rows}),
        attempts=len(rows),
        completed=sum(row.outcome.ok for row in rows),
        ends=dict(ends.most_common()),
        to_run_again=len(rows) - len(counted),
        why_again=next((_why(row) for row in rows if not row.stands), ""),
        scores=tuple(_score(name, counted) for name in score_names(counted)),
        steps=mean_of([float(row.outcome.steps) for row in counted]),
        usage=usage,
        cost=sum(cost) if cost else None,
    )


def score_names(rows: Sequence[Row]) -> list[str]:
    """The names of all scores, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row.scores))


def by_task(rows: Sequence[Row], name: str) -> dict[str, list[float]]:
    """The scores of this name by task; an attempt without one has 0."""
    scores: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        scores[row.task.id].append(row.scores.get(name, 0.0))
    return dict(scores)


def _score(name: str, rows: Sequence[Row]) -> ScoreSummary:
    scores = by_task(rows, name)
    mean = mean_of([fmean(values) for values in scores.values()])
    assert mean is not None, "a score has a name because a row has it"
    most = min(map(len, scores.values()))
    sizes = sorted({k for k in (1, 2, 4, 8, 16, 32, 64) if k <= most} | {most})
    passes = {k: fmean(pass_at(k, len(v), sum(x >= PASSED for x in v)) for v in scores.values()) for k in sizes}
    return ScoreSummary(name, mean, passes)


def _end(row: Row) -> str:
    match row.outcome.reason:
        case Errored(error=error):
            return f"error {error.code}"
        case Limited(limit=limit):
            return f"limit {limit}"
        case reason:
            return reason.kind


def _why(row: Row) -> str:
    match row.outcome.reason:
        case Errored(error=error):
            return error.message or error.code
        case Limited(limit=limit, text=text):
            return text or f"limit {limit}"
        case reason:
            return reason.kind


def counted(number: int, noun: str) -> str:
    """`1 task`, `1,000 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _lines(summary: Summary) -> list[str]:
    lines = [
        f"{summary.name}: {summary.what}",
        f"{counted(summary.attempts, 'attempt')} at {counted(summary.tasks, 'task')}, {summary.completed:,} completed",
    ]
    if summary.ends:
        lines.append("ended otherwise: " + ", ".join(f"{end} {n:,}" for end, n in summary.ends.items()))
    if summary.to_run_again:
        lines.append(f"{summary.to_run_again:,} failed for reasons that are not the tasks': run the batch again for them")
        lines.append(f"the first of them: {summary.why_again}")
    lines.append("")
    width = max([8, *(len(score.name) for score in summary.scores)])
    for score in summary.scores:
        passes = "  ".join(f"pass@{k} {value:.3f}" for k, value in score.passes.items())
        lines.append(f"{score.name:<{width}}  {score.mean!s:<15}  {passes}")
    if summary.steps is not None:
        lines.append(f"{'steps':<{width}}  {summary.steps.mean:.1f}")
    usage = summary.usage
    read = usage.total - usage.output - usage.reasoning
    lines.append(f"{'tokens':<{width}}  {usage.total:,} ({read:,} in, {usage.output + usage.reasoning:,} out)")
    if summary.cost is not None:
        lines.append(f"{'cost':<{width}}  {summary.cost:,.4f}")
    return lines
