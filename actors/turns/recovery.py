"""Taking up a turn that an earlier activity left open: where to go on, by the position fold alone.

An open request is another attempt of the same step; calls are decided by the batch; a step whose answer is final only needs its
end. A turn that was cancelled, or whose agent closes open turns (`recovery="end"`), or that has killed the process too often, is
not gone on with: it leaves through the exit like any other. Only here are chunks of a log read: those of the one attempt that
was open, to keep what it had shown or what it had cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import trio

from ...storage.events import AssistantChunk, CommandResult, Interrupted, RequestFailed
from ...storage.folds.position import INTERRUPTED
from ...storage.messages import Failure
from ..answers import LimitReached
from ..output import missing
from .attempt import Stream
from .suspects import only_waits

if TYPE_CHECKING:
    from .turn import Turn


async def take_up(turn: Turn) -> str:
    """RESTORE for an open turn: `ok` (no step yet), `taken-up` (in a step or between two) or `answered`.

    Raises:
        LimitReached: the turn has ended the process too often.
    """
    at = turn.position
    turn.actor.at_barrier()
    if turn.rested:
        if at.cancel is not None:
            turn.scope.cancel()
        await trio.lowlevel.checkpoint()
        return "taken-up"
    await turn.log.commit()  # the resume is counted before anything runs that may end the process again
    if at.request is not None or at.failure is not None:
        await _read_last_attempt(turn)
    if at.cancel is not None or turn.agent.recovery == "end":
        turn.found_dead = True
        turn.reason = Interrupted()
        turn.scope.cancel()
        await trio.lowlevel.checkpoint()
    if at.resumes > turn.agent.limits.recoveries and not only_waits(turn.actor):
        turn.found_dead = True
        if at.request is not None:
            _close_open_attempt(turn, "raise")  # what it had shown is kept by the exit, as of any attempt that failed for good
        if at.step == 0 and not at.claimed:
            _claim_all(turn)
        limit = turn.agent.limits.recoveries
        raise LimitReached("recoveries", f"the process ended {at.resumes} times in this turn (Limits.recoveries={limit})")
    if at.request is not None:
        _close_open_attempt(turn, "retry")
        turn.stream = None  # its chunks stay out of history
    if at.command is not None:
        failure = Failure("OUTCOME_UNKNOWN", "the process ended while the command ran; whether it took effect is unknown")
        turn.log.append(CommandResult(id=at.command, text=failure.message, error=failure))
        turn.reply = failure.message
        turn.delivery = "none" if turn.actor.route is None else "put"
    if at.step == 0:
        if not at.claimed:  # so that COMMAND finds the prompt that it would have found
            turn.prompt = turn.actor.inbox.reserve_prompt(turn.actor.runtime.now_ms())
        elif turn.reply is None:
            await _read_command_result(turn)
        return "ok"
    whole = at.concludes or (at.said != "" and at.finish != "max-tokens")  # else a plugin may want it to go on
    final = at.terminal and whole and not at.open_calls and missing(turn.agent.typed, at) is None
    answered = final and not turn.actor.inbox.steering(turn.actor.runtime.now_ms())
    return "answered" if answered else "taken-up"


async def _read_command_result(turn: Turn) -> None:
    """What a turn claims before its first step is a command, and its result is in that append: the route still gets it."""
    at, store = turn.position, turn.actor.runtime.store
    async for record in store.read(turn.actor.id, at.start_seq, types={"command/result"}):
        if isinstance(record.event, CommandResult) and record.event.id in at.claimed:
            turn.reply = record.event.text
            turn.delivery = "none" if turn.actor.route is None else "put"


def _claim_all(turn: Turn) -> None:
    """What the first boundary would have taken may be what kills: this turn accounts for it, or the next one dies too."""
    inbox, now = turn.actor.inbox, turn.actor.runtime.now_ms()
    turn.prompt = inbox.reserve_prompt(now)
    turn.claiming = tuple(item.id for item in inbox.reserve_boundary(True, turn.agent.limits.boundary, now))


async def _read_last_attempt(turn: Turn) -> None:
    """The chunks of the attempt that is open, or that failed for good before its step could be closed."""
    at, store = turn.position, turn.actor.runtime.store
    after = at.request.seq if at.request is not None else at.start_seq
    turn.stream = _fresh_stream(turn)
    async for record in store.read(turn.actor.id, after, types={"request/sent", "assistant/chunk"}):
        if isinstance(record.event, AssistantChunk):
            turn.stream.feed(record.seq, record.event.chunk)
        else:
            turn.stream = _fresh_stream(turn)


def _fresh_stream(turn: Turn) -> Stream:
    header = turn.log.state.headers.current
    return Stream(header.provider if header else "", header.model if header else "")


def _close_open_attempt(turn: Turn, action: Literal["retry", "raise"]) -> None:
    """The crash was its failure; what the provider said it cost is counted."""
    at, stream = turn.position, turn.stream
    assert at.request is not None, "asked for the open attempt"
    failure = Failure(INTERRUPTED, "the process ended while the request ran")
    turn.log.append(
        RequestFailed(
            turn=turn.number,
            step=at.step,
            attempt=at.request.attempt,
            failure=failure,
            action=action,
            usage=stream.assembler.usage if stream is not None else None,
        )
    )
