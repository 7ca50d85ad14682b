"""Supervision: the task of a child that failed is put again, a few times and with growing pauses, before its parent hears of it.

A child fails when its task ends with an error, at a limit, or interrupted. What somebody decided (a cancel, a block) and what a
repetition would not change (an answer that was cut at the model's cap) is an end like any other. The task comes again in the same
child, which remembers how far it got, and in the commit of the failed end: a crash leaves both or neither, and the parent hears
of the child exactly once.

The pauses double, and are never so long that all restarts of a policy would not fit into half of its time: a task that fails at
once, always, reaches the limit, whatever the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from ..storage.events import EndReason, Errored, InboxPut, Interrupted, Limited

if TYPE_CHECKING:
    from ..storage.folds import Child, Restarts
    from ..storage.store import Store
    from .turns.turn import Turn

FIRST_S = 1.0
"""The pause before the first restart."""


def current_task(turn: Turn, child: Child) -> str:
    """The id under which the child's task stands in its inbox now."""
    return turn.actor.state.restarts.current(child.task or "")


def pause_s(restarts: int, policy: tuple[int, float]) -> float:
    """How long to wait before the next restart, after so many within the policy's time."""
    most, seconds = policy
    return min(FIRST_S * 2.0**restarts, seconds / (2 * max(most, 1)))


def may_fail(turn: Turn) -> bool:
    """Whether the turn is about to end in a way that is a failure."""
    failed = turn.error is not None or (turn.batch is not None and turn.batch.failure is not None)
    return failed or isinstance(turn.reason, Errored | Limited | Interrupted)


async def task_put(turn: Turn, child: Child) -> InboxPut | None:
    """The task as it was put last, for putting it again; None if it need not be."""
    if child.restarts is None or not may_fail(turn):
        return None
    actor, id = turn.actor, current_task(turn, child)
    if actor.log.tail_id(id) is not None:  # the turn failed before anything of it was on disk
        await actor.log.commit()
    return await put_of(actor.runtime.store, actor.id, id)


async def put_of(store: Store, agent: str, message_id: str) -> InboxPut | None:
    """The put of a message, from disk."""
    seq = await store.find(agent, message_id)
    async for record in store.read(agent, (seq or 0) - 1, seq, types={"inbox/put"}):
        return record.event if isinstance(record.event, InboxPut) else None
    return None


def restart(turn: Turn, child: Child, reason: EndReason, put: InboxPut) -> InboxPut | None:
    """The task again, or None where this end is final: it is no failure, or there were too many."""
    return next_put(child, reason, put, turn.number, turn.actor.state.restarts, turn.actor.runtime.now_ms())


def next_put(child: Child, reason: EndReason, put: InboxPut, turn: int, restarts: Restarts, now: int) -> InboxPut | None:
    """The same, of a child whose turn `turn` ended that way: by values alone, so that it can be decided later, too."""
    policy = child.restarts
    if policy is None or child.task is None or not isinstance(reason, Errored | Limited | Interrupted):
        return None
    most, seconds = policy
    count = restarts.since(now - int(seconds * 1000))
    if count >= most:
        return None
    again = msgspec.structs.replace(put.message, id=f"{child.task}~{turn}")
    not_before = now + int(pause_s(count, policy) * 1000)
    return msgspec.structs.replace(put, message=again, restarts=child.task, not_before=not_before)


async def last_task(store: Store, agent: str, task: str) -> str:
    """The id under which a child's task stood last, from its log alone."""
    last = task
    async for record in store.read(agent, types={"inbox/put"}):
        if isinstance(record.event, InboxPut) and record.event.restarts == task:
            last = record.event.message.id
    return last
