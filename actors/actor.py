"""Actor: one agent of this process while its log is open.

It ties the log to a definition, takes input, and runs at most one driver. The handles that people hold (`AgentRef`) name an
agent by its id; the actor behind it comes and goes with passivation and failure. Everything it knows that must survive is in
the log; what it keeps beside that (who waits, the open scope) dies with the process without loss.

The rule of waking: a send appends its `inbox/put` and flips the status to running in the same stretch, without a checkpoint
between; and the driver takes its last look at the inbox and flips to idle in one stretch, too. So no wake falls in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import trio

from ..storage.errors import CallboardError
from ..storage.events import Route, TraceEntry, TurnSuspend
from ..storage.log import Log
from ..storage.writer import Expectation
from .failures import flatten
from .initiator import start_fresh
from .policies import Ancestors
from .ports import AgentPort
from .promises import Promises
from .seams import SeamContext
from .state import AgentState
from .turns.closing import closing_error
from .turns.driver import drive

if TYPE_CHECKING:
    from ..mailbox.inbox import Inbox
    from ..storage.folds import Position
    from .agent import Agent
    from .runtime import Runtime
    from .turns.turn import Turn

Status = Literal["idle", "running", "failed"]


class Hold:
    """Keeps an actor in memory while any block with it is open: somebody needs it."""

    __slots__ = ("_actor",)

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def __enter__(self) -> None:
        self._actor.holds += 1

    def __exit__(self, *raised: object) -> None:
        self._actor.holds -= 1
        self._actor.idle_since = self._actor.runtime.clock()


class Actor:
    """An agent with its log open. Made by the registry alone."""

    __slots__ = (
        "_hold",
        "agent",
        "ancestors",
        "answers",
        "asides",
        "asleep",
        "chains",
        "context",
        "expectation",
        "fresh_epoch",
        "holds",
        "id",
        "idle_lot",
        "idle_since",
        "left",
        "log",
        "maintenance",
        "opened_at",
        "outbox_seen",
        "promises",
        "rested",
        "runtime",
        "status",
        "strays",
        "take_up",
        "turn",
        "walked",
    )

    def __init__(
        self, runtime: Runtime, agent: Agent[Any, Any], log: Log[AgentState], *, fresh_epoch: bool, ancestors: Ancestors = ()
    ) -> None:
        self.runtime, self.log, self.id, self.ancestors = runtime, log, log.agent, ancestors
        self.define(agent)
        self.status: Status = "idle"
        self.turn: Turn | None = None
        """The turn that is being run, from before its `turn/start` to its end's commit."""
        self.opened_at = log.last
        """The log's last seq when it was opened; what stands up to there, an earlier activity wrote."""
        self.take_up = False
        """Whether the next turn of the driver is the open one."""
        self.left = False
        """Whether its last driver left it to wait for a person, and no process ended."""
        self.walked: tuple[TraceEntry, ...] = ()
        """How the turn that it left had walked."""
        self.asleep = False
        """Whether nobody runs it meanwhile: the next wake does. The status is `running` all the same, as a turn is open."""
        self.fresh_epoch = fresh_epoch
        """Whether no request of this owner epoch has named its header yet."""
        self.holds = 0
        self._hold = Hold(self)
        self.idle_lot = trio.lowlevel.ParkingLot()
        self.asides: set[trio.CancelScope] = set()
        """What plugins run beside the turns."""
        self.maintenance: trio.CancelScope | None = None
        """The scope of work that is no turn, and that no turn may overlap."""
        self.rested = -1 if log.state.position.open else log.state.position.turn
        """The turn after which maintenance has had its time."""
        self.idle_since = runtime.clock()
        self.promises = Promises(self)
        self.context = SeamContext(AgentPort(self))
        self.expectation: Expectation | None = None
        self.answers = trio.lowlevel.ParkingLot()
        """Where calls that wait for a person hear of answers."""
        self.strays: set[str] = set()
        self.outbox_seen = -1
        """The last reply that the switchboard has taken from the outbox."""
        log.on_poison = self._stop
        log.on_settle = self._settled

    def __repr__(self) -> str:
        return f"<Actor {self.id!r} {self.status}, seq {self.log.last}>"

    def define(self, agent: Agent[Any, Any]) -> None:
        """Take a definition; a running turn keeps the old one until its next boundary."""
        self.agent, self.chains = agent, self.runtime.policies.chains(agent, self.ancestors)

    @property
    def state(self) -> AgentState:
        """The folds of the log."""
        return self.log.state

    @property
    def position(self) -> Position:
        """Where the log stands."""
        return self.log.state.position

    @property
    def inbox(self) -> Inbox:
        """The mailbox."""
        return self.log.state.inbox

    @property
    def labels(self) -> dict[str, str]:
        """The agent's labels."""
        return self.state.identity.labels or {}

    @property
    def family(self) -> str:
        """The topmost of those above it, or the agent itself: whose work it does."""
        return self.ancestors[-1][0] if self.ancestors else self.id

    @property
    def route(self) -> Route | None:
        """Where the open turn's next answer goes: the route of the last message it took that has one."""
        return self.position.reply if self.position.open else None

    def held(self) -> Hold:
        """Keep the actor from being passivated, for the length of a block."""
        return self._hold

    @property
    def quiet(self) -> bool:
        """Whether dropping the actor from memory would take nothing from anybody."""
        log, watch = self.log, self.runtime.observers.of(self)
        observed = 0 if watch is None else 1
        if watch is not None and not watch.caught_up:
            return False
        followed = log.followers > observed or len(log.moved) > observed
        at_rest = self.asleep or (self.status == "idle" and not self.take_up)
        busy = not at_rest or self.holds or log.dirty or log.waiting or followed
        return not busy and not self.promises and not self.strays

    # -- the driver

    @trio.lowlevel.enable_ki_protection
    def wake(self) -> None:
        """Start a driver if none runs and there is something to do; a running one looks at the inbox by itself."""
        if not (self.status == "idle" or self.asleep) or self.maintenance is not None or self.runtime.closing:
            return
        if not self.take_up and not self.inbox.due(self.runtime.now_ms()):
            self.runtime.schedule.note(self)
            return
        self.asleep = False
        self._become("running")
        self.expectation = self.runtime.writer.expect()
        start_fresh(self.runtime.actors_nursery, drive, self, initiator=self.id)

    def at_barrier(self) -> None:
        """The driver is about to wait for its first commit: the writer need not wait for it any more."""
        if self.expectation is not None:
            self.expectation.end()
            self.expectation = None

    def rest(self) -> None:
        """The driver ends: nothing is due."""
        if self.log.failed is not None:
            self.fail()
            return
        self.at_barrier()
        self.runtime.schedule.note(self)
        self.idle_since = self.runtime.clock()
        self.runtime.turn_over.unpark_all()
        if not self.asleep:
            self._become("idle")
            self.idle_lot.unpark_all()

    def leave(self, *, asleep: bool, walked: tuple[TraceEntry, ...] = ()) -> None:
        """The open turn is left by its driver, which wrote nothing about it; `asleep` if it only waits for a person."""
        self.take_up = self.left = True
        self.asleep, self.walked = asleep, walked
        self.status = "running"
        self.context.local.clear()

    def leave_open(self) -> None:
        """The system closes: a turn that nobody runs is left for the next start. (Others are ended: `turns/ending.py`.)"""
        if self.asleep and self.log.failed is None and self.agent.recovery == "continue":
            self.asleep = self.left = False
            self.log.append(TurnSuspend(turn=self.position.turn, trace=self.walked))
            self.promises.break_all(closing_error(self))
            self._become("idle")
            self.idle_lot.unpark_all()

    def next_due(self, now: int) -> int | None:
        """When the clock next has something for the agent (Unix ms); to one that is asleep also that a question expires."""
        due = self.state.next_due(now)
        expiry = self.state.approvals.next_expiry if self.asleep else None
        return min((each for each in (due, expiry) if each is not None), default=None)

    def fail(self) -> None:
        """The log failed: memory is not what the disk holds. Everybody who waits hears of it; the next access opens anew."""
        self.at_barrier()
        self.asleep = self.left = False
        error = self.log.failed or CallboardError(f"the agent {self.id!r} failed", agent=self.id)
        self._become("failed")
        self.runtime.observers.error(self, flatten(error))
        self.runtime.registry.forget(self, error)
        self.promises.break_all(error)
        self.idle_lot.unpark_all()

    def _stop(self) -> None:
        """A commit failed: a running activity is cut, and its driver calls `fail`; an idle agent has nobody else to do it."""
        if self.turn is not None:
            self.turn.scope.cancel()
        if self.status == "idle" or self.asleep:
            self.fail()
        elif self.status == "running":
            self.runtime.turn_over.unpark_all()

    def _settled(self) -> None:
        self.runtime.switchboard.look(self)

    def _become(self, status: Status) -> None:
        if status != self.status:
            self.status = status
            self.runtime.observers.status(self, status)

    async def wait_idle(self) -> None:
        """Return when no driver runs.

        Raises:
            CommitFailed: the log failed meanwhile.
        """
        while self.status == "running":
            await self.idle_lot.park()
        if self.status == "failed" and self.log.failed is not None:
            raise self.log.failed
