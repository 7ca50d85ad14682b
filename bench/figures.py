"""What the samples say: shares of the floor, the table for people, the JSON for keeping."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import msgspec

from .case import Case
from .measure import Sample, machine, middle

Rounds = dict[str, list[Sample]]


def share(case: Case, rounds: Rounds) -> list[float]:
    """The case's rate as a share of what it is compared with, round by round."""
    if case.against is None:
        return []
    return [mine.per_s / its.per_s for mine, its in zip(rounds[case.name], rounds[case.against], strict=True)]


def share_by_cpu(case: Case, rounds: Rounds) -> float | None:
    """The same by the CPU an operation costs: steadier than the clock, and what binds when many run at once."""
    if case.against is None:
        return None
    return middle(rounds[case.against]).cpu_us / middle(rounds[case.name]).cpu_us


# -- the table


def _number(name: str, digits: int = 0) -> Callable[[Case, Rounds], str]:
    return lambda case, rounds: figure(getattr(middle(rounds[case.name]), name), digits)


def _share(case: Case, rounds: Rounds) -> str:
    shares = share(case, rounds)
    return f"{statistics.median(shares):.2f} ({min(shares):.2f}-{max(shares):.2f})" if shares else ""


COLUMNS: dict[str, Callable[[Case, Rounds], str]] = {
    "case": lambda case, _: case.name,
    "per s": _number("per_s"),
    "of its floor": _share,
    "by CPU": lambda case, rounds: figure(share_by_cpu(case, rounds), 2),
    "aim": lambda case, _: figure(case.aim, 2),
    "p50 ms": _number("p50_ms", 2),
    "p99 ms": _number("p99_ms", 2),
    "CPU us": _number("cpu_us"),
    "flushes": _number("flushes", 2),
    "file B": _number("file_bytes"),
    "written B": _number("written_bytes"),
    "held B": _number("held_bytes"),
    "MB": _number("rss_mb"),
    "last to first": _number("last_to_first", 2),
    "grown MB": _number("grown_mb", 1),
    "largest": _number("largest"),
    "others": _number("others", 2),
}
"""Title → what stands in the column."""


def table(cases: Sequence[Case], rounds: Rounds) -> str:
    """The figures as a table for people (it is markdown, too)."""
    rows = [list(COLUMNS), ["---"] * len(COLUMNS)]
    rows += [[column(case, rounds) for column in COLUMNS.values()] for case in cases]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows)


def figure(value: float | None, digits: int = 0) -> str:
    """A number as people read it; nothing if it is unknown."""
    return "" if value is None else f"{value:,.{digits}f}"


# -- the JSON


def report(cases: Sequence[Case], rounds: Rounds) -> bytes:
    """Everything as JSON: machine, versions, every sample, medians and shares."""
    figures = [
        {
            "case": case.name,
            "unit": case.unit,
            "median": middle(rounds[case.name]),
            "against": case.against,
            "shares": share(case, rounds),
            "share_by_cpu": share_by_cpu(case, rounds),
            "aim": case.aim,
            "samples": rounds[case.name],
        }
        for case in cases
    ]
    return msgspec.json.format(msgspec.json.encode({"time": int(time.time()), "machine": machine(), "figures": figures}))
