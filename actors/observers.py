"""Observers: plugins that watch what is committed, each agent by one task that follows its log.

There is no queue: an observer has a place in the log and reads behind it, so a slow one costs nothing and nothing waits for it.
What it throws is logged outside the agent. Statuses and failures are no records; the few that an observer has not seen yet are
kept beside its place. A close waits for observers to catch up, within its grace.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import trio

from ..storage.errors import CallboardError
from .initiator import start_fresh

if TYPE_CHECKING:
    from ..storage.messages import Failure
    from .actor import Actor
    from .runtime import Runtime

_log = logging.getLogger("callboard.observers")


class Watch:
    """One agent's observers: how far they have seen the log, and what else they have to hear."""

    __slots__ = ("actor", "heard", "leaving", "parked", "progress", "scope", "seen")

    def __init__(self, actor: Actor) -> None:
        self.actor = actor
        self.seen = actor.log.committed
        self.heard: deque[tuple[str, Any]] = deque()
        self.scope = trio.CancelScope()
        self.parked = self.leaving = False
        self.progress = trio.lowlevel.ParkingLot()

    @property
    def caught_up(self) -> bool:
        """Whether there is nothing they have not seen."""
        return self.parked and not self.heard and self.seen >= self.actor.log.committed


class Observers:
    """All watches of a system."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._watches: dict[str, Watch] = {}
        self._leaving: set[Watch] = set()
        """Watches of failed logs, until they have seen and heard what is left."""

    def __len__(self) -> int:
        return len(self._watches)

    def watch(self, actor: Actor) -> None:
        """Begin to watch an agent that was just opened, if any plugin observes."""
        if any(actor.chains.observers(seam) for seam in ("on_event", "on_status", "on_error")):
            watch = Watch(actor)
            self._watches[actor.id] = watch
            start_fresh(self._runtime.observers_nursery, self._run, watch, initiator=actor.id)

    def unwatch(self, actor: Actor) -> None:
        """The agent is dropped from memory."""
        watch = self._watches.get(actor.id)
        if watch is not None and watch.actor is actor:
            del self._watches[actor.id]
            watch.scope.cancel()
            watch.progress.unpark_all()

    def leave(self, actor: Actor) -> None:
        """The agent's log failed: its observers see what did reach the disk, hear of the failure, and end."""
        watch = self._watches.get(actor.id)
        if watch is not None and watch.actor is actor:
            self._leaving.add(self._watches.pop(actor.id))
            watch.leaving = True
            actor.log.moved.unpark_all()

    def of(self, actor: Actor) -> Watch | None:
        """The watch of an open agent."""
        return self._watches.get(actor.id)

    def status(self, actor: Actor, status: str) -> None:
        """The agent's status changed."""
        self._tell(actor, "on_status", status)

    def error(self, actor: Actor, failure: Failure) -> None:
        """A turn failed, and its end is on disk."""
        self._tell(actor, "on_error", failure)

    def _tell(self, actor: Actor, seam: str, value: Any) -> None:
        watch = self._watches.get(actor.id)
        if watch is not None and actor.chains.observers(seam):
            watch.heard.append((seam, value))
            actor.log.moved.unpark_all()

    async def wait_caught_up(self) -> None:
        """Return when every observer has seen everything."""
        for watch in (*self._watches.values(), *self._leaving):
            while watch in self._leaving or (not watch.caught_up and self._watches.get(watch.actor.id) is watch):
                await watch.progress.park()

    # -- the task of one watch

    @trio.lowlevel.enable_ki_protection
    async def _run(self, watch: Watch) -> None:
        actor = watch.actor
        on_event = actor.chains.observers("on_event")
        with watch.scope:
            while True:
                await self._hear(watch)
                if on_event and watch.seen < actor.log.committed:
                    await self._see(watch, on_event)
                    continue
                if not on_event:
                    watch.seen = actor.log.committed
                if not watch.heard:
                    if watch.leaving:
                        break
                    await self._park(watch)
        self._leaving.discard(watch)
        watch.progress.unpark_all()

    async def _park(self, watch: Watch) -> None:
        log = watch.actor.log
        watch.parked = True
        watch.progress.unpark_all()
        log.followers += 1
        self._runtime.writer.followed(log)
        try:
            await log.moved.park()
        finally:
            log.followers -= 1
            watch.parked = False

    async def _hear(self, watch: Watch) -> None:
        while watch.heard:
            seam, value = watch.heard.popleft()
            await self._call(watch, watch.actor.chains.observers(seam), value)

    async def _see(self, watch: Watch, on_event: tuple[Callable[..., Awaitable[Any]], ...]) -> None:
        upto = watch.actor.log.committed
        try:
            async for record in self._runtime.store.read(watch.actor.id, watch.seen, upto):
                await self._call(watch, on_event, record)
                watch.seen = record.seq
        except CallboardError:
            _log.exception("observers of %r cannot read its log", watch.actor.id)
        watch.seen = upto

    async def _call(self, watch: Watch, methods: tuple[Callable[..., Awaitable[Any]], ...], value: Any) -> None:
        for method in methods:
            try:
                await method(watch.actor.context, value)
            except Exception:  # an observer's throw is its own; the agent must not notice
                _log.exception("an observer of %r failed: %r", watch.actor.id, method)
