"""Runtime: what all agents of one System share, behind its public face.

Nurseries in layers, outermost first: the writer; channels and observers; bodies; drivers. Each layer ends after the ones inside
it, so that whatever a driver still appends while it converges finds a writer, and whatever is committed finds its observers and
goes out. The writer's task is shielded and ends only when told to, once its tail is empty.
"""

from __future__ import annotations

import contextvars
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import trio

from ..storage.errors import CallboardError, DefinitionMissing
from ..storage.events import Note
from ..storage.store import Store
from ..storage.writer import Writer
from .channels.switchboard import Switchboard, agents_of
from .children import Children
from .definitions import Definitions
from .failures import described
from .initiator import fresh_context, start_fresh
from .mail import Mail
from .maintenance import compact_resting, waits_for_maintenance
from .models.model import Model
from .models.registry import Models
from .models.slots import ModelSlots
from .observers import Observers
from .policies import Policies
from .ref import AgentRef
from .registry import Registry
from .report import Report
from .reviving import Reviver
from .schedule import Schedule
from .seams import Plugin
from .tally import Tally
from .tools.bodies import Strays
from .tools.loops import opening_on
from .turns.ending import end_asleep
from .turns.resting import look
from .waiting import in_turn
from .waits import WaitGraph

if TYPE_CHECKING:
    from .agent import Agent

_log = logging.getLogger("callboard")
LOOKS_S = 30.0
"""How often agents that rest are looked after, at the least."""
OPENING_AT_ONCE = 32
"""How many agents start-up opens side by side; running them is not bounded, or parents would hold the places of children."""


