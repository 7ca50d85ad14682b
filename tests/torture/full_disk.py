"""Fill the disk under a running system, free it again, and see that it goes on, and that nothing acknowledged is lost.

    python tests/torture/full_disk.py [--fills 20] [--seed 1] [--agents 20]

The trees of `trees.py` work in a process whose store may suddenly not grow any more (RLIMIT_FSIZE, which this process sets for
itself). While the disk is full, a send must raise `StoreFull`, and no other error; what is on disk must stay readable. When it is
free again, the same system has to go on by itself, to the end.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trio
from kill_agents import CALM_S, Forked
from tree_checks import Failed, look
from trees import TREE, FolderLedger, World, definitions, live

from callboard import Agent, System
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage.errors import CommitFailed, StoreFull
from callboard.storage.opening import open_store
from callboard.storage.store import Results, Store, Unit
from callboard.storage.testing import FaultyStore

LARGE = "x" * 100_000
"""What the probe sends: more than fits into the pages that were freed."""
NEXT_S = 0.3
"""Between two fills, at most."""
FULL_S = 0.1
"""How long the disk stays full."""


class Watched(FaultyStore):
    """Notes the errors of commits by name."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.errors: dict[str, int] = {}

    async def commit(self, units: Sequence[Unit]) -> Results:
        """As the inner store."""
        try:
            return await self.inner.commit(units)
        except Exception as error:
            name = type(error).__name__ if isinstance(error, StoreFull) else f"{type(error).__name__}: {error}"
            self.errors[name] = self.errors.get(name, 0) + 1
            raise


async def work(folder: Path, trees: int, fills: int, seed: int) -> dict[str, int]:
    """The trees, and somebody who fills the disk; the errors of commits by name."""
    world = World(ledger=FolderLedger(folder / "ledger"), trees=trees, inputs=fills)
    probe: Agent[Any, Any] = Agent("probe", model=ScriptedModel(lambda request: Reply.text("heard")), plugins=())
    async with open_store(folder / "state", map_size=1 << 26) as engine:
        store = Watched(engine)
        async with System.open(store, agents=[*definitions(world), probe]) as system, trio.open_nursery() as nursery:
            await system.spawn(probe, id="probe")
            nursery.start_soon(live, world, system)
            for n in range(fills):
                await trio.sleep(random.Random(seed * 1_000 + n).uniform(0, NEXT_S))
                await _full(system, folder, f"probe-{n}")
        await look(engine, world.ledger, over=True)
        return store.errors


async def _full(system: System, folder: Path, id: str) -> None:
    """Fill the disk, see that a send is refused by name, free it, and see that the same send goes through."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "state" / "data.mdb").stat().st_size, hard))
    try:
        await _refused(system, id)
        async with open_store(folder / "state", readonly=True) as reader:
            assert await reader.head("probe") is not None
        await trio.sleep(FULL_S)  # in which the trees run into it
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with trio.fail_after(CALM_S):
        while True:
            try:
                outcome = await (await system.get("probe")).ask(LARGE, message_id=id)
            except CommitFailed:  # of a commit that was under way
                await trio.sleep(NEXT_S / 10)
                continue
            assert outcome.ok, outcome
            return


async def _refused(system: System, id: str) -> None:
    """Pages that were freed may take a few messages; then there is no room for another."""
    for n in range(1_000):
        try:
            await (await system.get("probe")).followup(LARGE, message_id=id if n == 0 else f"{id}-{n}")
        except StoreFull:
            return
    raise Failed("the disk is full, and everything goes in")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--fills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, default=20)
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="callboard-full-") as name:
        trees = max(1, options.agents // TREE)
        try:
            errors: Any = Forked(lambda: trio.run(work, Path(name), trees, options.fills, options.seed)).end(
                CALM_S + options.fills
            )
            if set(errors) != {"StoreFull"}:
                raise Failed(f"commits on a full disk raised {errors}")
        except Failed as failure:
            print(f"FAILED (seed {options.seed}): {failure}", flush=True)
            return 1
    passed = time.monotonic() - began
    refused = errors["StoreFull"]
    print(f"the disk was full {options.fills} times, {refused} commits refused as StoreFull, nothing lost ({passed:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
