"""The proof of one life: it is run on a seeded scheduler, and every prefix of its logs is taken as what a crash left.

After the run, and after each recovery, in both modes: the logs verify (brackets nest, one end per start, every call answered
once, every request rebuilds to its digest), a replay gives the folds that the run had, nothing is open or due, and the rules of
`proof_rules.py` hold. One of the crashes is followed by a second, at every place that its recovery has.

`run(life)` raises with a program in its notes that shows the same failure wherever it is started.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any

import trio
from crash_images import Cut, Watch, left_by, seeded, upto, watched
from crashing import folded
from helpers import check
from life_plugins import from_outside
from life_scripts import Life, Moment
from life_world import World
from msgspec import Struct
from proof_chat import delivered
from proof_rules import acknowledged, closed, recovered, settled_logs
from trio.testing import MockClock

from callboard.actors import System
from callboard.actors.testing import trio_wall
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import StoreFull
from callboard.storage.records import Record, to_json
from callboard.storage.store import Store
from callboard.storage.testing import FaultyStore

START = "2026-12-01T08:00Z"
PATIENCE_S = 3600
"""Of the mock clock: a life that lasts longer is stuck."""
PAUSE_S = 40
"""Longer than the system waits before it looks again at agents that could not write."""
MOST_APPENDS = 5000
"""A life that writes more goes on for ever."""


class Lived(Struct, frozen=True):
    """The logs that a run left, and the places at which a crash could have cut them."""

    logs: Mapping[str, Sequence[Record]]
    cuts: Sequence[Cut]
    world: Any


class Proof(Struct, frozen=True):
    """What was looked at."""

    lived: Lived
    recoveries: int


def run(life: Life) -> Proof:
    """Prove it.

    Raises:
        AssertionError: a rule is broken; the notes say where, and how to see it again.
    """
    try:
        return _prove(life)
    except BaseException as error:
        error.add_note(f"\nThe life that failed, as a program; run it in the root of the checkout:\n\n{program(life)}")
        raise


def program(life: Life) -> str:
    """A whole Python program that proves this life."""
    names = ", ".join(sorted({"Life", *(name for name in ("Step", "Moment") if f"{name}(" in repr(life))}))
    return (
        "import sys\n\n"
        'sys.path[0] = "tests/actors"\n\n'
        f"from life_scripts import {names}\nfrom proof import run\n\n"
        f"run({life!r})\n"
    )


def _prove(life: Life) -> Proof:
    lived, choice, recoveries = live(life), Random(life.seed), 0
    if life.fills:
        return Proof(lived, 0)
    twice_in = choice.choice(("continue", "end"))
    for mode in ("continue", "end"):
        second = choice.randrange(len(lived.cuts)) if mode == twice_in else None
        for place, cut in enumerate(lived.cuts):
            earlier: Cut = lived.cuts[choice.randrange(place + 1)] if choice.random() < 0.5 else {}
            again = _recovered(life, lived, cut, mode, earlier, absent=life.absent and choice.random() < 0.3)
            recoveries += 1
            for twice in again.cuts if place == second else ():
                _recovered(life, again, twice, mode, {})
                recoveries += 1
    return Proof(lived, recoveries)


def run_trio(main: Any, *args: Any) -> Any:
    """A trio run of its own under a mock clock: nothing really waits."""
    return trio.run(main, *args, clock=MockClock(autojump_threshold=0))


def text(lived: Lived) -> str:
    """All logs as JSON lines, apart from how many microseconds this machine took."""
    lines = [f"{agent} {to_json(record).decode()}" for agent in sorted(lived.logs) for record in lived.logs[agent]]
    return re.sub(r'"us":\d+', '"us":0', "\n".join(lines))


# -- the life


def live(life: Life) -> Lived:
    """The life, uncut, over as many systems as it closes and opens."""
    with seeded(life.seed, "life"):
        lived: Lived = run_trio(_live, life)
    return lived


async def _live(life: Life) -> Lived:
    world, store, outside = World(life), FaultyStore(MemoryStore()), _Outside(life.meanwhile)
    now = trio_wall(START)
    with _patience(outside.moved) as watch:
        ended = False
        while not ended:
            ended = await _session(world, store, outside, now)
            store.heal()
            if not life.fills:
                closed(await _all_logs(store), life.recovery)
    await check(store)
    logs = await _all_logs(store)
    settled_logs(logs)
    acknowledged(logs, world.acknowledged)
    delivered({}, logs, world.chat)
    _fits(world)
    return Lived(logs, watch.cuts, world)


async def _session(world: World, store: FaultyStore, outside: _Outside, now: Any) -> bool:
    """One system, until nothing runs (True), or it is to be closed."""
    agents = world.agents(recovery=world.life.recovery)
    over: str | None = "cut"  # also if it is cancelled because its time is up
    with trio.CancelScope() as around:
        async with _open(world, store, agents, now) as system:
            refs = {id: await system.spawn(agent, id=id) for id, agent in zip("ab", agents, strict=True)}
            over = await _meanwhile(world, store, system, refs, outside)
            if over == "cut":
                around.cancel()
                await trio.lowlevel.checkpoint()
            if over is None:
                await _compare(system, store)
    return over is None


@contextmanager
def _patience(then: Callable[[int], object] | None = None, *, start: Cut | None = None) -> Generator[Watch]:
    """Watch a run that ends: neither stuck, nor writing for ever."""

    def counted(appends: int) -> None:
        if appends > MOST_APPENDS:
            scope.cancel()
        if then is not None:
            then(appends)

    with trio.fail_after(PATIENCE_S) as scope, watched(start, counted) as watch:
        yield watch


def _open(world: World, store: Store, agents: Any, now: Any) -> Any:
    return System.open(
        store,
        agents=agents,
        deps=world,
        now=now,
        grace=0,
        idle_after=world.life.rest_s,
        models=world.models,
        channels={"irc": world.chat} if world.chat is not None else None,
    )


async def _meanwhile(world: World, store: FaultyStore, system: System, refs: Mapping[str, Any], outside: _Outside) -> str | None:
    """Prompts, and what is done from outside; how the system is to end, None if by itself."""
    ending: list[str] = []

    def keep(agent: str, receipt: Any) -> None:
        if receipt is not None:
            world.acknowledged.append((agent, receipt.message_id))

    async def people() -> None:
        for n in range(world.life.prompts):
            keep("a", await from_outside(refs["a"], "followup", f"/prompt {n}" if world.life.slash else f"prompt-{n}"))

    async def moments() -> None:
        while (moment := await outside.next()) is not None:
            if moment.do in ("close", "cut"):
                ending.append(moment.do)
                nursery.cancel_scope.cancel()
                return
            if moment.after_s:
                await trio.sleep(moment.after_s)
            id = f"at-{moment.at}-{moment.do.replace('/', '')}"
            if moment.do == "full":
                store.fail_next(StoreFull("the disk is full"), times=1 + moment.at % 4)
            elif moment.do == "say" and world.chat is not None:
                keep("a", await world.chat.say(f"said {id}", id))
            else:
                keep(moment.to, await from_outside(refs[moment.to], moment.do, id))

    async with _people(world, system) as nursery:
        nursery.start_soon(moments)
        await people()
        await _settled(system, outside=outside)
        while world.life.fills and system.statistics()["reviving"]:
            store.heal()
            await trio.sleep(PAUSE_S)
            await _settled(system, outside=outside)
        nursery.cancel_scope.cancel()
    return ending[0] if ending else None


@asynccontextmanager
async def _people(world: World, system: System) -> AsyncGenerator[trio.Nursery]:
    """Somebody who answers questions, until the end of the block."""
    async with trio.open_nursery() as nursery:
        if world.life.asks:
            nursery.start_soon(world.answer_questions, system)
        yield nursery
        nursery.cancel_scope.cancel()


class _Outside:
    """The moments of a life, each once, when so many appends have been made."""

    def __init__(self, moments: Sequence[Moment]) -> None:
        self._left, self._appends = list(moments), 0
        self.acting = False
        """Whether a moment has come and is not over."""
        self._lot = trio.lowlevel.ParkingLot()

    def moved(self, appends: int) -> None:
        """So many appends by now."""
        self._appends = appends
        if self._left and self._left[0].at <= appends:
            self._lot.unpark_all()

    async def next(self) -> Moment | None:
        """The next moment, when it has come; None if there is no other."""
        self.acting = False
        if not self._left:
            return None
        while self._left[0].at > self._appends:
            await self._lot.park()
        self.acting = True
        return self._left.pop(0)


async def _settled(system: System, *, leaving: str = "", outside: _Outside | None = None) -> None:
    """Return when no agent runs, nothing is to be delivered, and nobody outside is about to do something. The look is by the
    index: it opens no agent."""

    def acting() -> bool:
        return outside is not None and outside.acting

    # Before the look and behind it: what is done while it lasts may be over by then, and its agent have been looked at.
    while acting() or await _busy(system, leaving) or acting():  # noqa: ASYNC110  (no one event says it of all agents)
        await trio.sleep(0.5)


async def _busy(system: System, leaving: str) -> bool:
    """Whether an agent runs, or waits for a person or for its task to be due again, or a reply is under way."""
    runtime: Any = system._runtime  # pyright: ignore[reportPrivateUsage]
    if any(actor.maintenance is not None for actor in runtime.registry):
        return True  # an idle agent is being compacted, and what was sent to it waits
    async for agent in system.agents():
        if agent.id != leaving and (agent.status == "running" or "timer" in agent.waits):
            return True
    return any(lane["waiting"] for lane in system.statistics()["channels"].values())


async def _all_logs(store: Store) -> dict[str, list[Record]]:
    return {head.agent: [r async for r in store.read(head.agent)] for head in await store.agents(limit=1000)}


async def _compare(system: System, store: Store) -> None:
    """The folds of every agent are those of its log, read from the start."""
    runtime: Any = system._runtime  # pyright: ignore[reportPrivateUsage]
    await runtime.writer.flush()
    for agent, log in (await _all_logs(store)).items():
        if runtime.registry.peek(agent) is None:
            await system.get(agent)
        state = runtime.registry.peek(agent).state
        assert folded(log).dump() == state.dump(), f"a replay of {agent!r} gives other folds than the run had"


def _fits(world: World) -> None:
    """No request was longer than the window where something could have been summarised, unless summaries are no use, or a plugin
    was in their way."""
    hindered = any(seam == "compact" for step in world.life.steps() for seam, _ in step.seams)
    if world.life.summary in ("plain", "model") and not hindered:
        assert not world.too_long, f"requests do not fit into {world.life.window} tokens: {world.too_long}"


# -- recovery


def _recovered(life: Life, lived: Lived, cut: Cut, mode: str, snapshots: Cut, *, absent: bool = False) -> Lived:
    where = ", ".join(f"{agent} behind seq {last} ({lived.logs[agent][last].type})" for agent, last in cut.items())
    try:
        with seeded(life.seed, mode, cut):
            after: Lived = run_trio(_restart, life, lived, cut, mode, snapshots, absent)
        recovered(upto(lived.logs, cut), after.logs, after.world.bodies, mode)
        delivered(upto(lived.logs, cut), after.logs, after.world.chat)
        _fits(after.world)
    except BaseException as error:
        missing = ", first without the definition of a" if absent else ""
        error.add_note(f"recovery={mode!r}, cut {where}, with snapshots at {dict(snapshots)}{missing}")
        raise
    return after


async def _restart(life: Life, lived: Lived, cut: Cut, mode: str, snapshots: Cut, absent: bool) -> Lived:
    world, store = World(life), await left_by(lived.logs, cut, {a: s for a, s in snapshots.items() if s < cut.get(a, -1)})
    clock = trio_wall(START)

    def now() -> float:
        return clock() + life.jump_s

    with _patience(start=cut) as watch:
        if absent:
            async with _open(world, store, world.without_a(recovery=mode), now) as system, _people(world, system):
                await _settled(system, leaving="a")
        async with _open(world, store, world.agents(recovery=mode), now) as system, _people(world, system):
            for agent in cut:
                await system.get(agent)
            await _settled(system)
            await _compare(system, store)
    await check(store)
    return Lived(await _all_logs(store), watch.cuts, world)
