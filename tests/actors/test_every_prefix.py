"""Every prefix of any life that ends between two appends, taken as what a crash left, is recovered: in both modes, and again.

What must hold after a restart: the log verifies (brackets closed, every call answered once, every message in one place, every
request as it can be rebuilt), the agent is idle with nothing due, what had been written stands, a body that may not run
twice did not, and the folds of the replayed log are those of the live one.

`CALLBOARD_PROPERTIES=long` looks at many more lives than a test run has time for.
"""

from __future__ import annotations

import os
from typing import Any

import trio
from crashing import Life as Lived
from crashing import appends, folded, image, live, restart
from helpers import notation, records
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from life_scripts import Life, World, act, lives
from trio.testing import MockClock

from callboard.actors.agent import Agent
from callboard.actors.ref import AgentRef
from callboard.actors.state import AgentState
from callboard.actors.system import System
from callboard.mailbox.addresses import effect_key
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore

LONG = os.environ.get("CALLBOARD_PROPERTIES") == "long"
settings.register_profile("ci", max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
settings.register_profile("long", max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
PROFILE = settings.get_profile("long" if LONG else "ci")


def run(main: object, *args: object) -> None:
    """A trio run of its own under a mock clock: no retry really waits."""
    trio.run(main, *args, clock=MockClock(autojump_threshold=0))  # type: ignore[arg-type]


@PROFILE
@given(lives, st.data())
def test_c244_every_prefix_of_any_life_is_recovered(life: Life, data: st.DataObject) -> None:
    first = lived(life)
    second = data.draw(st.integers(0, 10**6), label="which crash is followed by another")
    run(_every_prefix, life, first, second)


def lived(life: Life) -> Lived:
    """The life, uncut."""
    found: list[Lived] = []

    async def main() -> None:
        async def prompts(ref: object) -> None:
            for n in range(life.prompts):
                await act(ref, "followup", f"prompt-{n}")

        world = World(life)
        found.append(await live(world.agent(), prompts, deps=world))

    run(main)
    return found[0]


async def _every_prefix(life: Life, first: Lived, second: int) -> None:
    assert folded(first.records).dump() == first.dump, "a replay gives other folds than the run had"
    for mode in ("continue", "end"):
        for place, end in enumerate(first.ends):
            note(f"recovery={mode}, cut behind seq {end} ({first.records[end].type})")
            snapshot = first.ends[(second + place) % (place + 1)]
            again = await _recovered(life, first, end, mode, snapshot=snapshot if second % 2 else None)
            if place == second % len(first.ends):
                new = [seq for seq in again.ends if seq > end]
                for twice in new:
                    note(f"and again behind seq {twice} ({again.records[twice].type})")
                    await _recovered(life, again, twice, mode)


async def _recovered(life: Life, lived: Lived, end: int, mode: str, *, snapshot: int | None = None) -> Lived:
    world = World(life)
    left = await image(lived.records, end, snapshot=snapshot)
    after = await restart(world.agent(recovery=mode), left, deps=world)
    assert after.records[: end + 1] == lived.records[: end + 1]
    state = folded(after.records)
    assert state.dump() == after.dump or not after.ends, "a replay gives other folds than the run had"
    assert not state.position.open
    assert not state.inbox.due(None), state.inbox.pending()
    said = [record.event.delivery for record in after.records if isinstance(record.event, e.OutboxPut)]
    assert len(set(said)) == len(said), "two replies have one id"
    _bodies(world, lived, end)
    _cut_turn(world, after, folded(lived.records[: end + 1]), end, mode)
    return after


def _bodies(world: World, lived: Lived, end: int) -> None:
    """No body that had started before the crash runs again, unless it is safe; and none runs twice after it."""
    started = {
        effect_key("a", c.turn, c.step, c.call_id)
        for c in (record.event for record in lived.records[: end + 1])
        if isinstance(c, e.ToolCalled) and c.replay != "safe"
    }
    for key, times in world.bodies.items():
        assert times == 1, f"{key} ran {times} times"
        assert key not in started, f"{key} ran again"


def _cut_turn(world: World, after: Lived, before: AgentState, end: int, mode: str) -> None:
    """What recovery did with the turn that was open."""
    at, new = before.position, [record.event for record in after.records[end + 1 :]]
    if not at.open:
        if not before.inbox.due(None):
            assert not new, "nothing was due"
        return
    ends = [event for event in new if isinstance(event, e.TurnEnd) and event.turn == at.turn]
    assert len(ends) == 1
    own = [event for event in new if isinstance(event, e.RequestSent) and event.turn == at.turn]
    if at.cancel is not None or mode == "end":
        assert not own, "a request was sent in a turn that must not go on"
        assert e.kind_of(ends[0].reason) == ("aborted" if at.cancel is not None else "interrupted")
        assert not any(isinstance(event, e.TurnResume) for event in new)
    else:
        assert isinstance(new[0], e.TurnResume)
        assert e.kind_of(ends[0].reason) != "interrupted"


@PROFILE
@given(lives, st.integers(1, 60), st.sampled_from(["closed", "cancelled"]), st.sampled_from(["continue", "end"]))
def test_c065_c258_a_system_that_closes_at_any_append_goes_on_at_the_next_start(
    life: Life, appended: int, how: str, mode: str
) -> None:
    run(_closed_and_opened, life, appended, how, mode)


async def _closed_and_opened(life: Life, appended: int, how: str, mode: str) -> None:
    world, store = World(life), MemoryStore()
    agent = world.agent(recovery=mode)
    await _closed_at(agent, world, store, appended, how)
    left = await records(store)
    assert left[-1].type == "turn/suspend" or not folded(left).position.open, notation(left)
    after = await restart(agent, store, deps=world)
    state = folded(after.records)
    assert not state.position.open and not state.inbox.due(None)
    for call in (record.event for record in after.records):
        if isinstance(call, e.ToolCalled) and call.replay != "safe":
            assert world.bodies[effect_key("a", call.turn, call.step, call.call_id)] <= 1
    added = [record.type for record in after.records[left[-1].seq + 1 :]]
    assert ("turn/resume" in added) == (left[-1].type == "turn/suspend")


async def _closed_at(agent: Agent[Any, Any], world: World, store: MemoryStore, appended: int, how: str) -> None:
    """Run until so many appends have been made (or all), then close the system without grace, or cancel all around it."""
    outside, reached = trio.CancelScope(), trio.Event()

    def then(count: int) -> None:
        if count == appended:
            reached.set()
            if how == "cancelled":
                outside.cancel()

    with appends(then), outside:
        async with System.open(store, agents=[agent], deps=world, grace=0) as system:
            ref = await system.spawn(agent, id="a")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_prompt, ref, world.life, reached)
                await reached.wait()
                nursery.cancel_scope.cancel()


async def _prompt(ref: AgentRef[Any], life: Life, over: trio.Event) -> None:
    for n in range(life.prompts):
        await act(ref, "followup", f"prompt-{n}")
    await ref.wait_idle()
    over.set()
