"""Kill -9 a system of fifty agents at random moments, and see that nothing acknowledged is lost and nothing is done twice.

    python tests/torture/kill_agents.py [--kills 30] [--seed 1] [--agents 50]

Each agent gets a few inputs; each turn pays (a `never` tool), looks something up (a `safe` one), and lets a child pay, too. The
tools write a ledger outside the store, and so does the sender, for each receipt it gets. After each kill the store is read and
must verify. In the end a last run goes through: then every acknowledged input has a turn that completed, no payment stands in
the ledger twice, and what the log says of a payment agrees with the ledger: a result `paid` is there, a call that never began is
not.
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
from collections import Counter
from pathlib import Path
from typing import Any

import trio

from callboard import Agent, System, ToolContext, delegate, tool
from callboard.actors import Limits
from callboard.actors.testing import Reply, ScriptedModel
from callboard.mailbox.addresses import effect_key
from callboard.storage import events as e
from callboard.storage.messages import Request
from callboard.storage.opening import open_store
from callboard.storage.store import Store
from callboard.storage.verify import verify

INPUTS = 8
"""Inputs for each agent."""
KILLS_A_LIFE = 5
"""After so many kills the agents may end what they have, and others begin."""
PACE = 0.05
"""Seconds that a tool takes, so that kills fall into bodies too."""


class Failed(Exception):
    """What the torture found."""


# -- the process that is killed


def definitions(ledger: Path) -> Agent[Any, Any]:
    """The agent, whose tools write `ledger`, and behind its delegation the child."""

    @tool(replay="never")
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay once."""
        write_line(ledger, ctx.effect_key)
        await trio.sleep(PACE)
        return "paid"

    @tool(replay="safe", mode="parallel")
    async def look() -> str:
        """Look something up."""
        await trio.sleep(PACE)
        return "seen"

    child = Agent("child", model=ScriptedModel(one_payment), tools=[pay], plugins=())
    limits = Limits(recoveries=1000, depth=2)
    return Agent("payer", model=ScriptedModel(payment_and_child), tools=[pay, look, delegate(child)], plugins=(), limits=limits)


def one_payment(request: Request) -> Reply:
    """The child: pay, and say so."""
    return Reply.text("done") if request.messages[-1].role == "tool" else Reply.tools(("p", "pay", {}))


def payment_and_child(request: Request) -> Reply:
    """The agent: pay and look, then let the child pay, then answer."""
    results = 0
    for message in reversed(request.messages):
        if message.role == "user":
            break
        results += len(message.results)
    match results:
        case 0:
            return Reply.tools(("p", "pay", {}), ("l", "look", {}))
        case 2:
            return Reply.tools(("c", "child", {"task": "pay"}))
        case _:
            return Reply.text("over", parts=5)


def write_line(path: Path, line: str) -> None:
    """One line that a kill cannot tear: one write to a file opened for appending."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


async def work(folder: Path, agents: int) -> None:
    """Send every input (again, if it was sent before), note the receipts, and wait for all outcomes."""
    payer = definitions(folder / "payments")

    async def use(system: System, id: str) -> None:
        ref = await system.spawn(payer, id=id)
        for n in range(INPUTS):
            receipt = await ref.followup(f"input {n}", message_id=f"m{n}")
            write_line(folder / "receipts", f"{id} {receipt.message_id}")
        for n in range(INPUTS):
            await ref.outcome(f"m{n}")

    async with System.open(folder / "state", agents=[payer]) as system, trio.open_nursery() as nursery:
        for n in range(agents):
            nursery.start_soon(use, system, f"agent-{n}")


# -- the process that kills


def torture(*, kills: int, seed: int, agents: int) -> int:
    """Kill, look, and start again, until so many kills found the process at work; gives their number.

    Raises:
        Failed: something was lost, done twice, or cannot be read.
    """
    rng, killed = random.Random(seed), 0
    while killed < kills:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            for _ in range(min(KILLS_A_LIFE, kills - killed)):
                if not run(folder, agents, kill_after=rng.uniform(0.4, 1.2)):
                    break
                killed += 1
                trio.run(look_at, folder)
            run(folder, agents, kill_after=None)
            trio.run(look_at, folder)
            trio.run(settle_up, folder, agents)
    return killed


def run(folder: Path, agents: int, *, kill_after: float | None) -> bool:
    """One life of the process; whether it was killed."""
    command = [sys.executable, __file__, "--work", str(folder), "--agents", str(agents)]
    with (folder / "errors").open("ab") as errors, subprocess.Popen(command, stderr=errors) as process:
        try:
            code = process.wait(120 if kill_after is None else kill_after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            if kill_after is None:
                raise Failed("a run that nobody killed did not end in two minutes") from None
            return True
    if code != 0:
        raise Failed(f"the process ended with {code}: {(folder / 'errors').read_text()[-2000:]}")
    return False


async def look_at(folder: Path) -> None:
    """After each life: what is on disk verifies, and nothing was paid twice."""
    twice = [key for key, times in Counter(lines(folder / "payments")).items() if times > 1]
    if twice:
        raise Failed(f"paid more than once: {twice[:3]}")
    if not (folder / "state").exists():
        return
    async with open_store(folder / "state", readonly=True) as store:
        report = await verify(store)
        if not report.ok:
            raise Failed("; ".join(map(str, report.problems[:3])))


async def settle_up(folder: Path, agents: int) -> None:
    """At the end: every receipt has its completed turn, and log and ledger agree about every payment."""
    paid = set(lines(folder / "payments"))
    receipts = set(lines(folder / "receipts"))
    if len(receipts) != agents * INPUTS:
        raise Failed(f"{len(receipts)} receipts, and not {agents * INPUTS}")
    async with open_store(folder / "state", readonly=True) as store:
        answered = set[str]()
        page = await store.agents()
        while page:
            for head in page:
                answered |= await read_agent(store, head.agent, paid)
            page = await store.agents(after=page[-1].agent)
    if missing := receipts - answered:
        raise Failed(f"acknowledged and not answered: {sorted(missing)[:3]}")


async def read_agent(store: Store, agent: str, paid: set[str]) -> set[str]:
    """The inputs whose turn completed, as the sender notes them; raises if a payment in the log is another in the ledger."""
    claimed, answered, step = list[str](), set[str](), 0
    async for record in store.read(agent):
        match record.event:
            case e.InboxClaim(ids=ids):
                claimed.extend(ids)
            case e.StepStart():
                step = record.event.step
            case e.ToolResult(turn=turn, call_id="p", error=error):
                key = effect_key(agent, turn, step, "p")
                if error is None and key not in paid:
                    raise Failed(f"{agent} turn {turn}: the log says paid, the ledger does not")
                if error == "NOT_STARTED" and key in paid:
                    raise Failed(f"{agent} turn {turn}: the log says it never began, the ledger says paid")
            case e.TurnEnd(reason=e.Completed()):
                answered |= {f"{agent} {id}" for id in claimed}
                claimed.clear()
            case _:
                pass
    return answered


def lines(path: Path) -> list[str]:
    """The lines of a ledger, if there is one yet."""
    return path.read_text().splitlines() if path.exists() else []


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        trio.run(work, options.work, options.agents)
        return
    start = time.monotonic()
    killed = torture(kills=options.kills, seed=options.seed, agents=options.agents)
    print(f"{killed} kills: nothing lost, nothing done twice ({time.monotonic() - start:.0f} s)")


if __name__ == "__main__":
    main()
