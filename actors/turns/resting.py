"""Resting: an open turn that only waits for people costs no task, and in the end no memory.

A question may be open for days. When that is all a turn has waited for, for as long as an idle agent is kept, its driver leaves
it: bodies that have ended get their results, nothing else is written, and the turn stays open. What wakes an agent (an answer,
the time at which a question expires, a message, a cancel) goes on with it from its log, as a restart would, but without a record:
nothing was interrupted. Meanwhile the agent may be dropped from memory, if nobody waits for the turn or follows it.

The last look and the driver's end are one stretch without a checkpoint. An answer comes before it, and the turn goes on at once;
or after it, and wakes the agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .batch import closing_blobs, closing_results, context_puts

if TYPE_CHECKING:
    from .turn import Turn


def look(turn: Turn, idle_after: float) -> None:
    """Cut the turn if it has only waited for people for so many seconds. Called now and then, by the clock."""
    if turn.resting or not _only_asks(turn):
        turn.asks_since = None
        return
    now = turn.actor.runtime.clock()
    if turn.asks_since is None:
        turn.asks_since = now
    elif now - turn.asks_since >= idle_after:
        turn.resting = True
        turn.scope.cancel()


def _only_asks(turn: Turn) -> bool:
    alive = turn.position.cancel is None and not turn.suspending and not turn.actor.runtime.closing
    return alive and turn.batch is not None and turn.batch.only_asks


async def rest(turn: Turn) -> bool:
    """Leave the turn open; False if it has to be closed, or suspended, after all.

    Raises:
        CommitFailed: a result that a body had left did not reach the disk.
    """
    actor = turn.actor
    if not turn.scope.cancelled_caught or turn.error is not None:
        return False  # it had come to its end before the cut
    results = closing_results(turn, code_started="", code_waiting="", finished_only=True)
    if results:
        turn.log.append(*results, *context_puts(turn, results), blobs=closing_blobs(turn))
    if turn.log.dirty:
        await turn.log.commit()
    # No checkpoint from here to the end of the driver.
    if actor.runtime.closing:
        turn.suspend_now()
    if turn.position.cancel is not None or turn.suspending:
        return False
    actor.leave(asleep=_only_asks(turn), walked=tuple(turn.trace))
    return True
