"""The long form of the proof: as many random lives as asked for, each with every prefix of its logs recovered in both modes.

    python tests/actors/prove.py --lives 1000 --seed 7

It says how far it is, and at the end how many lives, prefixes and which seed. What fails is made smaller first; then its program
is printed, and it ends with 1. The same seed looks at the same lives.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Callable
from random import SystemRandom
from typing import Any, cast

from hypothesis import HealthCheck, Phase, given, seed, settings
from life_scripts import Life, lives
from proof import program, run
from smaller import smallest

EVERY_S = 10
"""Between two lines of progress."""


class Progress:
    """What has been proved so far, said now and then."""

    def __init__(self, wanted: int, seed: int) -> None:
        self.wanted, self.seed = wanted, seed
        self.lives = self.recoveries = 0
        self._start = self._said = time.monotonic()

    def one(self, recoveries: int) -> None:
        """One more life."""
        self.lives, self.recoveries = self.lives + 1, self.recoveries + recoveries
        if time.monotonic() - self._said > EVERY_S:
            self._said = time.monotonic()
            self.say(f"{self.lives} of {self.wanted} lives")

    def say(self, what: str) -> None:
        """A line."""
        passed = time.monotonic() - self._start
        sys.stderr.write(f"{what}, {self.recoveries} crashes recovered, seed {self.seed}, {passed:.0f} s\n")
        sys.stderr.flush()


def prove(count: int, number: int) -> Progress:
    """Prove so many lives.

    Raises:
        AssertionError: one does not hold; its notes have the program.
    """
    progress = Progress(count, number)
    phases = [Phase.generate]  # a life is made small by its own pieces

    @seed(number)
    @settings(max_examples=count, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=phases)
    @given(lives)
    def each(life: Life) -> None:
        progress.one(smallest_failure(life, say=progress.say))

    each()
    return progress


def smallest_failure(life: Life, say: Callable[[str], None]) -> int:
    """Prove a life, and give the number of its recoveries; one that does not hold is made smaller, and fails."""
    try:
        return run(life).recoveries
    except Exception as error:
        say("a life does not hold; looking for the smallest that does not")
        kind = innermost(error)
    run(smallest(life, lambda smaller: fails(smaller) is kind))
    raise AssertionError(f"it fails, but not always:\n{program(life)}")


def fails(life: Life) -> type[BaseException] | None:
    """How it does not hold, None if it does. A life that is no life any more fails in another way than the one that was found."""
    try:
        run(life)
    except Exception as error:
        return innermost(error)
    return None


def innermost(error: BaseException) -> type[BaseException]:
    """The class of the first error in a group of them."""
    inner: Any = error
    while isinstance(inner, BaseExceptionGroup):
        inner = cast("Any", inner).exceptions[0]
    return cast("type[BaseException]", type(inner))


def main() -> None:
    """Read the options, prove, and say what was proved."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--lives", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--seed", type=int, default=None, help="of all choices; a new one if none is given")
    options = parser.parse_args()
    logging.getLogger("callboard").setLevel(logging.CRITICAL)  # plugins of a life throw on purpose
    number: int = SystemRandom().randrange(2**32) if options.seed is None else options.seed
    sys.stderr.write(f"{options.lives} lives, seed {number}\n")
    try:
        progress = prove(options.lives, number)
    except Exception:
        sys.stderr.write(f"--lives {options.lives} --seed {number} fails:\n")
        raise
    progress.say(f"{progress.lives} lives hold")


if __name__ == "__main__":
    main()
