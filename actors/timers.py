"""Durable reminders: a message that an agent gets later, once or again and again.

A reminder is a fact in the agent's log, so it outlives the process; what fires it is the schedule. Its id is also that of the
message it will put, which makes both idempotent: the same id again is the same reminder, also when it has fired, and
`ref.outcome(timer.id)` is what became of it. A reminder that a tool sets takes its id from the call's effect key, so that a body
that runs again after a crash reminds once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import trio

from ..storage.errors import UsageError
from ..storage.events import TimerCancelled, TimerSet
from ..storage.folds import Timer as Fold
from ..storage.messages import Message, PluginSource
from .content import Content, mint_id, route_map, to_message, to_route
from .promises import dropped
from .sizes import accepted
from .sources import state_of
from .tools.context import next_effect
from .values import Timer, moment

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime import Runtime

REMINDER = PluginSource("timer")
"""Where the message of a timer comes from."""


@trio.lowlevel.enable_ki_protection
async def remind(
    runtime: Runtime,
    agent: str,
    content: Content,
    *,
    after_s: float | None,
    at: datetime | None,
    every_s: float | None,
    id: str | None,
    route: Mapping[str, Any] | None,
) -> Timer:
    """Set a reminder; durable on return.

    Raises:
        UsageError: the times make no sense, or the id is that of a message.
        InputRefused: the message is empty or too large.
    """
    due = _due(runtime, agent, after_s, at, every_s)
    goal = to_route(route)
    actor = await runtime.registry.actor(agent)
    with actor.held():
        given = id or (content.id if isinstance(content, Message) else None) or next_effect()
        name = given or mint_id()
        message, blobs = accepted(to_message(content, id=name, source=REMINDER), actor.agent.limits, agent=agent)
        known = await _known(runtime, actor, name) if given is not None else None
        if known is not None:
            return known
        # No checkpoint from the last look to here: two equal reminders cannot both miss.
        actor.log.append(TimerSet(id=name, due=due, message=message, every=every_s, route=goal), blobs=blobs)
        runtime.schedule.note(actor)
        await actor.log.commit()
    return Timer(id=name, due=moment(due), message=message, every_s=every_s, route=None if goal is None else route_map(goal))


def _due(runtime: Runtime, agent: str, after_s: float | None, at: datetime | None, every_s: float | None) -> int:
    if every_s is not None and round(every_s * 1000) <= 0:
        raise UsageError(f"every_s={every_s:g} is no period: give seconds, more than 0", agent=agent)
    if after_s is not None and at is not None:
        raise UsageError("remind takes after_s= (seconds from now) or at= (a datetime), not both", agent=agent)
    if at is not None:
        if at.utcoffset() is None:
            raise UsageError(f"at={at} has no zone, so nobody knows when that is: give an aware datetime", agent=agent)
        return round(at.timestamp() * 1000)
    after_s = every_s if after_s is None else after_s
    if after_s is None or not 0 <= after_s < timedelta.max.total_seconds():
        raise UsageError("remind needs to know when: after_s= (seconds, 0 or more), at= or every_s=", agent=agent)
    return runtime.now_ms() + round(after_s * 1000)


async def _known(runtime: Runtime, actor: Actor, name: str) -> Timer | None:
    """The reminder that was set under this id before, also one that has fired or was cancelled."""
    seq = await runtime.store.find(actor.id, name)
    # From here on memory knows everything that the disk does not.
    if seq is None and actor.log.tail_id(name) is None and actor.inbox.seen(name) is None:
        return None
    await actor.log.commit()
    async for record in runtime.store.read(actor.id, types={"timer/set"}):
        event = record.event
        if isinstance(event, TimerSet) and event.id == name:
            return to_timer(Fold(event.id, event.due, event.message, event.every, event.route))
    raise UsageError(f"{name!r} is the id of a message of {actor.id!r}: give the reminder another", agent=actor.id)


async def timers_of(runtime: Runtime, agent: str) -> tuple[Timer, ...]:
    """What is set, by when it is due."""
    state = await state_of(runtime, agent)
    return tuple(sorted((to_timer(timer) for timer in state.timers.all()), key=lambda timer: timer.due))


async def cancel_timer(runtime: Runtime, agent: str, id: str) -> bool:
    """Take a reminder back; False if it has fired, or nobody knows it. Durable on return."""
    actor = await runtime.registry.actor(agent)
    with actor.held():
        timer = actor.state.timers.get(id)
        if timer is None:
            await trio.lowlevel.checkpoint()
            return False
        actor.log.append(TimerCancelled(id=id))
        runtime.schedule.note(actor)
        await actor.log.commit(shielded=True)  # who waits for it has to hear of it
        if not timer.fired:
            actor.promises.break_one(id, dropped(agent, id, "withdrawn"))
        return True


def to_timer(timer: Fold) -> Timer:
    """A timer of the fold as people read it."""
    route = None if timer.route is None else route_map(timer.route)
    return Timer(id=timer.id, due=moment(timer.due), message=timer.message, every_s=timer.every, route=route)
