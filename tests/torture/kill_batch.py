"""Kill -9 a batch at random moments, and see that its results are those of one that nobody disturbed.

    python tests/torture/kill_batch.py [--tasks 1000] [--kills 10] [--seed 1]

A batch is run once undisturbed. Then the same batch is run in another folder, killed so many times at random moments on its way,
and started again each time. In the end its `results.jsonl` must be the undisturbed one byte for byte, the ledger of the tasks'
tool (outside the store) must hold each effect once, and the store must verify.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import trio

from callboard.storage import open_store, verify

AGENT = '''
import os
import trio
from callboard import Agent, ToolContext, tool
from callboard.actors.testing import Reply, ScriptedModel

@tool
async def book(ctx: ToolContext, number: int) -> str:
    """An effect that must not happen twice."""
    with open(os.environ["LEDGER"], "a") as ledger:
        ledger.write(ctx.effect_key + "\\n")
    await trio.sleep(0.02)
    return str(number * 2)

def says(request):
    last = request.messages[-1]
    if last.role == "tool":
        # A call that a kill left in doubt is not made again: its task is answered from what the model knows.
        return Reply.text(request.messages[0].text + " doubled", parts=5)
    return Reply.tools(("c1", "book", {"number": int(last.text)}))

solver = Agent("solver", model="acme:double", tools=[book], plugins=[])
models = {"acme": ScriptedModel(says, provider="acme")}
'''


class Batch:
    """One batch in a folder of its own, as a person would start it."""

    def __init__(self, where: Path, tasks: int) -> None:
        where.mkdir()
        self.where, self.run, self.ledger = where, where / "run", where / "ledger"
        self.ledger.touch()
        (where / "agent.py").write_text(AGENT)
        lines = [json.dumps({"id": f"n{n}", "input": str(n), "expected": f"{n} doubled"}) for n in range(tasks)]
        (where / "tasks.jsonl").write_text("\n".join(lines))

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, or go on with it."""
        words = ["batch", "tasks.jsonl", "--agent", "agent.py:solver", "--out", str(self.run), "--concurrency", "20", "--json"]
        command = [sys.executable, "-P", "-m", "callboard.net.cli", *words]
        surroundings = {"LEDGER": str(self.ledger), "PATH": ""}
        return subprocess.Popen(command, cwd=self.where, env=surroundings, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def finish(self) -> None:
        """Run it to its end."""
        process = self.start()
        out, err = process.communicate(timeout=600)
        if process.returncode != 0:
            raise SystemExit(f"the batch ended with {process.returncode}: {err.decode()}{out.decode()[-500:]}")

    @property
    def results(self) -> bytes:
        """What it wrote."""
        return (self.run / "results.jsonl").read_bytes()

    def effects(self) -> Counter[str]:
        """How often each effect happened."""
        return Counter(self.ledger.read_text().split())


def torture(where: Path, tasks: int, kills: int, seed: int) -> list[str]:
    """Run both; what is wrong with the second."""
    rng = random.Random(seed)
    calm, killed = Batch(where / "calm", tasks), Batch(where / "killed", tasks)
    calm.finish()
    done = 0
    for effects in sorted(rng.sample(range(1, tasks - 20), kills)):
        done += _kill(killed, effects, rng.random() * 0.05)
    killed.finish()
    return [*trio.run(_problems, calm, killed), *([] if done == kills else [f"only {done} of {kills} kills met a running batch"])]


def _kill(batch: Batch, effects: int, later_s: float) -> bool:
    """Go on with the batch and kill it a moment after so many effects; whether it still ran."""
    process = batch.start()
    while process.poll() is None and batch.ledger.read_bytes().count(b"\n") < effects:
        time.sleep(0.005)
    time.sleep(later_s)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return process.returncode == -signal.SIGKILL


async def _problems(calm: Batch, killed: Batch) -> list[str]:
    problems: list[str] = []
    if calm.results != killed.results:
        pairs = zip(calm.results.splitlines(), killed.results.splitlines(), strict=False)
        first = next((pair for pair in pairs if pair[0] != pair[1]), None)
        problems.append(f"the results differ: {first}")
    twice = [key for key, times in killed.effects().items() if times > 1]
    if twice:
        problems.append(f"{len(twice)} effects happened twice, {twice[0]} among them")
    async with open_store(killed.run, readonly=True) as store:
        report = await verify(store)
    return problems + [str(problem) for problem in report.problems[:5]]


def main() -> None:
    """Torture, and say how it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--tasks", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="callboard-kill-batch-") as folder:
        problems = torture(Path(folder), arguments.tasks, arguments.kills, arguments.seed)
    print(f"{arguments.tasks} tasks, {arguments.kills} kills, seed {arguments.seed}: {'; '.join(problems) or 'the same results'}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
