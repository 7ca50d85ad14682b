"""Turn: one walk through the table of states, from the reservation of its input to what its end will say.

The handlers do one thing each and leave an event; the table says what follows. Handlers of SAVE and RESPOND write nothing: they
note what the end will say, and the one exit (`closing.py`) appends it, on every path. What is here beside the log is scratch:
a crash loses it, and RESTORE finds its way from the position fold alone.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Literal

import trio

from ...mailbox.items import Item
from ...storage.events import Blocked, Completed, EndReason, MaxTokens, TraceEntry, TurnResume, TurnStart
from ...storage.messages import NO_USAGE
from ..failures import as_error
from ..output import invalid, missing
from ..texts import well_formed
from .boundary import first_boundary, later_boundary
from .commands import run_command, slash
from .recovery import take_up
from .respond import respond_to_route
from .states import BUILD, COMMAND, COMPACT, RESPOND, RESTORE, RUN, SAVE, shortened, walk
from .step import run_step
from .surfacing import compact_view

if TYPE_CHECKING:
    from ...storage.folds import Position
    from ..actor import Actor
    from ..answers import Assembly
    from .attempt import Stream
    from .batch import Batch


class Turn:
    """The scratch of one turn while it runs."""

    __slots__ = (
        "actor",
        "agent",
        "asks_since",
        "assembly",
        "batch",
        "chains",
        "claimed_before_end",
        "claiming",
        "deadline",
        "delivery",
        "end_seq",
        "end_usage",
        "error",
        "found_dead",
        "log",
        "position",
        "prompt",
        "reason",
        "reply",
        "rested",
        "resting",
        "scope",
        "stream",
        "suspending",
        "system_text",
        "taken_up",
        "trace",
        "untold",
    )

    def __init__(self, actor: Actor) -> None:
        self.actor, self.log, self.agent, self.chains = actor, actor.log, actor.agent, actor.chains
        self.position: Position = actor.position
        self.scope = trio.CancelScope()
        self.taken_up = False
        self.suspending = False
        self.deadline = float("inf")
        """When bodies that ignore cancellation are given up, by trio's clock; set by the cancel at the root of the tree."""
        self.prompt: Item | None = None
        self.claiming: tuple[str, ...] = ()
        """What the present boundary has reserved; claimed in the append that says what became of it."""
        self.assembly: Assembly | None = None
        self.system_text: str | None = None
        self.stream: Stream | None = None
        """The attempt whose chunks are being read; what it has shown survives a cut."""
        self.batch: Batch | None = None
        self.reason: EndReason | None = None
        self.error: BaseException | None = None
        self.reply: str | None = None
        self.delivery: Literal["put", "answered", "suppressed", "none"] = "none"
        self.asks_since: float | None = None
        """Since when, by trio's clock, it has been seen to wait for people alone."""
        self.resting = False
        """Whether it was cut for that."""
        self.rested = False
        """Whether the driver before this one left it for that: then nothing was interrupted."""
        self.untold: str | None = None
        """The parent of a child whose end could not be written there now."""
        self.found_dead = False
        """Whether the turn was taken up only to be closed: what it had started has ended with its process."""
        self.end_seq = -1
        self.end_usage = NO_USAGE
        self.claimed_before_end: tuple[str, ...] = ()
        self.trace: list[TraceEntry] = []

    @property
    def number(self) -> int:
        """The turn's number."""
        return self.position.turn

    @property
    def end_reason(self) -> EndReason:
        """The reason the turn would end with now, if nothing fails."""
        return self.reason or (MaxTokens() if self.position.max_tokens else Completed())

    def open(self) -> None:
        """Reserve the prompt and open the turn; or go on with the one that is open."""
        if self.actor.take_up:
            self.taken_up, self.rested = True, self.actor.left
            self.actor.take_up = self.actor.left = False
            self.trace = shortened(self.actor.walked or self.position.trace)
            self.actor.walked = ()
            if self.position.cancel is None and self.agent.recovery == "continue" and not self.rested:
                self.log.append(TurnResume(turn=self.number))
            return
        inbox, now = self.actor.inbox, self.actor.runtime.now_ms()
        self.prompt = inbox.reserve_prompt(now)
        self.log.append(TurnStart(turn=self.number + 1, route=inbox.turn_route(self.prompt, now)))

    def suspend_now(self) -> None:
        """The system closes: the turn stays open for the next start."""
        self.suspending = True

    def walk(self) -> Coroutine[Any, Any, None]:
        """From RESTORE to DONE; raises what made a handler fail."""
        return walk(_HANDLERS, self, self.trace, turn=self.number, now_ms=self.actor.runtime.now_ms)

    def block(self, why: str) -> None:
        """A plugin refused what a boundary had reserved."""
        self.reason = Blocked(well_formed(str(why)))


async def _restore(turn: Turn) -> str:
    if not turn.taken_up:
        return "ok"
    event = await take_up(turn)
    if turn.position.failure is not None:
        raise as_error(turn.position.failure)
    return event


async def _compact(turn: Turn) -> str:
    if slash(turn) is None:  # what people undo or begin anew is not summarised before
        await compact_view(turn)
    return "ok"


async def _command(turn: Turn) -> str:
    if await run_command(turn):
        return "shortcut"
    if slash(turn) is not None:  # but it was no command
        await compact_view(turn)
    return "dispatch"


async def _run(turn: Turn) -> str:
    going = True
    while going:
        if turn.position.step_open:
            await run_step(turn)
        going = await later_boundary(turn)
    return "ok"


async def _save(turn: Turn) -> str:
    turn.reason = turn.end_reason
    why = missing(turn.agent.typed, turn.position) if isinstance(turn.reason, Completed) else None
    if why is not None and turn.agent.typed is not None:  # a plugin kept the model from being told
        raise invalid(turn.agent.typed, why, turn.agent.limits.output_retries)
    return "ok"


async def _respond(turn: Turn) -> str:
    await respond_to_route(turn)
    return "ok"


_HANDLERS = {
    RESTORE: _restore,
    COMPACT: _compact,
    COMMAND: _command,
    BUILD: first_boundary,
    RUN: _run,
    SAVE: _save,
    RESPOND: _respond,
}
