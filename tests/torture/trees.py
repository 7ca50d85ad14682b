"""Trees of agents that do a bit of everything, and write down outside the store what they did: the workload of the torture.

Each tree has a `lead`, which gets inputs from a client. For an input it pays and looks something up, then delegates to two
workers at once (each pays, and lets a helper pay), then writes to the next lead, asks the tree's `desk`, gives a clerk work in
the background (whose first try fails, so that a supervisor puts it again), sets a reminder, and signs something that a person has
to allow. So a tree is five agents or six at any time, and every message, timer and end of a child comes back to its lead.

What a tool does to the world, and what the client was told, is a line in a `Ledger`; nothing of it is read by the agents.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import trio
from msgspec import Struct
from sides import agents_beside, live_beside

from callboard import Agent, System, ToolContext, delegate, tool
from callboard.actors import Approval, Limits
from callboard.actors.plugins import Retry
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage.errors import ApprovalExpired, CommitFailed
from callboard.storage.messages import Request

TREE = 5
"""Agents of a tree that live at the same time: a lead, its desk, two workers, and a helper or a clerk."""
VERDICTS = ("allow", "allow", "deny", "reply")
LONGEST_PAUSE_S = 30
SIGNED, PAID = "signed", "paid"
Faults = Callable[[Request], Reply | None]


class Ledger(Protocol):
    """What happened outside the store, in books of lines."""

    def write(self, book: str, line: str) -> None:
        """Add a line, for good."""
        ...

    def lines(self, book: str) -> list[str]:
        """All lines of a book."""
        ...


class FolderLedger:
    """Books as files. A kill cannot tear a line: it is one write to a file opened for appending."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def write(self, book: str, line: str) -> None:
        """Add a line."""
        file = os.open(self._folder / book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"{line}\n".encode())
        finally:
            os.close(file)

    def lines(self, book: str) -> list[str]:
        """All lines of a book; none if nobody wrote."""
        path = self._folder / book
        return path.read_text().splitlines() if path.exists() else []


class MemoryLedger:
    """Books in memory, for worlds that nobody kills."""

    def __init__(self) -> None:
        self._books: defaultdict[str, list[str]] = defaultdict(list)

    def write(self, book: str, line: str) -> None:
        """Add a line."""
        self._books[book].append(line)

    def lines(self, book: str) -> list[str]:
        """All lines of a book."""
        return list(self._books[book])


class World(Struct, frozen=True, kw_only=True):
    """How much is done, how long a body takes, and which requests fail."""

    ledger: Ledger
    trees: int = 10
    inputs: int = 1
    pace: float = 0.02
    """Seconds that a body takes, and between two looks of a client."""
    faults: Faults = lambda request: None
    limits: Limits = Limits(recoveries=10_000, depth=3)
    beside: bool = False
    """Whether the agents of `sides.py` live, too."""


# -- the agents


def definitions(world: World) -> list[Agent[Any, Any]]:
    """A lead and a desk; those behind the delegations come along."""
    pay, look, sign, remind = _pay(world), _look(world), _sign(world), _remind(world)

    def agent(name: str, says: Callable[[Request], Reply], *tools: Any) -> Agent[Any, Any]:
        model = ScriptedModel(lambda request: world.faults(request) or says(request), keep_requests=False)
        plugins = [Retry(first_s=world.pace, max_s=world.pace, jitter=0)]
        return Agent(name, model=model, tools=tools, plugins=plugins, limits=world.limits)

    helper = agent("helper", _in_steps(_PAYMENT), pay)
    worker = agent("worker", _in_steps(_PAYMENT, (("h", "helper", {"task": "help"}),)), pay, delegate(helper))
    clerk = agent("clerk", _second_try, look)
    background = delegate(clerk, background=True, restarts=(5, 2))
    lead_tools = (pay, look, sign, remind, _tell(world), _ask(world), delegate(worker), background)
    others = agents_beside(world, pay, look) if world.beside else []
    return [agent("lead", _lead, *lead_tools), agent("desk", _in_steps(_PAYMENT), pay), *others]


_Batch = tuple[tuple[str, str, Any], ...]
_PAYMENT: _Batch = (("p", "pay", {}),)
_LEAD: tuple[_Batch, ...] = (
    (*_PAYMENT, ("l", "look", {})),
    (("w1", "worker", {"task": "one"}), ("w2", "worker", {"task": "two"})),
    (("c", "clerk", {"task": "file"}), ("t", "tell", {}), ("a", "ask_desk", {}), ("r", "remind", {}), ("s", "sign", {})),
)
"""What a lead calls in the steps of an input."""


def _in_steps(*batches: _Batch) -> Callable[[Request], Reply]:
    """These batches of calls since the last message from outside, then a text."""

    def says(request: Request) -> Reply:
        return _next(_results_since(request, lambda text: True), batches)

    return says


def _lead(request: Request) -> Reply:
    """The batches for an input; whatever else comes is only noted."""
    return _next(_results_since(request, lambda text: text.startswith("input")), _LEAD)


def _second_try(request: Request) -> Reply:
    """A clerk's task fails until it is put again."""
    tries = sum(message.role == "user" for message in request.messages)
    return Reply.fail("BAD_REQUEST") if tries == 1 else _in_steps((("l", "look", {}),))(request)


