"""The one exit: every turn leaves through here, and all that its end says is one append.

Withdrawn questions, the visible part of a stream that was cut, missing results, `step/end`, what the last boundary had reserved,
`turn/end`, the reply to the route, and, for a child that lived for one task, its end in the parent's log in the same commit. The
walk may have completed, failed, been cancelled, been overtaken by the closing of the system, or been cut by a crash long ago:
which of these it was decides the reason and what stands in for what is missing, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ...storage.errors import AskTimeout, CallboardError
from ...storage.events import (
    Aborted,
    ApprovalAnswered,
    Cause,
    EndReason,
    Errored,
    Event,
    InboxClaim,
    Interrupted,
    Limited,
    StepEnd,
    TurnEnd,
    TurnSuspend,
)
from ..answers import LimitReached
from ..failures import flatten
from ..outcomes import outcome_now
from ..texts import well_formed
from ..tools.bodies import innermost
from .attempt import attempt_failed
from .batch import closing_blobs, closing_results, context_puts
from .child_end import ChildEnd, cancelled_children, child_end
from .respond import standard_replies
from .resting import rest
from .verdicts import ABORTED, ABORTED_BEFORE_DISPATCH, NOT_STARTED, OUTCOME_UNKNOWN

if TYPE_CHECKING:
    from ..actor import Actor
    from .turn import Turn


async def close_turn(turn: Turn) -> None:
    """Write the end of the turn (or that it is suspended), wait until it is on disk, and tell who waits. No cancellation gets
    in between: where anything is waited for, it is shielded.

    Raises:
        CommitFailed: the end did not reach the disk; recovery will write one.
    """
    actor, end = turn.actor, None
    if not _is_alone(turn):
        with trio.CancelScope(shield=True):
            if turn.batch is not None:
                await turn.batch.look_at_the_last()
            if turn.resting and await rest(turn):
                return
            end = await child_end(turn)
            while turn.position.cancel is not None and actor.log.failed is None and cancelled_children(actor):
                await actor.runtime.turn_over.park()
    # No checkpoint from here to the append: a cancel comes before it and counts, or after it and finds no open turn.
    if turn.batch is not None and turn.batch.failure is not None:
        turn.error = turn.batch.failure
    cause = turn.position.cancel
    if cause is None and turn.suspending:
        if actor.agent.recovery == "continue":
            with trio.CancelScope(shield=True):
                await _suspend(turn, end)
            return
        cause = Cause("disposed")
    reason = _reason(turn, cause, turn.error)
    turn.end_usage = turn.position.usage
    try:
        _append(turn, reason, end)
        if actor.state.worth_a_snapshot:
            actor.log.snapshot_soon()
        await actor.log.commit(shielded=True)
        _tell(turn, reason, end)
    finally:
        if end is not None:
            end.release()


def _is_alone(turn: Turn) -> bool:
    """Whether nobody else has a part in this end: no body that may still run, no parent, no children to close first."""
    rooted = turn.actor.state.identity.parent is None
    return rooted and turn.batch is None and not turn.resting and turn.position.cancel is None


def _reason(turn: Turn, cause: Cause | None, error: BaseException | None) -> EndReason:
    if cause is not None:
        return Aborted(cause, None if error is None else flatten(error))
    if error is None:
        return turn.end_reason
    if isinstance(error, LimitReached):
        return Limited(well_formed(str(error.limit)), well_formed(str(error.text)) or None)
    return Errored(flatten(error))


def _what_is_missing(turn: Turn, reason: EndReason) -> list[Event]:
    at = turn.position
    events: list[Event] = [
        ApprovalAnswered(id=question.id, verdict="withdrawn") for question in turn.log.state.approvals.open.values()
    ]
    if at.request is not None and isinstance(reason, Errored):  # what is no Exception came out of the stream
        events.append(attempt_failed(turn, reason.error, "raise"))
    if at.step_open and turn.stream is not None:
        cut = turn.stream.cut_message(turn.number, at.step)
        if cut is not None:
            events.append(cut)
        if at.request is not None and turn.stream.assembler.usage is not None:
            turn.end_usage = turn.end_usage + turn.stream.assembler.usage
    started, waiting = _codes(turn, reason)
    events.extend(closing_results(turn, code_started=started, code_waiting=waiting))
    if at.step_open:
        events.append(StepEnd(turn=turn.number, step=at.step))
    return events


def _codes(turn: Turn, reason: EndReason) -> tuple[str, str]:
    """What stands in for results that are missing: of calls that had started, and of those that had not."""
    if turn.found_dead:  # nobody knows how far a started call came; of one that had not, a crash changes nothing
        return OUTCOME_UNKNOWN, ABORTED_BEFORE_DISPATCH if isinstance(reason, Aborted) else NOT_STARTED
    if isinstance(reason, Aborted):
        return ABORTED, ABORTED_BEFORE_DISPATCH
    return (OUTCOME_UNKNOWN if isinstance(reason, Interrupted) else ABORTED), NOT_STARTED


def _claims(turn: Turn, reason: EndReason) -> tuple[str, ...]:
    """What the end takes out of the inbox. A turn that failed before its first boundary takes what that would have: left
    where it is, the same input would open the next turn, which fails alike, for ever."""
    if isinstance(reason, Aborted | Interrupted):
        return ()
    if turn.claiming or turn.position.claimed or not isinstance(reason, Errored | Limited):
        return turn.claiming
    inbox, now = turn.actor.inbox, turn.actor.runtime.now_ms()
    if turn.taken_up and turn.prompt is None:
        turn.prompt = inbox.reserve_prompt(now)
    return tuple(item.id for item in inbox.reserve_boundary(True, turn.agent.limits.boundary, now))


def _end(turn: Turn, reason: EndReason) -> list[Event]:
    actor, at, now = turn.actor, turn.position, turn.actor.runtime.now_ms()
    events: list[Event] = []
    if turn.claiming:
        events.append(InboxClaim(turn=turn.number, ids=turn.claiming))
    replies = standard_replies(turn, reason)
    if replies or turn.delivery == "put":  # a cancel may have come behind the decision to say something
        turn.delivery = "put" if replies else "none"
    park = isinstance(reason, Errored | Limited) and actor.agent.after_error == "park"
    end = TurnEnd(
        turn=turn.number,
        reason=reason,
        usage=turn.end_usage,
        latency_ms=max(0, now - at.started),
        park=park,
        delivery=turn.delivery,
        trace=tuple(turn.trace),
    )
    events.append(end)
    events.extend(replies)
    return events


@trio.lowlevel.enable_ki_protection
def _append(turn: Turn, reason: EndReason, end: ChildEnd | None) -> None:
    actor = turn.actor
    turn.claiming = _claims(turn, reason)
    again = () if end is None else end.restart(turn, reason)
    events = [*_what_is_missing(turn, reason), *_end(turn, reason), *again]
    turn.claimed_before_end = turn.position.claimed + turn.claiming
    first = actor.log.append(*events, blobs=closing_blobs(turn))
    turn.end_seq = next(first + place for place, event in enumerate(events) if isinstance(event, TurnEnd))
    actor.inbox.release()
    if end is not None:
        end.append(turn, reason)


async def _suspend(turn: Turn, end: ChildEnd | None) -> None:
    """Results of bodies that finished are facts; what was cut is left for the next start."""
    if end is not None:
        end.release()
    results = closing_results(turn, code_started="", code_waiting="", finished_only=True)
    suspend = TurnSuspend(turn=turn.number, trace=tuple(turn.trace))
    turn.log.append(*results, *context_puts(turn, results), suspend, blobs=closing_blobs(turn))
    turn.actor.inbox.release()
    await turn.log.commit()
    turn.actor.promises.break_all(closing_error(turn.actor))
    _pass_on(turn)


def closing_error(actor: Actor) -> CallboardError:
    """What they hear who wait for a turn that is left open."""
    turn = actor.position.turn
    return AskTimeout(
        f"the system closes in turn {turn} of {actor.id!r}, which goes on at the next start: ask again with the same message id",
        agent=actor.id,
        turn=turn,
    )


def _tell(turn: Turn, reason: EndReason, end: ChildEnd | None) -> None:
    actor = turn.actor
    seconds = max(0, actor.runtime.now_ms() - turn.position.started) / 1000
    tally = actor.runtime.tally
    tally.turn(turn.agent.name, reason, steps=turn.position.step, usage=turn.end_usage, seconds=seconds)
    if isinstance(reason, Errored):
        actor.runtime.observers.error(actor, reason.error)
    if end is not None and end.restarted is not None:
        actor.promises.hand_on(end.task, end.restarted.message.id)
    if actor.promises:
        actor.promises.keep(outcome_now(turn, reason), turn.claimed_before_end)
        actor.promises.settle()
    if end is not None:
        end.tell(reason)
    if turn.untold is not None:
        actor.runtime.reviver.want(turn.untold)
    actor.inbox.forget_ids(actor.log.committed)
    _pass_on(turn)


def _pass_on(turn: Turn) -> None:
    """What is no `Exception` (SystemExit and the like) closes the system and leaves it, now that the turn is closed."""
    if turn.error is not None and not isinstance(turn.error, Exception):
        turn.actor.runtime.crash(innermost(turn.error))
