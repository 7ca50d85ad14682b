"""Stop the owner of a store in its tracks, let others try to take over, and let it go on or kill it.

    python tests/torture/stop_owner.py [--rounds 10] [--seed 1] [--agents 20]

In each round the trees of `trees.py` work in a process that gets a SIGSTOP at a random moment. While it stands still, it owns the
store: another program hears `StoreInUse` with its pid, `callboard run` ends with 3 and names it, and whoever only reads can read.
Then, by turns, it gets a SIGCONT and goes on as if nothing had been, or a SIGKILL, and the next process takes over at once.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import trio
from kill_agents import CALM_S, Forked, examine, work
from tree_checks import Failed
from trees import TREE, FolderLedger, World, definitions

from callboard import System
from callboard.storage.engines.lmdb_lock import owner_of
from callboard.storage.errors import StoreInUse

AGENT = """from callboard import Agent
from callboard.actors.testing import Reply, ScriptedModel

hello = Agent("hello", model=ScriptedModel([Reply.text("hello")]))
"""
IN_USE = 3
"""How the command line ends when another process owns the store."""
LOOK_S = 0.002


async def who_owns(folder: Path) -> int | None:
    """The process that keeps us from opening the store."""
    try:
        async with System.open(folder / "state", agents=definitions(World(ledger=FolderLedger(folder / "ledger")))):
            return None
    except StoreInUse as error:
        return error.pid


def one_round(folder: Path, *, trees: int, after_s: float, goes_on: bool) -> bool:
    """Stop, try, and go on; False if the owner was through before it could be stopped.

    Raises:
        Failed: somebody took over, or was told something wrong, or something was lost.
    """
    owner = Forked(lambda: trio.run(work, folder, trees, None))
    if not _stopped(owner, folder, after_s):
        owner.end(CALM_S)
        return False
    _try_to_take_over(owner.pid, folder)
    if goes_on:
        os.kill(owner.pid, signal.SIGCONT)
        if owner.end(CALM_S) is None:
            raise Failed("the owner did not go on")
    else:
        os.kill(owner.pid, signal.SIGKILL)
        if owner.end(CALM_S) is not None:
            raise Failed("the owner was killed, and ended well")
        if Forked(lambda: trio.run(work, folder, trees, None)).end(CALM_S) is None:
            raise Failed("the next owner died")
    Forked(lambda: trio.run(examine, folder, True, ())).end(CALM_S)
    return True


def _stopped(owner: Forked, folder: Path, after_s: float) -> bool:
    began = time.monotonic()
    while owner_of(folder / "state") != owner.pid:
        if time.monotonic() - began > CALM_S:
            raise Failed("the owner never owned the store")
        time.sleep(LOOK_S)
    if owner.ended_within(after_s):
        return False
    os.kill(owner.pid, signal.SIGSTOP)
    _, status = os.waitpid(owner.pid, os.WUNTRACED)
    return os.WIFSTOPPED(status)


def _try_to_take_over(pid: int, folder: Path) -> None:
    told = Forked(lambda: [trio.run(who_owns, folder)]).end(CALM_S)
    if told != [pid]:
        raise Failed(f"process {pid} owns the store, and a second one was told {told}")
    (folder / "hello.py").write_text(AGENT)
    command = [
        sys.executable,
        "-P",
        "-m",
        "callboard.net.cli",
        "run",
        str(folder / "state"),
        f"{folder / 'hello.py'}:hello",
        "hi",
    ]
    said = subprocess.run(command, capture_output=True, text=True, timeout=CALM_S, check=False)
    if said.returncode != IN_USE or str(pid) not in said.stderr:
        raise Failed(
            f"callboard run ended with {said.returncode} and said {said.stderr or said.stdout!r}, not {IN_USE} and {pid}"
        )
    Forked(lambda: trio.run(examine, folder, False, ())).end(CALM_S)
    if owner_of(folder / "state") != pid:
        raise Failed("somebody took over")


def torture(*, rounds: int, seed: int, trees: int) -> dict[str, int]:
    """So many rounds in which the owner could be stopped; how many went on, and how many were killed."""
    chance, done = random.Random(seed), {"went on": 0, "were killed": 0}
    while sum(done.values()) < rounds:
        goes_on = sum(done.values()) % 2 == 0
        with tempfile.TemporaryDirectory(prefix="callboard-stop-") as name:
            if one_round(Path(name), trees=trees, after_s=chance.uniform(0, 0.6), goes_on=goes_on):
                done["went on" if goes_on else "were killed"] += 1
    return done


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, default=20)
    options = parser.parse_args()
    began = time.monotonic()
    try:
        done = torture(rounds=options.rounds, seed=options.seed, trees=max(1, options.agents // TREE))
    except Failed as failure:
        print(f"FAILED (seed {options.seed}): {failure}", flush=True)
        return 1
    kinds = ", ".join(f"{times} {kind}" for kind, times in done.items())
    passed = time.monotonic() - began
    print(f"{options.rounds} owners stopped ({kinds}): nobody took over from one that lived, nothing was lost ({passed:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
