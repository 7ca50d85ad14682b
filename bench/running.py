"""Taking samples: each case in a process of its own, all cases once and then all again, and patience with a noisy machine.

A repetition that others disturbed is taken again, and the quietest of them counts; how long a whole run may wait in all is
bounded, so that it ends on a machine that is never quiet.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from .case import Case
from .figures import Rounds
from .measure import Sample, wait_until_quiet

NOISY, TRIES, LONGEST_WAIT_S = 0.25, 3, 10.0
"""A repetition during which others used more of the machine than this is taken again; up to so many times; the longest wait
before one."""


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


def run(cases: Sequence[Case], repetitions: int, patience: Patience, keep: Callable[[Rounds], object]) -> Rounds:
    """All cases once, then all again; `keep` gets what there is after each round, so that a run may be cut short."""
    rounds: Rounds = {case.name: [] for case in cases}
    for number in range(repetitions):
        for case in cases:
            note(f"round {number + 1} of {repetitions}: {case.name}")
            rounds[case.name].append(patience.sample(case))
        keep(rounds)
    note("")
    return rounds


def note(text: str) -> None:
    """Where we are, on a terminal alone."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
