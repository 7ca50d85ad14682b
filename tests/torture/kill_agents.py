"""Kill -9 a system of fifty agents in trees, at every commit point in turn and at random moments, and look what is left.

    python tests/torture/kill_agents.py [--kills 1000] [--seed 1] [--agents 50]

A life is a fresh folder in which the trees of `trees.py` work, and beside them what `sides.py` cancels, forks and deletes. Its
first kill falls at the next commit point (before the commit, behind it, or within), its second at one of the commits of the
recovery, the others at random moments. After each kill the store and the ledgers must agree (`tree_checks.py`); then the next
process goes on. The last one runs through, and leaves nothing open.

Every process is a fork of this one, which holds no thread and no store, so that a life costs what it does and no imports.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import trio
from msgspec import Struct
from tree_checks import Failed, Kept, look
from trees import TREE, FolderLedger, World, definitions, live

from callboard import System
from callboard.storage.errors import StoreError
from callboard.storage.opening import open_store
from callboard.storage.store import Results, Store, Unit
from callboard.storage.testing import FaultyStore

KILLS_A_LIFE = 5
RECOVERY = 12
"""Commits of a recovery that are killed in turn."""
CALM_S = 120
"""A run that nobody kills is stuck after so long."""
EVERY_S = 10
"""Between two lines of progress."""
FIGURES = (
    "records",
    "turns",
    "resumes",
    "payments",
    "unknown",
    "children",
    "mail",
    "timers",
    "answers",
    "inputs",
    "forks",
    "cancels",
    "deletes",
    "ends",
)

Place = Literal["before", "behind", "within"]


class At(Struct, frozen=True):
    """Kill at the commit of this number, from 1."""

    commit: int
    place: Place


# -- the process that is killed


class Doomed(FaultyStore):
    """A store whose process kills itself at one of its commits."""

    def __init__(self, inner: Store, at: At) -> None:
        super().__init__(inner)
        self._left, self._place = at.commit, at.place

    async def commit(self, units: Sequence[Unit]) -> Results:
        """As the inner store, unless it is the one."""
        self._left -= 1
        if self._left == 0 and self._place == "before":
            die()
        if self._left == 0 and self._place == "within":
            threading.Timer(random.uniform(0, 0.002), die).start()
        results = await self.inner.commit(units)
        if self._left == 0:
            die()
        return results


def die() -> None:
    """As the power goes."""
    os.kill(os.getpid(), signal.SIGKILL)


async def work(folder: Path, trees: int, at: At | None) -> None:
    """One life of the process, to its end or to the commit at which it dies."""
    world = World(ledger=FolderLedger(folder / "ledger"), trees=trees, beside=True)
    async with open_store(folder / "state") as engine:
        store = engine if at is None else Doomed(engine, at)
        async with System.open(store, agents=definitions(world)) as system:
            await live(world, system)


# -- the processes that look


async def examine(folder: Path, over: bool, seen: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """Check store and ledgers; the results that are kept by now, and figures."""
    try:
        async with open_store(folder / "state", readonly=True) as store:
            kept = await look(store, FolderLedger(folder / "ledger"), over=over)
    except StoreError as error:
        # Killed while the store was being created: there is none yet, and that is what a reader is told.
        if over or "there is no store" not in error.message:
            raise Failed(f"after a kill: {error}") from error
        kept = Kept()
    if lost := set(seen) - kept.finished:
        raise Failed(f"results that were on disk are gone: {sorted(lost)[:3]}")
    return sorted(kept.finished), figures(kept, folder)


def figures(kept: Kept, folder: Path) -> dict[str, int]:
    """What the closing line adds up."""
    counts = (kept.records, len(kept.turns), kept.resumes, len(FolderLedger(folder / "ledger").lines("payments")), kept.unknown)
    around = (len(kept.spawned), len(kept.mail), len(kept.fired), len(kept.answers))
    inputs = sum(key.startswith("lead-") and "#" not in key for key in kept.completed)
    ledger = FolderLedger(folder / "ledger")
    beside = tuple(len(set(ledger.lines(book))) for book in ("forks", "cancels", "deleted"))
    ends = sum(kind == "interrupted" for kind in kept.turns.values())
    return dict(zip(FIGURES, (*counts, *around, inputs, *beside, ends), strict=True))


# -- the process that kills


class Torture:
    """Lives and kills, counted."""

    def __init__(self, *, kills: int, seed: int, trees: int, say: Callable[[str], None]) -> None:
        self.wanted, self.trees, self.say = kills, trees, say
        self.random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.lives, self.total = 0, Counter[str]()
        self._points, self._recovery = itertools.count(1), itertools.cycle(range(1, RECOVERY + 1))
        self._places: itertools.cycle[Place] = itertools.cycle(("before", "behind", "within"))
        self._lasts_s = 0.0
        self._began = self._said = time.monotonic()

    def run(self) -> None:
        """Kill as often as wanted.

        Raises:
            Failed: something was lost, done twice, or cannot be read.
        """
        began = time.monotonic()
        self._in_folder(lambda folder: self._finish(folder))
        self._lasts_s = time.monotonic() - began
        self._began = time.monotonic()
        while self.kills.total() < self.wanted:
            self._in_folder(self._life)

    def _in_folder(self, do: Callable[[Path], None]) -> None:
        with tempfile.TemporaryDirectory(prefix="callboard-kill-") as name:
            try:
                do(Path(name))
            except Failed as failure:
                kept = Path(tempfile.mkdtemp(prefix="callboard-failed-"))
                Path(name).rename(kept / "life")
                Path(name).mkdir()
                raise Failed(f"{failure}\n(kept in {kept / 'life'})") from failure

    def _life(self, folder: Path) -> None:
        finished: list[str] = []
        for n in range(min(KILLS_A_LIFE, self.wanted - self.kills.total())):
            at = self._point(n)
            looks = len(FolderLedger(folder / "ledger").lines("looks"))
            if not self._killed(folder, at):
                break
            self.kills["at a random moment" if at is None else f"{at.place} a commit"] += 1
            finished = self._look(folder, finished, looks, over=False)
            self._progress()
        self._finish(folder, finished)
        self.lives += 1

    def _point(self, kill: int) -> At | None:
        """Where this kill of a life falls; None: anywhere."""
        if kill > 1:
            return None
        return At(next(self._points if kill == 0 else self._recovery), next(self._places))

    def _killed(self, folder: Path, at: At | None) -> bool:
        """One life of a process; False if it came to its end."""
        process = Forked(lambda: trio.run(work, folder, self.trees, at))
        if at is None:
            process.kill_after(self.random.uniform(0.02, self._lasts_s))
        killed = process.end(CALM_S) is None
        if not killed and at is not None and at.commit > RECOVERY:
            self._points = itertools.count(1)  # a life has no more commits than that: from the start again
        return killed

    def _finish(self, folder: Path, finished: Sequence[str] = ()) -> None:
        """The last process of a life runs through."""
        looks = len(FolderLedger(folder / "ledger").lines("looks"))
        if Forked(lambda: trio.run(work, folder, self.trees, None)).end(CALM_S) is None:
            raise Failed("a process that nobody killed died")
        self._look(folder, finished, looks, over=True)

    def _look(self, folder: Path, finished: Sequence[str], looks: int, *, over: bool) -> list[str]:
        """Examine what is left; `finished`: the safe calls that had a result before the process, which ran `looks` and later."""
        again = set(finished).intersection(FolderLedger(folder / "ledger").lines("looks")[looks:])
        if again:
            raise Failed(f"bodies with a result ran again: {sorted(again)[:3]}")
        said: Any = Forked(lambda: trio.run(examine, folder, over, finished)).end(CALM_S)
        if said is None:
            raise Failed("the process that looks died")
        if over:
            self.total.update(said[1])
        return list(said[0])

    def _progress(self) -> None:
        if time.monotonic() - self._said < EVERY_S:
            return
        self._said, kills = time.monotonic(), self.kills.total()
        rate = kills / (self._said - self._began)
        left = (self.wanted - kills) / rate
        self.say(f"{kills} of {self.wanted} kills, {rate:.1f} a second, {left / 60:.1f} minutes left")

    def closing(self) -> str:
        """One line of figures."""
        kinds = ", ".join(f"{times} {kind}" for kind, times in sorted(self.kills.items()))
        work = ", ".join(f"{self.total[name]} {name}" for name in FIGURES)
        passed, agents = time.monotonic() - self._began, self.trees * TREE
        return (
            f"{datetime.now(UTC):%Y-%m-%d}: {self.kills.total()} kills ({kinds}) in {self.lives} lives of {agents} agents, "
            f"{passed:.0f} s: 0 inputs lost, 0 effects repeated, 0 brackets unclosed, 0 problems in verify ({work})"
        )


class Forked:
    """A process that does one thing and says what came of it, or dies."""

    def __init__(self, do: Callable[[], Any]) -> None:
        self._read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _be_child(write, do)
        os.close(write)

    def ended_within(self, seconds: float) -> bool:
        """Whether it ends, or says something, in so many seconds."""
        return bool(select.select([self._read], [], [], seconds)[0])

    def kill_after(self, seconds: float) -> None:
        """Kill it, unless it ends before."""
        if not self.ended_within(seconds):
            os.kill(self.pid, signal.SIGKILL)

    def end(self, within_s: float) -> Any:
        """What it says, in a list; None if it was killed.

        Raises:
            Failed: it failed, or does not end.
        """
        if not self.ended_within(within_s):
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise Failed(f"the process did not end in {within_s} s")
        with os.fdopen(self._read, "rb") as pipe:
            said = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        if code == -signal.SIGKILL:
            return None
        if code != 0:
            raise Failed(said.decode(errors="replace") or f"the process ended with {code}")
        return msgspec.json.decode(said)


def _be_child(write: int, do: Callable[[], Any]) -> None:
    code, said = 1, b""
    try:
        said, code = msgspec.json.encode(do() or []), 0
    except BaseException:
        said = traceback.format_exc()[-4000:].encode()
    finally:
        while said:
            said = said[os.write(write, said) :]
        os._exit(code)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, default=50)
    options = parser.parse_args()
    torture = Torture(
        kills=options.kills, seed=options.seed, trees=max(1, options.agents // TREE), say=lambda line: print(line, flush=True)
    )
    try:
        torture.run()
    except Failed as failure:
        print(f"FAILED (seed {options.seed}, behind {torture.kills.total()} kills): {failure}", flush=True)
        return 1
    print(torture.closing(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