def _next(results: int, batches: tuple[_Batch, ...]) -> Reply:
    for batch in batches:
        if results <= 0:
            return Reply.tools(*batch, text="Let me see")
        results -= len(batch)
    return Reply.text("that is all", parts=3)


def _results_since(request: Request, begins: Callable[[str], bool]) -> int:
    """Results since the last message that begins some work; a lead without any has nothing to do."""
    results = 0
    for message in reversed(request.messages):
        if message.role == "user" and begins(message.text):
            return results
        results += len(message.results)
    return 1_000


# -- the tools


def _pay(world: World) -> Any:
    @tool(replay="never")
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay once."""
        world.ledger.write("payments", ctx.effect_key)
        await trio.sleep(world.pace)
        return PAID

    return pay


def _sign(world: World) -> Any:
    @tool(replay="never", approval="May it be signed?")
    async def sign(ctx: ToolContext[Any]) -> str:
        """Sign once, if a person allows it."""
        world.ledger.write("payments", ctx.effect_key)
        await trio.sleep(world.pace)
        return SIGNED

    return sign


def _look(world: World) -> Any:
    @tool(replay="safe", mode="parallel")
    async def look(ctx: ToolContext[Any]) -> str:
        """Look something up, as often as one likes."""
        await trio.sleep(world.pace)
        world.ledger.write("looks", ctx.effect_key)
        return "seen"

    return look


def _remind(world: World) -> Any:
    @tool(replay="safe", mode="parallel")
    async def remind(ctx: ToolContext[Any]) -> str:
        """Be reminded soon."""
        timer = await ctx.agent.remind("later", after_s=2 * world.pace)
        world.ledger.write("timers", f"{ctx.agent.id} {timer.id}")
        return "set"

    return remind


def _tell(world: World) -> Any:
    @tool(replay="safe", mode="parallel")
    async def tell(ctx: ToolContext[Any]) -> str:
        """Write to the next lead."""
        to = f"lead-{(int(ctx.agent.id.rpartition('-')[2]) + 1) % world.trees}"
        receipt = await ctx.send(to, "a word")
        world.ledger.write("receipts", f"{to} {receipt.message_id}")
        return "told"

    return tell


def _ask(world: World) -> Any:
    @tool(replay="safe", mode="parallel", timeout=None)
    async def ask_desk(ctx: ToolContext[Any]) -> str:
        """Ask the desk of this tree."""
        outcome = await ctx.ask(ctx.agent.id.replace("lead", "desk"), "how is it?")
        return str(outcome.text)

    return ask_desk


# -- those outside


async def live(world: World, system: System) -> None:
    """Send every input (again, if it was sent before), answer every question, and return when nothing is left to do."""
    lead, desk = system.definitions["lead"], system.definitions["desk"]
    async with trio.open_nursery() as people:
        people.start_soon(_answer_questions, world, system)
        for n in range(world.trees):
            await _until_kept(world, partial(system.spawn, desk, id=f"desk-{n}"))
            await _until_kept(world, partial(system.spawn, lead, id=f"lead-{n}"))
        async with trio.open_nursery() as clients:
            for n in range(world.trees):
                clients.start_soon(_client, world, system, f"lead-{n}")
            if world.beside:
                clients.start_soon(live_beside, world, system, _until_kept)
        await settled(world, system)
        people.cancel_scope.cancel()


async def _client(world: World, system: System, id: str) -> None:
    """Send with known ids, note each receipt and each outcome. Who gets no receipt sends again."""
    ref = await _until_kept(world, partial(system.get, id))
    for n in range(world.inputs):
        await _until_kept(world, partial(ref.followup, f"input {n}", message_id=f"m{n}"))
        world.ledger.write("receipts", f"{id} m{n}")
    for n in range(world.inputs):
        outcome = await _until_kept(world, partial(ref.outcome, f"m{n}"))
        world.ledger.write("outcomes", f"{id} m{n} {outcome.turn} {outcome.reason.kind} {outcome.text}")


async def _until_kept(world: World, do: Callable[[], Any]) -> Any:
    while True:
        try:
            return await do()
        except CommitFailed:
            await trio.sleep(world.pace)


async def _answer_questions(world: World, system: System) -> None:
    """A person who looks now and then. A question has one answer, whoever is asked it again."""

    async def questions() -> list[Approval]:
        return [question async for question in system.approvals()]

    pause_s = world.pace
    while True:
        for question in await _until_kept(world, questions):
            pause_s = world.pace
            verdict: Any = VERDICTS[sum(question.id.encode()) % len(VERDICTS)]
            try:
                await system.answer(question.id, verdict, by="ann", text="so it is")
            except (ApprovalExpired, CommitFailed):  # it is asked again if it is still open
                continue
            world.ledger.write("answers", f"{question.agent} {question.id} {verdict}")
        await trio.sleep(pause_s)
        pause_s = min(1.5 * pause_s, 50 * world.pace)


async def settled(world: World, system: System) -> None:
    """Return when no agent runs, and nothing is set to begin later."""
    quiet, pause_s = 0, world.pace
    while quiet < 2:
        left = [agent async for agent in system.agents() if agent.status != "idle"]
        waiting = await system.store.agents(flag="timer") or await system.store.agents(flag="attention")
        quiet = quiet + 1 if not left and not waiting else 0
        for agent in waiting:
            await _until_kept(world, partial(system.get, agent.agent))
        await trio.sleep(pause_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
