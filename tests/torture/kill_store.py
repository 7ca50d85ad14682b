"""Kill a process that commits as fast as it can, and see that nothing it acknowledged is lost.

    python tests/torture/kill_store.py FOLDER --rounds 50

Each round starts a child that opens the store, appends to several agents, forks and deletes, and prints what is on disk
*after* each commit returned. A SIGKILL at a random moment ends it. The parent then opens the folder (no lock may be left),
reads every log, and compares: all that was acknowledged is there, nothing is half there, seqs are dense, ids and blobs are
found, and what was acknowledged as deleted is gone.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from callboard.storage.conformance_kit import batch, chunks, created, put, seqs
from callboard.storage.errors import StoreError
from callboard.storage.events import LogForked
from callboard.storage.opening import open_store
from callboard.storage.records import Record
from callboard.storage.store import Delete, Fork, Store, Unit

AGENTS = 8
Tell = Callable[..., None]


# -- the child


async def commit_for_ever(folder: str, seed: int) -> None:
    """Write pairs of agents in one unit, so that half a unit would show; now and then fork and delete."""

    def tell(what: str, **facts: object) -> None:
        sys.stdout.write(json.dumps({"what": what, **facts}) + "\n")
        sys.stdout.flush()

    chance = random.Random(seed)
    async with open_store(folder) as store:
        tell("open")
        ends = {h.agent: h.last for h in await store.agents(limit=1000)}
        epochs = {agent: await store.own(agent) for agent in (f"a{i}" for i in range(AGENTS))}
        while True:
            await _pair(store, chance, epochs, ends, tell)
            if chance.random() < 0.05:
                await _fork_and_delete(store, chance, ends, tell)


async def _pair(store: Store, chance: random.Random, epochs: dict[str, int], ends: dict[str, int], tell: Tell) -> None:
    units: list[Unit] = []
    told: dict[str, int] = {}
    names = chance.sample(sorted(epochs), 4)
    for pair in (names[:2], names[2:]):
        unit: list[Any] = []
        for agent in pair:
            last = ends.get(agent, -1)
            items: list[Any] = [created(agent)] if last < 0 else []
            seq = last + 1 + len(items)
            items += [put(seq, f"{agent}-{seq}"), chunks(seq + 1, chance.randint(1, 30))]
            digest = f"{chance.randint(0, 999):064}"
            blobs = {digest: digest.encode() * chance.randint(1, 100)}
            unit.append(batch(agent, epochs[agent], items, ids={f"{agent}-{seq}": seq}, blobs=blobs))
            told[agent] = items[-1].last
        units.append(unit)
    assert await store.commit(units) == [None, None]
    ends.update(told)
    tell("written", ends=told)


async def _fork_and_delete(store: Store, chance: random.Random, ends: dict[str, int], tell: Tell) -> None:
    source = chance.choice([a for a in ends if a.startswith("a")])
    at = chance.randint(0, ends[source])
    name = f"fork {chance.randint(0, 9)}"
    epoch = await store.own(name)
    if name in ends:
        assert await store.commit([[Delete(name, epoch)]]) == [None]
        del ends[name]
        tell("deleted", agent=name)
        return
    first = Record(at + 1, 9000, LogForked(agent=name, name="t", source=source, at=at))
    assert await store.commit([[Fork(name, epoch, source, at), batch(name, epoch, [first])]]) == [None]
    ends[name] = at + 1
    tell("forked", agent=name, ends={name: at + 1})


# -- the parent


class Known:
    """What was acknowledged, over all rounds."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.told = 0

    def hear(self, line: str) -> None:
        """Take in one line of the child; half a line says nothing."""
        try:
            fact = json.loads(line)
        except json.JSONDecodeError:
            return
        self.told += 1
        self.ends.update(fact.get("ends", {}))
        if fact["what"] == "deleted":
            self.ends.pop(fact["agent"], None)


def run_round(folder: Path, known: Known, seed: int, lives_s: float, *, commits: bool) -> None:
    """One child from start to kill, which comes `lives_s` after it has opened the store, or has told of its first commit."""
    command = [sys.executable, __file__, str(folder), "--child", str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        assert json.loads(first)["what"] == "open", f"the child could not open the store: {first!r}"
        if commits:
            known.hear(child.stdout.readline())
        trio.run(trio.sleep, lives_s)
        child.send_signal(signal.SIGKILL)
        for line in child.stdout:
            known.hear(line)


async def examine(folder: Path, known: Known, *, readonly: bool) -> list[str]:
    """What is wrong with the store; nothing, if all is well. Takes over what the last commit wrote without being heard."""
    wrong: list[str] = []
    async with open_store(folder, readonly=readonly) as store:
        heads = {h.agent: h.last for h in await store.agents(limit=1000)}
        for agent, last in known.ends.items():
            # The child may have committed once more than it could tell: more records, or a fork that is gone.
            if heads.get(agent, last if agent.startswith("fork") else -1) < last and not agent.startswith("fork"):
                wrong.append(f"{agent} ends at {heads.get(agent)}, but {last} was acknowledged")
        lost = [a for a in known.ends if a not in heads]
        if len(lost) > 1:
            wrong.append(f"{lost} are gone, and only one delete can have been unheard")
        for agent, last in heads.items():
            wrong += await _examine_log(store, agent, last)
        known.ends = heads
    return wrong


async def _examine_log(store: Store, agent: str, last: int) -> list[str]:
    wrong: list[str] = []
    if await seqs(store, agent) != list(range(last + 1)):
        wrong.append(f"{agent} is not dense up to {last}")
    if not agent.startswith("fork"):
        async for record in store.read(agent, types={"inbox/put"}):
            if await store.find(agent, f"{agent}-{record.seq}") != record.seq:
                wrong.append(f"message {record.seq} of {agent} is not found")
    return wrong


def torture(folder: Path, rounds: int, seed: int = 0) -> tuple[Known, list[str]]:
    """Rounds of kills; what was acknowledged, and what is wrong after them."""
    chance, known, wrong = random.Random(seed), Known(), list[str]()
    for n in range(rounds):
        run_round(folder, known, seed * 1000 + n, chance.uniform(0.0, 0.25), commits=n % 2 == 1)
        for readonly in (True, False):
            try:
                wrong += [f"round {n}: {w}" for w in trio.run(partial(examine, folder, known, readonly=readonly))]
            except StoreError as e:
                wrong.append(f"round {n}: {e}")
        if wrong:
            break
    return known, wrong


def main() -> int:
    """The command line; answers 1 if anything was lost."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="of the store; a temporary one if none is given")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        trio.run(commit_for_ever, str(options.folder), options.child)
    with tempfile.TemporaryDirectory() as temporary:
        known, wrong = torture(options.folder or Path(temporary) / "store", options.rounds, options.seed)
    print(f"{options.rounds} kills, {known.told} commits acknowledged, {sum(known.ends.values())} records, {len(wrong)} problems")
    print(*wrong, sep="\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
