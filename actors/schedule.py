"""The schedule: which agent the wall clock has something for, and when. One task of the System looks at it.

An idle agent costs no task, also one that has a reminder set for next year: all that is kept of it is its id and a due time, in
one heap. When the time has come the agent is opened, whatever is due becomes input, and it runs. The same goes for input that
waits for its time (`not_before`).

Due times are compared with the wall clock, and pauses are slept by trio's, which knows nothing of it: so the clock is looked at
every half minute at least. Where it was set forward, what it jumped over fires then. Where it was set back, a repeating timer
that has fired in what was the future would be silent until then: its next time is brought back.
"""

from __future__ import annotations

import heapq
import logging
import math
from typing import TYPE_CHECKING

import msgspec
import trio

from ..storage.errors import AgentDeleted, AgentNotFound, CallboardError
from ..storage.events import InboxPut, TimerFired, TimerSet
from ..storage.folds.timers import Timer, next_time
from .initiator import start_fresh

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime import Runtime

LOOK_S = 30
"""The longest pause between two looks at the wall clock, and the time after which what could not be opened is tried again."""
AT_ONCE = 32
"""How many agents are opened side by side."""
_SET_BACK_MS = 1000
"""A wall clock that goes back by less is one that is being adjusted."""
_log = logging.getLogger("callboard")


class Schedule:
    """Due times by agent."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []
        self._seen = 0
        self._changed = trio.lowlevel.ParkingLot()
        self.started = 0
        """The wall clock when the system opened: what was due before is late."""

    def __len__(self) -> int:
        return len(self._due)

    def note(self, actor: Actor) -> None:
        """The agent's timers, or its input that waits, may have changed."""
        due = actor.next_due(self._runtime.now_ms())
        if due is not None or actor.id in self._due:
            self._set(actor.id, due)

    def _set(self, id: str, due: int | None) -> None:
        if due is None:
            self._due.pop(id, None)
        elif self._due.get(id) != due:
            self._due[id] = due
            heapq.heappush(self._heap, (due, id))
            if len(self._heap) > 2 * len(self._due) + 64:  # most of it is what was set anew meanwhile
                self._heap = [(due, id) for id, due in self._due.items()]
                heapq.heapify(self._heap)
            if self._heap[0] == (due, id):
                self._changed.unpark_all()

    # -- the task

    async def start(self) -> None:
        """Read from the index who has something set."""
        self.started = self._seen = self._runtime.now_ms()
        page = await self._runtime.store.agents(flag="timer")
        while page:
            for head in page:
                # A record from the future: the clock was set back, and its timers have to be looked at.
                ahead, due = head.time > self.started + _SET_BACK_MS, head.summary.timer
                self._set(head.agent, self.started if ahead else due)
                if due is not None and due <= self.started:
                    self._runtime.report.timed.append(head.agent)
            page = await self._runtime.store.agents(flag="timer", after=page[-1].agent)

    @trio.lowlevel.enable_ki_protection
    async def run(self) -> None:
        """Visit agents as their time comes, until cancelled."""
        slots = trio.CapacityLimiter(AT_ONCE)
        async with trio.open_nursery() as nursery:
            while True:
                for id in self._take():
                    start_fresh(nursery, self._visit, id, slots, initiator=id)
                with trio.move_on_after(self._pause()):
                    await self._changed.park()

    def _take(self) -> list[str]:
        """Whose time has come; everybody's, if the clock was set back."""
        now, before = self._runtime.now_ms(), self._seen
        self._seen = now
        if now < before - _SET_BACK_MS:
            ids = list(self._due)
            self._due, self._heap = {}, []
            return ids
        taken: list[str] = []
        while self._heap and self._heap[0][0] <= now:
            due, id = heapq.heappop(self._heap)
            if self._due.get(id) == due:
                del self._due[id]
                taken.append(id)
        return taken

    def _pause(self) -> float:
        if not self._heap:
            return math.inf
        return min(max(self._heap[0][0] - self._runtime.now_ms(), 0) / 1000, LOOK_S)

    @trio.lowlevel.enable_ki_protection
    async def _visit(self, id: str, slots: trio.CapacityLimiter) -> None:
        """Open an agent and give it what is due. One that cannot be opened is tried again later: its timers stay set."""
        async with slots:
            try:
                actor = await self._runtime.registry.actor(id)
                with actor.held():
                    await self._give(actor)
            except (AgentNotFound, AgentDeleted):
                return
            except CallboardError as error:
                if not self._runtime.closing:
                    _log.warning("the timers of %r have to wait: %s", id, error)
                self._set(id, self._runtime.now_ms() + LOOK_S * 1000)
            except Exception:  # of a plugin that starts, or of `resolve`
                self._runtime.log_throw(id, "opening it for a timer")
                self._set(id, self._runtime.now_ms() + LOOK_S * 1000)

    async def _give(self, actor: Actor) -> None:
        runtime = self._runtime
        if runtime.closing or actor.id in runtime.registry.deleting:
            return
        now = runtime.now_ms()
        bring_back(actor, now)
        for timer in actor.state.timers.due(now):
            late = timer.due < self.started or timer.due < now - LOOK_S * 1000
            fired = TimerFired(id=timer.id, late=late, again=next_time(timer, now))
            actor.log.append(fired, message_of(timer, late=late))
        actor.wake()
        self.note(actor)
        await actor.log.commit()


def message_of(timer: Timer, *, late: bool) -> InboxPut:
    """What a timer puts when it fires: a prompt with a turn of its own, however busy the agent is."""
    id = timer.id if timer.fired == 0 else f"{timer.id}#{timer.fired + 1}"
    context = {"timer": timer.id, "due": timer.due, "late": late}
    return InboxPut(message=msgspec.structs.replace(timer.message, id=id), lane="next-turn", route=timer.route, context=context)


def bring_back(actor: Actor, now: int) -> None:
    """A repeating timer that has fired is never further off than its period, unless the clock was set back since."""
    for timer in actor.state.timers.all():
        step = round((timer.every or 0) * 1000)
        if timer.fired and step and timer.due > now + step:
            due = timer.due - (timer.due - now - 1) // step * step
            moved = TimerSet(id=timer.id, due=due, message=timer.message, every=timer.every, route=timer.route)
            actor.log.append(moved)
