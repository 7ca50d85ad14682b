"""The states of a turn, as a table, and the walk through it.

Two rules. All that is known of the order of a turn is in `TABLE`; this file does not know what any state does. And anything
that is not in the table fails by name, never silently: an event that a state may not answer, a state without a handler.

Theory of operation. A turn is one walk from RESTORE to DONE. In each state the walk calls the state's handler, which does the
work and answers with an event; the table says which state comes next. Most walks are straight. The exceptions: RESTORE can find
a turn that an earlier activity left in the middle (`taken-up`, on to RUN) or after its last answer (`answered`, on to SAVE);
COMMAND can answer by itself (`shortcut`, straight to DONE); BUILD can find that nothing may run (`blocked`, `empty`). Every
handler leaves a trace entry, also one that failed or was cancelled; the trace goes into `turn/end`. DONE is terminal: it has no
handler and leaves no entry. A walk that fails is not walked on; the turn's one exit, outside of here, closes what is open.

A turn that is left (the system closes, or it waits for a person) and taken up is walked again from RESTORE, and keeps the entries
that it had.

The diagram in the docs is drawn from the table, and a test fails when it is stale.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar, final

import trio

from ...storage.errors import CallboardError
from ...storage.events import TraceEntry
from ..failures import flatten, split_cancelled

T = TypeVar("T")
LONGEST = 64
"""The most entries that a turn takes over from the walks before: one that waits for a person may be taken up again and again."""


class TurnTableError(CallboardError):
    """A turn went where its table has no way: a handler answered an unknown event, or a state has no handler."""

    code = "TURN_TABLE"

    def __init__(self, message: str, *, state: State, event: str | None = None, turn: int | None = None) -> None:
        super().__init__(message, turn=turn)
        self.state, self.event = state, event


@final
class State:
    """One state, compared by identity; `does` is what its handler does, in words for the docs."""

    __slots__ = ("does", "name")

    def __init__(self, name: str, does: str) -> None:
        self.name, self.does = name, does

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        # By name, so that an error that was sent elsewhere still holds the one object there is.
        return self.name


RESTORE: Final = State("RESTORE", "open the log; take up what an earlier activity left; resolve media")
COMPACT: Final = State("COMPACT", "the `compact` seam, counting what this turn is about to claim")
COMMAND: Final = State("COMMAND", "the `command` seam: a slash command is answered here")
BUILD: Final = State("BUILD", "the first boundary: what enters the model's view")
RUN: Final = State("RUN", "steps, with their later boundaries, until the turn may end")
SAVE: Final = State("SAVE", "what the end will say: reason, usage, latency")
RESPOND: Final = State("RESPOND", "the `respond` seam: what goes to the turn's route")
DONE: Final = State("DONE", "nothing: the exit appends the end")

STATES: Final = (RESTORE, COMPACT, COMMAND, BUILD, RUN, SAVE, RESPOND, DONE)

TABLE: Final[Mapping[State, Mapping[str, State]]] = {
    RESTORE: {"ok": COMPACT, "taken-up": RUN, "answered": SAVE},
    COMPACT: {"ok": COMMAND},
    COMMAND: {"dispatch": BUILD, "shortcut": DONE},
    BUILD: {"ok": RUN, "blocked": SAVE, "empty": SAVE},
    RUN: {"ok": SAVE},
    SAVE: {"ok": RESPOND},
    RESPOND: {"ok": DONE},
    DONE: {},
}
"""State → event → next state."""

Handler = Callable[[T], Awaitable[str]]
"""Does a state's work on a turn and answers with an event."""


def next_state(state: State, event: str, *, turn: int | None = None) -> State:
    """The state after `event`.

    Raises:
        TurnTableError: the table has no such event there; it names turn, state and event.
    """
    try:
        return TABLE[state][event]
    except KeyError:
        known = ", ".join(map(repr, TABLE[state])) or "no event"
        text = f"turn {turn}: state {state} answered {event!r}; it may answer {known}"
        raise TurnTableError(text, state=state, event=event, turn=turn) from None


def _no_handler(state: State, turn: int) -> TurnTableError:
    return TurnTableError(f"turn {turn}: state {state} has no handler, so no event; give it one", state=state, turn=turn)


def wall_ms() -> int:
    """The wall clock in Unix milliseconds."""
    return time.time_ns() // 1_000_000


async def walk(
    handlers: Mapping[State, Handler[T]],
    subject: T,
    trace: list[TraceEntry],
    *,
    turn: int,
    now_ms: Callable[[], int] = wall_ms,
    clock_ns: Callable[[], int] = time.perf_counter_ns,
) -> None:
    """Walk `subject` from RESTORE to DONE, each state by its handler, an entry for each in `trace`.

    The entries are there as soon as a state is over, so that whoever catches a failure finds all of them, the failed one last.

    Raises:
        TurnTableError: an event that is not in the table, or a state without handler.
        BaseException: whatever a handler raises, a cancellation too.
    """
    state, begun = RESTORE, clock_ns()
    while state is not DONE:
        start, event = now_ms(), None
        try:
            handler = handlers.get(state)
            if handler is None:
                raise _no_handler(state, turn)
            event = await handler(subject)
            following = TABLE[state].get(event) or next_state(state, event, turn=turn)
        except BaseException as error:
            trace.append(TraceEntry(state.name, start, (clock_ns() - begun) // 1000, event, *_named(error)))
            raise
        ended = clock_ns()
        trace.append(TraceEntry(state.name, start, (ended - begun) // 1000, event))
        state, begun = following, ended


def _named(error: BaseException) -> tuple[str, str | None]:
    """Type and text of what ended a state. A cancellation has no text of its own, nor has a group of nothing else."""
    _, own = split_cancelled(error)
    return (trio.Cancelled.__name__, None) if own is None else (type(own).__name__, flatten(own).message or None)


def shortened(trace: Sequence[TraceEntry]) -> list[TraceEntry]:
    """The walk of a turn that is taken up again, to go on with: of a long one, its beginning and what came last."""
    beginning = len(STATES)
    return [*trace] if len(trace) <= LONGEST else [*trace[:beginning], *trace[beginning - LONGEST :]]


def diagram() -> str:
    """The table as the text of a mermaid diagram, for the docs."""
    lines = ["stateDiagram-v2", f"    [*] --> {RESTORE}"]
    for state, ways in TABLE.items():
        for following in dict.fromkeys(ways.values()):
            events = ", ".join(event for event, goal in ways.items() if goal is following)
            lines.append(f"    {state} --> {following}: {events}")
    return "\n".join([*lines, f"    {DONE} --> [*]", ""])


def table() -> str:
    """The table as markdown, for the docs."""
    lines = ["| state | does | event → next |", "|---|---|---|"]
    for state, ways in TABLE.items():
        moves = " · ".join(f"{event} → {following}" for event, following in ways.items()) or "terminal"
        lines.append(f"| {state} | {state.does} | {moves} |")
    return "\n".join([*lines, ""])
