"""Kill -9 the demo at random moments, and see that nobody could tell afterwards.

    python tests/torture/kill_demo.py [--kills 50] [--seed 1] [--files 12]

A folder is read once undisturbed. Then it is read again and again with a fresh state, each run killed a few times at random
moments and started again until it is through. After each kill the store is read: it must verify, and the tool calls whose
results are on disk are noted. In the end the report must be the undisturbed one byte for byte, no noted call may have run once
more (the tools write a ledger outside the store), none may be missing from it, and a further run must find nothing to do.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import trio

from callboard.mailbox.addresses import effect_key
from callboard.storage import events as e
from callboard.storage.errors import StoreError
from callboard.storage.opening import open_store
from callboard.storage.store import Store
from callboard.storage.verify import verify

PACE = 0.02
MOST_KILLS_A_RUN = 4
"""Fewer than `Limits.recoveries`: a turn that dies too often without progress is given up, and that is another test."""


class Failed(Exception):
    """What the torture found."""


def make_folder(folder: Path, files: int) -> None:
    """Text files of several kinds, some thin enough that the lead asks back, one that is no text; always the same."""
    rng = random.Random(7)
    words = "harbour crane anchor ledger tide cargo signal winter route captain".split()  # noqa: SIM905
    folder.mkdir(parents=True)
    for n in range(files):
        lines = [" ".join(rng.choices(words, k=rng.randint(2, 9))) for _ in range(rng.randint(5, 60))]
        match n % 4:
            case 0:
                (folder / f"f{n:02d}.md").write_text("# Title\n\n" + "\n\n## Part\n\n".join(lines) + "\n")
            case 1:
                body = "\n\n\n".join(f"def f{i}():\n    return {line!r}" for i, line in enumerate(lines))
                (folder / f"f{n:02d}.py").write_text(body + "\n")
            case 2:
                (folder / f"f{n:02d}.txt").write_text("\n".join(lines) + "\n")
            case _:
                (folder / f"f{n:02d}.csv").write_text("\n".join(",".join(line.split()) for line in lines) + "\n")
    (folder / "picture.png").write_bytes(b"\x89PNG\0\0")


class Run:
    """One reading of the folder, with its own copy, state and ledger."""

    def __init__(self, where: Path, original: Path) -> None:
        self.folder = where / original.name
        shutil.copytree(original, self.folder)
        self.state, self.report, self.ledger = self.folder / "callboard-state", self.folder / "report.md", where / "ledger"
        self.ledger.touch()

    def start(self, *, pace: float = PACE) -> subprocess.Popen[bytes]:
        """Start the demo as a person would, as the leader of a group of its own."""
        command = [sys.executable, "-P", "-m", "callboard.net.cli", "demo", "--json", "--pace", str(pace)]
        # Nothing above the copy may be taken for its work tree.
        surroundings = {**os.environ, "CALLBOARD_EFFECTS": str(self.ledger), "GIT_CEILING_DIRECTORIES": str(self.folder.parent)}
        return subprocess.Popen(
            command, cwd=self.folder, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )

    def finish(self) -> dict[str, object]:
        """Run the demo to its end and give what it says."""
        process = self.start()
        out, err = process.communicate(timeout=300)
        if process.returncode != 0:
            raise Failed(f"the demo ended with {process.returncode}: {out.decode()} {err.decode()}")
        said: dict[str, object] = json.loads(out)
        return said

    def kill_after(self, seconds: float) -> bool:
        """Start the demo and kill it after so many seconds; False if it was through before."""
        process = self.start()
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return True
        if process.returncode != 0:
            raise Failed(f"the demo ended by itself with {process.returncode}: {out.decode()} {err.decode()}")
        return False

    def lines(self) -> list[str]:
        """The effect keys of all bodies that came to their end, in order."""
        return [line.split("\t")[1] for line in self.ledger.read_text().splitlines()]


async def finished_calls(state: Path) -> set[str]:
    """The effect keys of all calls whose results are on disk; the store must verify as well."""
    found: set[str] = set()
    try:
        async with open_store(str(state), readonly=True) as store:
            report = await verify(store)
            if not report.ok:
                raise Failed(f"verify: {'; '.join(map(str, report.problems[:5]))}")
            after: str | None = None
            while page := await store.agents(after=after):
                for head in page:
                    found |= await _finished_by(store, head.agent)
                after = page[-1].agent
    except StoreError as error:
        # Killed while the store was being created: there is none yet, and that is what a reader is told.
        if type(error) is not StoreError or "there is no store" not in error.message:
            raise Failed(f"after a kill: {error}") from error
    return found


async def _finished_by(store: Store, agent: str) -> set[str]:
    calls: dict[str, e.ToolCalled] = {}
    found: set[str] = set()
    async for record in store.read(agent, types=("tool/call", "tool/result")):
        if isinstance(record.event, e.ToolCalled):
            calls[record.event.call_id] = record.event
        elif isinstance(record.event, e.ToolResult) and record.event.call_id in calls:
            called = calls[record.event.call_id]
            # A delegation is no body: what ran for it is in the child's own log.
            if called.name != "reader" and record.event.error is None:
                found.add(effect_key(agent, called.turn, called.step, called.call_id))
    return found


def torture(kills: int, seed: int, files: int) -> int:
    """Do it; the number of runs. Raises `Failed` with what was found."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="callboard-kill-") as scratch:
        base = Path(scratch)
        make_folder(base / "original" / "harbour", files)
        original = base / "original" / "harbour"
        calm = Run(base / "calm", original)
        began = time.monotonic()
        calm.finish()
        length = time.monotonic() - began
        done = runs = 0
        while done < kills:
            run = Run(base / f"run{runs}", original)
            done += _one(run, calm, rng, length, min(kills - done, rng.randint(1, MOST_KILLS_A_RUN)))
            runs += 1
            shutil.rmtree(base / f"run{runs - 1}")
        return runs