class Runtime:
    """The shared parts of one system."""

    def __init__(
        self,
        store: Store,
        *,
        models: Mapping[str, Model] | None = None,
        plugins: Sequence[Plugin] = (),
        deps: Any = None,
        resolve: Callable[..., Awaitable[Any]] | None = None,
        idle_after: float = 60,
        channels: Mapping[str, Any] | None = None,
        model_slots: int | Mapping[str, int] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.store, self.deps, self.resolve, self.now, self.idle_after = store, deps, resolve, now, idle_after
        self.models = Models(models)
        self.model_slots = ModelSlots(model_slots)
        self.writer = Writer(store)
        self.registry = Registry(self)
        self.definitions = Definitions(self)
        self.observers = Observers(self)
        self.switchboard = Switchboard(self, channels)
        self.policies = Policies(plugins, in_chats=[agent.name for agent in agents_of(self.switchboard.channels)])
        self.mail = Mail(self)
        self.children = Children(self)
        self.graph = WaitGraph()
        self.schedule = Schedule(self)
        self.reviver = Reviver(self)
        self.strays = Strays()
        self.accepting: dict[tuple[str, str], trio.Event] = {}
        """Sends that plugins are being asked about, by agent and message id."""
        self.turn_over = trio.lowlevel.ParkingLot()
        """Where the exit of a cancelled turn waits for those below it."""
        self.report, self.tally = Report(), Tally()
        self.loop = opening_on.get()
        """The asyncio loop that the system was opened from, if it was."""
        self.starting = True
        self.closing = False
        self.nobody_answers = False
        """Whether questions to a person are refused at once: nobody could ever answer them."""
        self.fatal: BaseException | None = None
        self.clock = trio.current_time
        self.observers_nursery: trio.Nursery
        self.bodies_nursery: trio.Nursery
        self.actors_nursery: trio.Nursery

    def now_ms(self) -> int:
        """The wall clock, Unix ms."""
        return int(self.now() * 1000)

    async def start_plugins(self, *agents: Agent[Any, Any]) -> None:
        """Start the plugins of these definitions, if they have not been."""
        await self.policies.start(self.system, agents)

    def ref(self, id: str) -> AgentRef[Any]:
        """A handle."""
        return AgentRef(self, id)

    def route_of(self, model: str | Model | None) -> tuple[str, str, Model | None]:
        """Provider, name and adapter of a model as a definition names it."""
        if model is None:
            return "", "", None
        found = self.models.resolve(model)
        return found.provider, found.name, found.model

    def fresh_context(self, agent: str) -> contextvars.Context:
        """The context of a body: its initiator, whose turn it is part of, and nothing else."""
        context = fresh_context(agent)
        context.run(in_turn.set, agent)
        return context

    def start_task(self, function: Callable[..., Awaitable[object]], *arguments: object, name: str) -> None:
        """A task beside the agents, for a plugin; a throw ends it alone."""
        start_fresh(self.bodies_nursery, self._contained, function, arguments, name, initiator=None, name=name)

    async def _contained(self, function: Callable[..., Awaitable[object]], arguments: Sequence[object], name: str) -> None:
        try:
            await function(*arguments)
        except Exception:  # it belongs to no agent and no caller: people should know, and everything else goes on
            _log.exception("the task %r of the system failed", name)
        except BaseExceptionGroup as group:  # cancelled, and then it failed while it cleaned up
            cancelled, rest = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(rest, ExceptionGroup):
                raise
            _log.error("the task %r of the system failed as it was cancelled", name, exc_info=cast("Exception", rest))
            raise cancelled from None

    def log_throw(self, agent: str, where: str) -> None:
        """A plugin threw where its throw changes nothing: people should know."""
        _log.exception("agent %r: a throw in %s was contained", agent, where)

    def note_late(self, agent: str, kind: str, data: Any) -> None:
        """A note from outside a turn, about something that came too late; dropped if the agent is not open any more."""
        actor = self.registry.peek(agent)
        if actor is not None and actor.log.failed is None:
            actor.log.append(Note(kind=kind, data=data))
        else:
            _log.warning("agent %r: %s %r came too late to be noted", agent, kind, data)

    def crash(self, error: BaseException) -> None:
        """A body raised what is no `Exception`: the turn is closed, and now the system closes and raises it."""
        if self.fatal is None:
            self.fatal = error
            self.closing = True
            self.actors_nursery.cancel_scope.cancel()

    # -- the life of a system

    @asynccontextmanager
    @trio.lowlevel.enable_ki_protection
    async def running(self, grace: float) -> AsyncGenerator[None]:
        """Everything that has to run, in its layers; leaves when all of it has ended."""
        inner: BaseException | None = None
        async with trio.open_nursery() as writer_nursery:
            writer_nursery.start_soon(self._write)
            try:
                async with trio.open_nursery() as self.observers_nursery:
                    async with trio.open_nursery() as self.bodies_nursery:
                        async with trio.open_nursery() as self.actors_nursery:
                            try:
                                await self._start()
                                yield
                            except trio.Cancelled:
                                raise
                            except BaseException as error:  # raised again outside the nurseries, which would wrap it
                                inner = error
                            try:
                                await self._close(0 if inner is not None or self.fatal is not None else grace)
                            except KeyboardInterrupt as error:  # the second one: no grace any more
                                inner = error
                                await self._close(0)
                        self._report_strays()
                        self.bodies_nursery.cancel_scope.cancel()
                    await self._stop_observers(grace)
            finally:
                self.closing = True
                await self._stop_plugins()
                self.writer.stop()
        if self.fatal is not None:
            raise self.fatal
        if inner is not None:
            raise inner

    @trio.lowlevel.enable_ki_protection
    async def _write(self) -> None:
        with trio.CancelScope(shield=True):
            await self.writer.run()
            self.registry.close()

    async def _start(self) -> None:
        await self.start_plugins(*self.definitions)
        await self._recover()
        await self.schedule.start()
        self.starting = False
        self.turn_over.unpark_all()  # suspects look whether anybody is before them
        self.bodies_nursery.start_soon(self._janitor)
        self.bodies_nursery.start_soon(self.schedule.run)
        self.bodies_nursery.start_soon(self.reviver.run)
        self.bodies_nursery.start_soon(self._notice_cancel)
        self.switchboard.start(self.observers_nursery)

    async def _recover(self) -> None:
        """Take up every agent that has something to do. What cannot be opened is reported and left as it is."""
        ids: list[str] = []
        page = await self.store.agents(flag="attention")
        while page:
            ids.extend(head.agent for head in page)
            page = await self.store.agents(flag="attention", after=page[-1].agent)
        slots = trio.CapacityLimiter(OPENING_AT_ONCE)
        async with trio.open_nursery() as nursery:
            for id in ids:
                nursery.start_soon(self._take_up, id, slots)

    @trio.lowlevel.enable_ki_protection
    async def _take_up(self, id: str, slots: trio.CapacityLimiter) -> None:
        async with slots:
            try:
                actor = await self.registry.actor(id)
            except CallboardError as error:
                self.report.failed[id] = error
                if isinstance(error, DefinitionMissing):
                    self.reviver.want(id)  # it may come later, by `define` or a spawn
                return
            except Exception as error:  # whatever it is: one agent keeps nobody from opening the others
                _log.exception("agent %r could not be taken up", id)
                self.report.failed[id] = CallboardError(f"agent {id!r} could not be taken up: {described(error)}", agent=id)
                return
            if actor.take_up or actor.position.open:
                self.report.resumed.append(id)
            elif actor.status == "running" or len(actor.state.outbox):
                self.report.woken.append(id)

    @trio.lowlevel.enable_ki_protection
    async def _notice_cancel(self) -> None:
        """When the scope around the system is cancelled, nothing new begins, and what runs is left for the next start.

        All tasks hear of it in the same pass of the scheduler; one pass later `closing` tells which kind of cancel it was.
        """
        try:
            await trio.sleep_forever()
        finally:
            self.closing = True

    @trio.lowlevel.enable_ki_protection
    async def _janitor(self) -> None:
        """Look after agents that rest: those that wait for maintenance have it, the others are dropped from memory in time. And
        end drivers that have only waited for a person as long."""
        while True:
            await trio.sleep(max(min(self.idle_after / 2, LOOKS_S), 0.05))
            for actor in self.registry:
                if actor.turn is not None:
                    look(actor.turn, self.idle_after)
                rested = self.clock() - actor.idle_since
                if waits_for_maintenance(actor):
                    if rested >= (actor.chains.idle_s or 0):
                        self.start_task(compact_resting, actor, name=f"maintenance of {actor.id}")
                elif rested >= self.idle_after:
                    self.registry.passivate(actor)

    async def _close(self, grace: float) -> None:
        """Let running turns end within the grace; what is still open is suspended, and goes on at the next start."""
        with trio.CancelScope(shield=True):
            self.closing = True
            self.turn_over.unpark_all()  # suspects that wait for their turn need not
            for actor in self.registry:
                actor.leave_open()
            with trio.move_on_after(grace):
                for actor in self.registry:
                    if actor.status == "running" and not actor.asleep:
                        await _until_idle(actor)
            for actor in self.registry:
                if actor.maintenance is not None:
                    actor.maintenance.cancel()
                if actor.turn is not None:
                    actor.turn.suspend_now()
                    actor.turn.scope.cancel()
            await end_asleep(self)
            for actor in self.registry:
                await _until_idle(actor)
            self.registry.snapshots()
            await self.writer.flush()

    async def _stop_observers(self, grace: float) -> None:
        with trio.CancelScope(shield=True):
            await self.writer.flush()
            with trio.move_on_after(grace):
                await self.switchboard.wait_settled()
                await self.observers.wait_caught_up()
        self.observers_nursery.cancel_scope.cancel()

    async def _stop_plugins(self) -> None:
        with trio.CancelScope(shield=True):
            await self.policies.stop()
            await self.models.aclose()

    def _report_strays(self) -> None:
        if self.strays:
            _log.warning("closing has to wait for bodies that ignore their cancellation: %s", ", ".join(self.strays))

    system: Any = None
    """The public face, for plugins."""


async def _until_idle(actor: Any) -> None:
    while actor.status == "running":
        await actor.idle_lot.park()
