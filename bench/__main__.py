"""The benchmarks: `python -m bench`, or `make bench`.

    python -m bench                      every case, five repetitions each
    python -m bench --short              the main cases, twice
    python -m bench "turn x200"          some cases, with the floors they are compared with
    python -m bench --out figures.json   the figures with machine and versions, for keeping

Repetitions are interleaved (all cases once, then all again), so that a slow minute hits all alike; each runs in a process of its
own, so that none inherits another's memory. Figures are medians, ratios are taken within one round, and every line says how
much of the machine others used meanwhile. Trust a ratio of 1.3, not of 1.1.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from . import appends, floor, opening, turns
from .case import Case
from .measure import Sample, machine, middle, wait_until_quiet

CASES: dict[str, Case] = {case.name: case for case in (*floor.CASES, *turns.CASES, *appends.CASES, *opening.CASES)}
Rounds = dict[str, list[Sample]]


def chosen(names: Sequence[str], short: bool) -> list[Case]:
    """The cases to run, those that they are compared with before them."""
    wanted = [CASES[n] for n in names] or [c for c in CASES.values() if c.short or not short]
    needed = {w.against for w in wanted} | {w.name for w in wanted}
    return [c for c in CASES.values() if c.name in needed]


def sample(case: Case, longest_s: float) -> Sample:
    """One repetition, in a process of its own."""
    wait_until_quiet(longest_s=longest_s)
    command = [sys.executable, "-m", "bench", "--one", case.name]
    done = subprocess.run(command, capture_output=True, cwd=Path(__file__).resolve().parent.parent, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{case.name} failed:\n{done.stderr.decode(errors='replace')}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Sample)


def run(cases: Sequence[Case], repetitions: int, longest_s: float) -> Rounds:
    """All cases once, then all again."""
    rounds: Rounds = {case.name: [] for case in cases}
    for number in range(repetitions):
        for case in cases:
            note(f"round {number + 1} of {repetitions}: {case.name}")
            rounds[case.name].append(sample(case, longest_s))
    note("")
    return rounds


def note(text: str) -> None:
    """Where we are, on a terminal alone."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def share(case: Case, rounds: Rounds) -> list[float]:
    """The case's rate as a share of what it is compared with, round by round."""
    if case.against is None:
        return []
    return [mine.per_s / its.per_s for mine, its in zip(rounds[case.name], rounds[case.against], strict=True)]


# -- what is shown and kept


def table(cases: Sequence[Case], rounds: Rounds) -> str:
    """The figures as a table for people (it is markdown, too)."""
    head = (
        "case",
        "per s",
        "of its floor",
        "aim",
        "p50 ms",
        "p99 ms",
        "CPU us",
        "flushes",
        "file B",
        "written B",
        "MB",
        "others",
    )
    rows = [head, tuple("---" for _ in head)]
    for case in cases:
        s, shares = middle(rounds[case.name]), share(case, rounds)
        ratio = f"{statistics.median(shares):.2f} ({min(shares):.2f}-{max(shares):.2f})" if shares else ""
        counts = (figure(s.flushes, 2), figure(s.file_bytes), figure(s.written_bytes), figure(s.rss_mb), figure(s.others, 2))
        rows.append(
            (
                case.name,
                figure(s.per_s),
                ratio,
                figure(case.aim, 2),
                figure(s.p50_ms, 2),
                figure(s.p99_ms, 2),
                figure(s.cpu_us),
                *counts,
            )
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows)


def figure(value: float | None, digits: int = 0) -> str:
    """A number as people read it; nothing if it is unknown."""
    return "" if value is None else f"{value:,.{digits}f}"


def report(cases: Sequence[Case], rounds: Rounds) -> bytes:
    """Everything as JSON: machine, versions, every sample, medians and shares."""
    figures = [
        {
            "case": case.name,
            "unit": case.unit,
            "median": middle(rounds[case.name]),
            "against": case.against,
            "shares": share(case, rounds),
            "aim": case.aim,
            "samples": rounds[case.name],
        }
        for case in cases
    ]
    return msgspec.json.format(msgspec.json.encode({"time": int(time.time()), "machine": machine(), "figures": figures}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Callboard's benchmarks.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of: {', '.join(CASES)}")
    parser.add_argument("--short", action="store_true", help="the main cases, twice")
    parser.add_argument("--repeat", type=int, metavar="N", help="repetitions of each case (5; 2 with --short)")
    parser.add_argument("--wait", type=float, default=20.0, metavar="S", help="how long to wait for a quiet machine (20)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument("--one", metavar="CASE", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for name in (*options.cases, *([options.one] if options.one else [])):
        if name not in CASES:
            parser.error(f"there is no case {name!r}; the cases are: {', '.join(CASES)}")
    if options.one:
        print(msgspec.json.encode(CASES[options.one].run()).decode())
        return 0
    cases = chosen(options.cases, options.short)
    rounds = run(cases, options.repeat or (2 if options.short else 5), options.wait)
    print(", ".join(f"{k} {v}" for k, v in machine().items()) + "\n\n" + table(cases, rounds))
    if options.out is not None:
        options.out.write_bytes(report(cases, rounds) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
