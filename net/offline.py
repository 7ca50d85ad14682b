"""Questions of a store in which nobody runs: read beside a running owner, answered when there is none.

An answer is a record. To write it nothing has to run: the log is folded, its end is owned for one commit, and the next start of
the program finds the answer where it would have found one that a service took. While a process owns the folder it alone may
write, so then the answer goes to that process.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio

from ..actors.folding import fold_prefix
from ..actors.listing import Listing
from ..actors.state import AgentState
from ..actors.turns.approving import MARK, Word, check_word
from ..actors.values import Approval, moment
from ..storage.errors import AgentNotFound, ApprovalExpired, UsageError
from ..storage.events import ApprovalAnswered
from ..storage.folds import Question
from ..storage.log import Log
from ..storage.store import Head, Store
from ..storage.writer import Writer


def approvals_in(store: Store, prefix: str = "") -> AsyncIterator[Approval]:
    """Every open question of the store, by agent. Only agents that the index says are waiting are read."""

    async def look(head: Head) -> Sequence[Approval]:
        if "approval" not in head.summary.waits:
            return ()
        state = (await fold_prefix(store, head.agent, head.last))[0]
        return [_approval(head.agent, state, question) for question in state.approvals.open.values()]

    return Listing(store, look, prefix=prefix, flag="attention")


async def answer_in(store: Store, id: str, verdict: Word, *, by: str, text: str | None) -> None:
    """Write a person's word on a question into a store that this process owns; durable on return.

    Raises:
        UsageError: the id names no question.
        AgentNotFound: there is no such agent.
        ApprovalExpired: it was answered, withdrawn, or has expired.
        UnknownRecord: the log is of a newer version, and may be read only.
    """
    check_word(verdict, text)
    agent, mark, _ = id.rpartition(MARK)
    if not mark:
        raise UsageError(f"{id!r} is no approval's id; `callboard approvals` lists them")
    head = await store.head(agent)
    if head is None:
        raise AgentNotFound(
            f"there is no agent {agent!r} in {store.name}; `callboard approvals` lists the questions", agent=agent
        )
    state = (await fold_prefix(store, head.agent, head.last))[0]
    question = state.approvals.open.get(id)
    if question is None or (question.expires is not None and question.expires <= time.time() * 1000):
        raise ApprovalExpired(f"question {id!r} was answered, withdrawn, or has expired", agent=agent)
    async with _writing(store) as writer:
        log = Log(agent, await store.own(agent), state, writer, last=head.last, time=head.time)
        log.append(ApprovalAnswered(id=id, verdict=verdict, by=by, text=text, offline=True))
        await log.commit()


@asynccontextmanager
async def _writing(store: Store) -> AsyncGenerator[Writer]:
    writer = Writer(store)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(writer.run)
        try:
            yield writer
        finally:
            writer.stop()


def _approval(agent: str, state: AgentState, question: Question) -> Approval:
    call = next((call for call in state.position.calls if call.id == question.call_id), None)
    return Approval(
        id=question.id,
        agent=agent,
        turn=state.position.turn,
        call_id=question.call_id,
        tool=call.name if call is not None else "",
        arguments=question.effective or (call.effective or call.arguments if call is not None else ""),
        question=question.question,
        asked=moment(question.asked),
        expires=None if question.expires is None else moment(question.expires),
    )
