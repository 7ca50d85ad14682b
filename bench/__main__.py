"""The benchmarks: `python -m bench`, or `make bench`.

    python -m bench                      every case, five repetitions each
    python -m bench --short              the main cases, twice
    python -m bench "turn x200"          some cases, with the floors they are compared with
    python -m bench --peers              turns, tool turns and the same on other people's runtimes
    python -m bench --out figures.json   the figures with machine and versions, for keeping
    python -m bench --compare bench/baseline.json     what moved since then, beyond the noise

Repetitions are interleaved (all cases once, then all again), so that a slow minute hits all alike; each runs in a process of its
own, so that none inherits another's memory. Figures are medians, ratios are taken within one round, and every line says how
much of the machine others used meanwhile. Trust a ratio of 1.3, not of 1.1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from . import (
    active,
    aims,
    appends,
    cancel_tree,
    curves,
    floor,
    followers,
    idle,
    listing,
    mail,
    opening,
    replay,
    restart,
    spawning,
    turns,
    year,
)
from .case import Case
from .compare import Run, compare, told
from .figures import Rounds, report, table
from .measure import machine
from .peers import cases as peers
from .peers import standings
from .running import Patience, run

MODULES = (
    *(floor, turns, appends, mail, spawning, opening, idle, active, listing, restart, replay),
    *(cancel_tree, followers, curves, year),
)
CASES: dict[str, Case] = {case.name: case for module in (*MODULES, peers) for case in module.CASES}


def chosen(names: Sequence[str], short: bool, with_peers: bool) -> list[Case]:
    """The cases to run, those that they are compared with before them."""
    if with_peers:
        names = [*names, *(case.name for case in peers.CASES)]
    wanted = [CASES[n] for n in names] or [c for m in MODULES for c in m.CASES if c.short or not short]
    needed = {w.name for w in wanted}
    while more := {floor for n in needed if (floor := CASES[n].against) is not None} - needed:
        needed |= more
    return [c for c in CASES.values() if c.name in needed]


def say(cases: Sequence[Case], rounds: Rounds) -> None:
    """Print what people read: the machine, the figures, the aims, and where we stand among peers."""
    print(", ".join(f"{k} {v}" for k, v in machine().items()) + "\n\n" + table(cases, rounds))
    if found := list(aims.results(rounds)):
        print("\n" + aims.table(found))
    if lines := standings.aims(rounds):
        print("\n" + standings.table(rounds) + "\n\n" + "\n".join(lines))


def parser() -> argparse.ArgumentParser:
    """The words of the command."""
    words = argparse.ArgumentParser(prog="python -m bench", description="Callboard's benchmarks.")
    words.add_argument("cases", nargs="*", metavar="CASE", help=f"one of: {', '.join(CASES)}")
    words.add_argument("--short", action="store_true", help="the main cases, twice")
    words.add_argument("--peers", action="store_true", help="the same turns on other runtimes; their environments are made")
    words.add_argument("--repeat", type=int, metavar="N", help="repetitions of each case (5; 2 with --short)")
    words.add_argument(
        "--wait", type=float, metavar="S", help="how long to wait for a quiet machine, in all (120; 15 with --short)"
    )
    words.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    words.add_argument("--compare", type=Path, metavar="FILE", help="tell what moved beyond the noise since that run")
    words.add_argument("--fail", action="store_true", help="with --compare: exit with 1 if a figure is worse")
    words.add_argument("--one", metavar="CASE", help=argparse.SUPPRESS)
    return words


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code."""
    words = parser()
    options = words.parse_args(arguments)
    for name in (*options.cases, *([options.one] if options.one else [])):
        if name not in CASES:
            words.error(f"there is no case {name!r}; the cases are: {', '.join(CASES)}")
    if options.one:
        print(msgspec.json.encode(CASES[options.one].run()).decode())
        return 0
    before = None if options.compare is None else msgspec.json.decode(options.compare.read_bytes(), type=Run)
    cases = chosen(options.cases, options.short, options.peers)

    def keep(rounds: Rounds) -> None:
        if options.out is not None:
            options.out.write_bytes(report(cases, rounds) + b"\n")

    repetitions, wait = (2, 15.0) if options.short else (5, 120.0)
    patience = Patience(wait if options.wait is None else options.wait)
    rounds = run(cases, options.repeat or repetitions, patience, keep)
    say(cases, rounds)
    if before is None:
        return 0
    changes = compare(before, msgspec.json.decode(report(cases, rounds), type=Run))
    print("\n" + told(changes))
    return int(options.fail and any(c.verdict == "worse" for c in changes))


if __name__ == "__main__":
    sys.exit(main())
