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
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from . import appends, cancel_tree, floor, followers, idle, listing, opening, turns, year
from .case import Case
from .figures import Rounds, report, table
from .measure import Sample, machine, wait_until_quiet

MODULES = (floor, turns, appends, opening, idle, listing, cancel_tree, followers, year)
CASES: dict[str, Case] = {case.name: case for module in MODULES for case in module.CASES}
NOISY, TRIES, LONGEST_WAIT_S = 0.25, 3, 10.0
"""A repetition during which others used more of the machine than this is taken again; up to so many times; the longest wait
before one."""


def chosen(names: Sequence[str], short: bool) -> list[Case]:
    """The cases to run, those that they are compared with before them."""
    wanted = [CASES[n] for n in names] or [c for c in CASES.values() if c.short or not short]
    needed = {w.against for w in wanted} | {w.name for w in wanted}
    return [c for c in CASES.values() if c.name in needed]


class Patience:
    """How much longer the whole run may wait for a quiet machine, and take again what was disturbed."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def sample(self, case: Case) -> Sample:
        """One repetition. One that others disturbed is taken again while there is patience; the quietest counts."""
        taken: list[Sample] = []
        for _ in range(TRIES):
            start = time.monotonic()
            wait_until_quiet(longest_s=min(self.left, LONGEST_WAIT_S))
            waited = time.monotonic() - start
            taken.append(one(case))
            self.left -= waited if len(taken) == 1 else time.monotonic() - start
            if (taken[-1].others or 0.0) <= NOISY or self.left <= 0:
                break
        return min(taken, key=lambda s: s.others or 0.0)


def one(case: Case) -> Sample:
    """One sample, in a process of its own."""
    command = [sys.executable, "-m", "bench", "--one", case.name]
    done = subprocess.run(command, capture_output=True, cwd=Path(__file__).resolve().parent.parent, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{case.name} failed:\n{done.stderr.decode(errors='replace')}")
    return msgspec.json.decode(done.stdout.splitlines()[-1], type=Sample)


def run(cases: Sequence[Case], repetitions: int, patience: Patience) -> Rounds:
    """All cases once, then all again."""
    rounds: Rounds = {case.name: [] for case in cases}
    for number in range(repetitions):
        for case in cases:
            note(f"round {number + 1} of {repetitions}: {case.name}")
            rounds[case.name].append(patience.sample(case))
    note("")
    return rounds


def note(text: str) -> None:
    """Where we are, on a terminal alone."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Callboard's benchmarks.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"one of: {', '.join(CASES)}")
    parser.add_argument("--short", action="store_true", help="the main cases, twice")
    parser.add_argument("--repeat", type=int, metavar="N", help="repetitions of each case (5; 2 with --short)")
    parser.add_argument(
        "--wait", type=float, default=120.0, metavar="S", help="how long to wait for a quiet machine, in all (120)"
    )
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
    rounds = run(cases, options.repeat or (2 if options.short else 5), Patience(options.wait))
    print(", ".join(f"{k} {v}" for k, v in machine().items()) + "\n\n" + table(cases, rounds))
    if options.out is not None:
        options.out.write_bytes(report(cases, rounds) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