def _one(run: Run, calm: Run, rng: random.Random, length: float, kills: int) -> int:
    """Kill one run up to so many times, let it finish, compare; the number of kills."""
    finished: set[str] = set()
    done = 0
    for _ in range(kills):
        seen = len(run.lines())
        if not run.kill_after(rng.uniform(0.05, length)):
            break
        done += 1
        _none_again(run.lines()[seen:], finished)
        before, finished = finished, trio.run(finished_calls, run.state)
        if not before <= finished:
            raise Failed(f"results that were on disk are gone: {sorted(before - finished)[:5]}")
    seen = len(run.lines())
    run.finish()
    _none_again(run.lines()[seen:], finished)
    _compare(run, calm, done)
    return done


def _none_again(lines: list[str], finished: set[str]) -> None:
    again = finished.intersection(lines)
    if again:
        raise Failed(f"finished calls ran again: {sorted(again)[:5]}")


def _compare(run: Run, calm: Run, kills: int) -> None:
    if run.report.read_bytes() != calm.report.read_bytes():
        raise Failed(f"the report differs from the undisturbed one: {run.report}")
    counts = Counter(run.lines())
    lost = trio.run(finished_calls, run.state) - set(counts)
    if lost:
        raise Failed(f"results without a body that ran: {sorted(lost)[:5]}")
    if set(counts) != set(calm.lines()):
        raise Failed(f"other calls than in the undisturbed run: {sorted(set(counts) ^ set(calm.lines()))[:5]}")
    if counts and max(counts.values()) > 1 + kills:
        raise Failed(f"a body ran more often than it was killed: {counts.most_common(1)}")
    effects = run.lines()
    further = run.finish()
    if further["status"] != "done before" or run.lines() != effects:
        raise Failed(f"a further run did not see that all is done: {further}, {len(run.lines()) - len(effects)} bodies ran")


def main() -> int:
    """The long form, from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", type=int, default=12)
    arguments = parser.parse_args()
    began = time.monotonic()
    try:
        runs = torture(arguments.kills, arguments.seed, arguments.files)
    except Failed as failure:
        print(f"FAILED (seed {arguments.seed}): {failure}", flush=True)
        return 1
    print(f"ok: {arguments.kills} kills in {runs} runs, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
