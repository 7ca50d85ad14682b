"""The trees of `trees.py` in memory, on a seeded scheduler with virtual time, while everything around them fails.

    python tests/torture/simulate.py [--lives 100] [--seed 1]

One seed gives one life: commits fail or are slow, requests fail or hang, the wall clock is set forward and back, and the process
dies at some commits (what it had committed is all that the next one finds). In the end everything of `tree_checks.py` holds, and
the same seed gives the same records in the same order, so that a seed that fails can be looked at as often as one likes.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import trio
from msgspec import Struct
from tree_checks import Kept, look
from trees import MemoryLedger, World, definitions, live
from trio.testing import MockClock

from callboard import System
from callboard.actors import Limits
from callboard.actors.testing import Reply
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import CommitFailed, StoreError, StoreFull
from callboard.storage.messages import Request
from callboard.storage.records import to_json
from callboard.storage.store import Results, Unit
from callboard.storage.testing import FaultyStore

START = 1_796_112_000
PATIENCE_S = 7 * 86_400
"""Of the mock clock: a life that lasts longer is stuck."""
LIMITS = Limits(recoveries=10_000, depth=3, connect_s=2, first_chunk_s=4, chunk_gap_s=4)
HOUR = 3600


class Chances(Struct, frozen=True):
    """How likely what is, in each commit, request or minute."""

    full: float = 0.05
    slow: float = 0.1
    failed: float = 0.1
    hung: float = 0.03
    jumps: int = 6
    """How often the wall clock is set in a life."""
    deaths: int = 3
    """How often the process dies."""


class Simulated(Struct, frozen=True):
    """What a life left."""

    kept: Kept
    text: str
    """All records, agent by agent, apart from the microseconds that this machine took."""
    happened: Counter[str]


class FlakyStore(FaultyStore):
    """Commits that fail, or take their time; and one behind which the process is dead: nothing is written any more."""

    def __init__(self, inner: MemoryStore, random: Random, chances: Chances, dies_at: int | None, happened: Counter[str]) -> None:
        super().__init__(inner)
        self._random, self._chances, self._left, self._happened = random, chances, dies_at, happened
        self.image: MemoryStore | None = None
        self.scope = trio.CancelScope()

    async def commit(self, units: Sequence[Unit]) -> Results:
        """As the inner store, if nothing happens to it."""
        if self.image is not None:
            await trio.lowlevel.checkpoint()
            raise CommitFailed("this process is dead")
        if self._random.random() < self._chances.slow:
            self._happened["slow commits"] += 1
            await trio.sleep(self._random.uniform(0, 0.5))
        if self._random.random() < self._chances.full:
            self._happened["failed commits"] += 1
            self.fail_next(StoreFull("the disk is full; free some space and send again"))
        results = await super().commit(units)
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._die()
        return results

    def _die(self) -> None:
        assert isinstance(self.inner, MemoryStore)
        self._happened["deaths"] += 1
        self.image = self.inner.copy()
        self.scope.cancel()


class Wall:
    """A wall clock that somebody sets."""

    def __init__(self) -> None:
        self._begin, self.ahead = trio.current_time(), 0.0

    def __call__(self) -> float:
        """Unix seconds, as this clock has them."""
        return START + self.ahead + trio.current_time() - self._begin


def simulate(seed: int, *, trees: int = 2, inputs: int = 2, chances: Chances | None = None) -> Simulated:
    """One life.

    Raises:
        Failed: something does not hold.
        trio.TooSlowError: it hangs.
    """
    sys.path.append(str(Path(__file__).resolve().parents[1] / "actors"))
    try:
        seeded = importlib.import_module("crash_images").seeded
    finally:
        sys.path.pop()
    with seeded(seed, "simulated"):
        simulated: Simulated = trio.run(_life, seed, trees, inputs, chances or Chances(), clock=MockClock(autojump_threshold=0))
    return simulated


async def _life(seed: int, trees: int, inputs: int, chances: Chances) -> Simulated:
    random, happened, ledger, wall = Random(seed), Counter[str](), MemoryLedger(), Wall()
    faults = _faults(seed, chances, happened)
    world = World(ledger=ledger, trees=trees, inputs=inputs, faults=faults, limits=LIMITS)
    store = MemoryStore()
    with trio.fail_after(PATIENCE_S):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_set_clock, wall, random, chances, happened)
            for n in range(chances.deaths + 1):
                dies_at = random.randint(1, 60) if n < chances.deaths else None
                store = await _process(world, FlakyStore(store, random, chances, dies_at, happened), wall) or store
            nursery.cancel_scope.cancel()
    kept = await look(store, ledger, over=True)
    return Simulated(kept, await _text(store), happened)


async def _process(world: World, store: FlakyStore, wall: Wall) -> MemoryStore | None:
    """One process, to its end or to its death; what the next one finds if it died."""
    with store.scope:
        try:
            async with System.open(store, agents=definitions(world), now=wall, grace=0) as system:
                await live(world, system)
        except* StoreError:
            if store.image is None:
                raise
    if store.image is not None:
        await look(store.image, world.ledger, over=False)
    return store.image


async def _set_clock(wall: Wall, random: Random, chances: Chances, happened: Counter[str]) -> None:
    for _ in range(chances.jumps):
        await trio.sleep(random.uniform(0, 1))
        wall.ahead += random.choice((-1, 1)) * random.choice((1, 60, HOUR))
        happened["clock set"] += 1


def _faults(seed: int, chances: Chances, happened: Counter[str]) -> Callable[[Request], Reply | None]:
    """The first attempts of a request fail or hang, as seed, agent, turn, step and attempt have it."""

    def fault(request: Request) -> Reply | None:
        chance = Random(f"{seed} {request.agent} {request.turn} {request.step} {request.attempt}").random()
        if request.attempt > 2 or chance > chances.failed + chances.hung:
            return None
        if chance > chances.failed:
            happened["hung requests"] += 1
            return Reply.hang("let me")
        happened["failed requests"] += 1
        return Reply.fail("SERVER", after="let me")

    return fault


async def _text(store: MemoryStore) -> str:
    page, lines = await store.agents(limit=10_000), list[str]()
    for head in page:
        lines += [f"{head.agent} {to_json(record).decode()}" async for record in store.read(head.agent)]
    return re.sub(r'"us":\d+', '"us":0', "\n".join(lines))


def main() -> int:
    """Simulate many lives; print the seeds that fail, and one closing line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--lives", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1, help="of the first life; the others count up from there")
    options = parser.parse_args()
    logging.getLogger("callboard").setLevel(logging.CRITICAL)
    began, failed, happened, records, digest = time.monotonic(), list[int](), Counter[str](), 0, hashlib.sha256()
    for seed in range(options.seed, options.seed + options.lives):
        try:
            life = simulate(seed)
        except Exception as error:
            failed.append(seed)
            print(f"FAILED: --lives 1 --seed {seed}: {type(error).__name__}: {error}", flush=True)
            if options.lives == 1:
                raise
            continue
        happened += life.happened
        records += life.kept.records
        digest.update(life.text.encode())
    kinds = ", ".join(f"{times} {kind}" for kind, times in sorted(happened.items()))
    passed = time.monotonic() - began
    figures = f"{options.lives} lives, {len(failed)} failed, {records} records, {kinds}, {passed:.0f} s"
    print(f"{figures}, sha256 {digest.hexdigest()[:16]}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
