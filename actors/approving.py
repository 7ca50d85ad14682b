"""Approvals: a call that waits for a person.

The question is a record, and so is the answer, whoever gives it and whenever: it can be answered after a restart, once, and it
expires by the wall clock. The turn stays open while it waits; other calls of the batch go on. A question that a cancel overtakes
is withdrawn by the turn's exit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

import trio

from ..storage.errors import ApprovalExpired, UsageError
from ..storage.events import ApprovalAnswered, ApprovalAsked
from .answers import Ask, CallResult
from .values import Approval, moment

if TYPE_CHECKING:
    from ..storage.folds import Question
    from .actor import Actor
    from .pipeline import Slot
    from .runtime import Runtime

Verdict = Literal["allow", "deny", "reply"]
LOOK_S = 30
"""How often an expiry is compared with the wall clock, which may jump."""


def approval_id(agent: str, turn: int, step: int, call_id: str) -> str:
    """The question's id: it names its agent, so that an answer finds it without any index."""
    return f"{agent}!{turn}.{step}.{call_id}"


async def settle_question(slot: Slot, ask: Ask) -> CallResult | None:
    """Ask (once, however often the process ends meanwhile) and wait; None if the call may run, else what the model reads."""
    turn, actor = slot.turn, slot.turn.actor
    if actor.runtime.nobody_answers:
        return CallResult.of(f"This call needs a person's approval ({ask.question}), and nobody can answer here.", error="DENIED")
    approvals, call_id = actor.state.approvals, slot.call.id
    if call_id not in approvals.verdicts and approvals.by_call(call_id) is None:
        expires = None if ask.expires_s is None else actor.runtime.now_ms() + int(ask.expires_s * 1000)
        id = approval_id(actor.id, turn.number, turn.position.step, call_id)
        actor.log.append(ApprovalAsked(id=id, call_id=call_id, question=ask.question, expires=expires))
    actor.at_barrier()
    await actor.log.commit()
    while call_id not in approvals.verdicts:
        await _look(actor, approvals.by_call(call_id))
    answer = approvals.verdicts[call_id].answer
    match answer.verdict:
        case "allow":
            return None
        case "reply":
            return CallResult.of(answer.text or "")
        case "expired":
            return CallResult.of("Nobody answered in time whether this call may run; it did not.", error="EXPIRED")
        case _:
            why = f": {answer.text}" if answer.text else ""
            return CallResult.of(f"A person refused this call{why}.", error="DENIED")


async def _look(actor: Actor, question: Question | None) -> None:
    """Wait for an answer until the question expires, or for as long as a clock may be trusted."""
    if question is None:
        raise UsageError("a question vanished while it waited", agent=actor.id)
    left = float("inf") if question.expires is None else (question.expires - actor.runtime.now_ms()) / 1000
    if left <= 0:
        actor.log.append(ApprovalAnswered(id=question.id, verdict="expired", by="clock"))
        await actor.log.commit()
        return
    with trio.move_on_after(min(left, LOOK_S)):
        await actor.answers.park()


async def answer(runtime: Runtime, id: str, verdict: Verdict, *, by: str, text: str | None) -> None:
    """A person's word on a question; durable on return.

    Raises:
        ApprovalExpired: it was answered, withdrawn, or has expired.
        UsageError: the verdict is none, or the id names no question.
    """
    if verdict not in ("allow", "deny", "reply"):
        raise UsageError(f"verdict {verdict!r} is none of 'allow', 'deny', 'reply'")
    agent, mark, _ = id.rpartition("!")
    if not mark:
        raise UsageError(f"{id!r} is no approval's id; list them with system.approvals()")
    actor = await runtime.registry.actor(agent)
    with actor.held():
        question = actor.state.approvals.open.get(id)
        late = question is not None and question.expires is not None and question.expires <= runtime.now_ms()
        if question is None or late:
            raise ApprovalExpired(f"question {id!r} was answered, withdrawn, or has expired", agent=agent)
        actor.log.append(ApprovalAnswered(id=id, verdict=verdict, by=by, text=text))
        await actor.log.commit()
        actor.answers.unpark_all()


async def approvals(runtime: Runtime, prefix: str, labels: Any) -> AsyncIterator[Approval]:
    """Every open question of agents with this prefix and these labels, by agent."""
    page = await runtime.store.agents(prefix, labels)
    while page:
        for head in page:
            actor = runtime.registry.peek(head.agent)
            if actor is None and "approval" in head.summary.waits:
                actor = await runtime.registry.actor(head.agent)
            if actor is not None:
                for question in tuple(actor.state.approvals.open.values()):
                    yield _approval(actor, question)
        page = await runtime.store.agents(prefix, labels, after=page[-1].agent)


def _approval(actor: Actor, question: Question) -> Approval:
    call = next((call for call in actor.position.calls if call.id == question.call_id), None)
    return Approval(
        id=question.id,
        agent=actor.id,
        turn=actor.position.turn,
        call_id=question.call_id,
        tool=call.name if call is not None else "",
        arguments=(call.effective or call.arguments) if call is not None else "",
        question=question.question,
        asked=moment(question.asked),
        expires=None if question.expires is None else moment(question.expires),
    )
