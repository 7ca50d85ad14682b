"""What the figures should be, and whether they are: the aims, as data.

An aim is a figure of a case, or its ratio to that of another case of the same run, and a bound. Aims on shares and counts hold on
any machine; those in milliseconds and rates are meant for two slow cores.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from msgspec import Struct

from .figures import Rounds, figure
from .measure import quiet


class Aim(Struct, frozen=True):
    """`figure` of `case`, divided by that of `over` if there is one, is at least (or at most) this. `why`: what it is about."""

    case: str
    figure: str
    at_least: float | None = None
    at_most: float | None = None
    over: str | None = None
    why: str = ""

    @property
    def text(self) -> str:
        """The aim in one line."""
        word, bound = ("at least", self.at_least) if self.at_least is not None else ("at most", self.at_most or 0.0)
        return f"{self.why or self.figure}: {word} {round(bound, 2):,g}"


def _of_floor(case: str, share: float) -> Aim:
    return Aim(case, "per_s", at_least=share, over=f"floor {case}", why="share of the floor")


AIMS: tuple[Aim, ...] = (
    _of_floor("turn x1", 0.65),
    _of_floor("tool x1", 0.65),
    _of_floor("turn x200", 0.25),
    _of_floor("turn x200, gc server", 0.25),
    _of_floor("paced turn x200", 0.9),
    Aim("turn x1000", "per_s", at_least=1 / 1.3, over="turn x200", why="rate over that of x200"),
    Aim("turn x5000, gc server", "per_s", at_least=1 / 1.4, over="turn x200, gc server", why="rate over that of x200"),
    Aim("turn x200", "file_bytes", at_most=3072, why="bytes of file for a turn"),
    Aim("append x200", "written_bytes", at_most=2048, why="bytes written for a frame of 500, on a full store"),
    Aim("mail, 100 pairs", "per_s", at_least=20_000, why="letters a second"),
    Aim("open 100,000 records", "p50_ms", at_most=2, why="ms to open, warm"),
    Aim("open 100,000 records, cut", "p50_ms", at_most=10, why="ms to open after a kill"),
    Aim("idle x10,000 open", "held_bytes", at_most=1024, why="bytes for an agent that rests in memory"),
    Aim("idle x10,000 passive", "held_bytes", at_most=1024, why="bytes for an agent that was dropped"),
    Aim("page of 100,000 agents", "p50_ms", at_most=10, why="ms for a page of 100"),
    Aim("open of 100,000 agents", "p50_ms", at_most=1, why="ms to activate one"),
    Aim("followers x1", "p99_ms", at_most=20, why="ms from a delta to the socket, p99"),
    Aim("followers x100", "p99_ms", at_most=20, why="ms from a delta to the socket, p99"),
    Aim("append x200, busy loop", "p99_ms", at_most=3, over="append x200", why="p99 of a commit, over that of an idle loop"),
    Aim("restart with 1,000 open turns", "p99_ms", at_most=2000, why="ms until all are taken up"),
    Aim("year of chat x20,000", "last_to_first", at_most=1.1, why="CPU of the last thousand turns over that of the first"),
    Aim("events against length", "last_to_first", at_most=1.1, why="CPU of an event at 100,000 records over that at 10,000"),
)


COUNTED = frozenset({"file_bytes", "written_bytes", "held_bytes", "flushes"})
"""Figures that others on the machine do not change."""


class Result(Struct, frozen=True):
    """An aim, what was measured, and whether it holds; `sure` unless others used much of the machine meanwhile."""

    aim: Aim
    value: float
    holds: bool
    sure: bool = True


def results(rounds: Rounds, aims: Sequence[Aim] = AIMS) -> Iterator[Result]:
    """The aims on cases that ran; ratios are taken within a round, and of all rounds the median."""
    for aim in aims:
        names = [aim.case] if aim.over is None else [aim.case, aim.over]
        if not all(rounds.get(name) for name in names):
            continue
        columns = [[getattr(s, aim.figure) for s in rounds[name]] for name in names]
        values = [row[0] / row[1] if len(row) == 2 else row[0] for row in zip(*columns, strict=True)]
        value = statistics.median(values)
        holds = value >= aim.at_least if aim.at_least is not None else value <= (aim.at_most or 0.0)
        sure = aim.figure in COUNTED or all(quiet(rounds[name]) for name in names)
        yield Result(aim, value, holds, sure)


def table(found: Sequence[Result]) -> str:
    """The aims as a table for people; it is markdown, too."""
    rows = ["| case | aim | measured | |", "|---|---|---|---|"]
    rows += [f"| {r.aim.case} | {r.aim.text} | {figure(r.value, 2)} | {_verdict(r)} |" for r in found]
    return "\n".join(rows)


def _verdict(result: Result) -> str:
    return ("holds" if result.holds else "missed") + ("" if result.sure else ", unsure: others were busy")
