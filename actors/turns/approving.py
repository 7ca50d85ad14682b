"""Approvals: a call that waits for a person.

The question is a record, and so is the answer, whoever gives it and whenever: it can be answered after a restart, once, and it
expires by the wall clock. With a route the question is said in that chat, in the same append; it belongs to no turn, whose own
reply is still to come. The turn stays open while it waits; other calls of the batch go on. When nothing else is left, its
driver goes (`resting.py`). A question that a cancel overtakes is withdrawn by the turn's exit.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import trio

from ...mailbox.addresses import question_delivery_id
from ...storage.errors import ApprovalExpired, DefinitionMissing, UsageError
from ...storage.events import ApprovalAnswered, ApprovalAsked, OutboxPut
from ...storage.messages import TextBlock
from ..answers import Ask, CallResult
from ..content import to_route
from ..listing import Listing
from ..texts import well_formed
from ..values import Approval, moment

if TYPE_CHECKING:
    from ...storage.folds import Question, Verdict
    from ...storage.store import Head
    from ..actor import Actor
    from ..runtime import Runtime
    from .pipeline import Slot

_log = logging.getLogger("callboard")
Word = Literal["allow", "deny", "reply"]
LOOK_S = 30
"""How often an expiry is compared with the wall clock, which may jump."""
MARK = "!"
"""Between the agent's id and the question's seq: the id of a question names its agent, so that an answer needs no index."""


def put_question(slot: Slot, ask: Ask) -> None:
    """Ask, in the model's order, and once however often the process ends meanwhile; where nobody could answer, do not."""
    actor, call = slot.turn.actor, slot.call
    if actor.runtime.nobody_answers or _verdict(slot) is not None or actor.state.approvals.by_call(call.id) is not None:
        return
    effective = slot.arguments if slot.arguments != call.arguments else None
    expires = None if ask.expires_s is None else actor.runtime.now_ms() + int(ask.expires_s * 1000)
    id = f"{actor.id}{MARK}{actor.log.last + 1}"
    asked = ApprovalAsked(id=id, call_id=call.id, question=ask.question, expires=expires, effective=effective)
    route = to_route(ask.route)
    if route is None:
        actor.log.append(asked)
    else:
        text, delivery = TextBlock(well_formed(ask.question)), question_delivery_id(id, actor.runtime.now_ms())
        actor.log.append(asked, OutboxPut(delivery=delivery, route=route, content=(text,), turn=0))


async def settle_question(slot: Slot, ask: Ask) -> CallResult | None:
    """Wait for the answer to a question that was put; None if the call may run, else what the model reads.

    Raises:
        CommitFailed: the question or its answer did not reach the disk.
    """
    actor = slot.turn.actor
    if actor.runtime.nobody_answers:
        return CallResult.of(f"This call needs a person's approval ({ask.question}), and nobody can answer here.", error="DENIED")
    approvals, call_id = actor.state.approvals, slot.call.id
    actor.at_barrier()
    await actor.log.commit()
    while _verdict(slot) is None:
        question = approvals.by_call(call_id)
        assert question is not None, "a question stays open until it has an answer"
        await _look(actor, question)
    await actor.log.commit()  # nothing runs by an answer that a crash could take back
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


def asked_about(slot: Slot) -> Question | None:
    """What a person was asked about this call already, answered or not."""
    approvals = slot.turn.actor.state.approvals
    verdict = approvals.verdicts.get(slot.call.id)
    return verdict.question if verdict is not None else approvals.by_call(slot.call.id)


def is_asked(slot: Slot) -> bool:
    """Whether the call waits for a person's word now."""
    return slot.question is not None and slot.turn.actor.state.approvals.by_call(slot.call.id) is not None


def withdraw_question(slot: Slot) -> None:
    """The call is refused without a person's word: by another definition than the one that asked."""
    question = slot.turn.actor.state.approvals.by_call(slot.call.id)
    if question is not None:
        slot.turn.log.append(ApprovalAnswered(id=question.id, verdict="withdrawn"))


def _verdict(slot: Slot) -> Verdict | None:
    """The word that counts. Of a body that may have run since it was allowed, what was said before the crash does not: whether
    it may run *again* is another question. (It cannot have where nobody ran the agent since: an answer given to a folder.)"""
    actor = slot.turn.actor
    verdict = actor.state.approvals.verdicts.get(slot.call.id)
    stale = verdict is not None and slot.call.state == "started" and verdict.may_have_run(actor.opened_at)
    return None if stale else verdict


async def _look(actor: Actor, question: Question) -> None:
    """Wait for an answer until the question expires, or for as long as a clock may be trusted."""
    left = math.inf if question.expires is None else (question.expires - actor.runtime.now_ms()) / 1000
    if left <= 0:
        actor.log.append(ApprovalAnswered(id=question.id, verdict="expired", by="clock"))
        return
    with trio.move_on_after(left if left == math.inf else min(left, LOOK_S)):
        await actor.answers.park()


def check_word(verdict: str, text: str | None) -> None:
    """Whether this can be a person's word.

    Raises:
        UsageError: the verdict is none, or it is a reply without a text.
    """
    if verdict not in ("allow", "deny", "reply"):
        raise UsageError(f"verdict {verdict!r} is none of 'allow', 'deny', 'reply'")
    if verdict == "reply" and text is None:
        raise UsageError("a reply is the call's result, so it needs a text: answer(id, 'reply', by=..., text='...')")


async def answer(runtime: Runtime, id: str, verdict: Word, *, by: str, text: str | None) -> None:
    """A person's word on a question; durable on return.

    Raises:
        ApprovalExpired: it was answered, withdrawn, or has expired.
        UsageError: the verdict is none, a reply has no text, or the id names no question.
    """
    check_word(verdict, text)
    agent, mark, _ = id.rpartition(MARK)
    if not mark:
        raise UsageError(f"{id!r} is no approval's id; list them with system.approvals()")
    actor = await runtime.registry.actor(agent)
    with actor.held():
        question = actor.state.approvals.open.get(id)
        late = question is not None and question.expires is not None and question.expires <= runtime.now_ms()
        if question is None or late:
            raise ApprovalExpired(f"question {id!r} was answered, withdrawn, or has expired", agent=agent)
        actor.log.append(ApprovalAnswered(id=id, verdict=verdict, by=by, text=text))
        await actor.log.commit(shielded=True)  # the call has to hear of it, also if who answered has left
        was_answered(actor)


def was_answered(actor: Actor) -> None:
    """An answer is on disk: let the turn go on."""
    actor.answers.unpark_all()
    actor.wake()  # nobody may be running it


def approvals(runtime: Runtime, prefix: str, labels: Mapping[str, str] | None) -> AsyncIterator[Approval]:
    """Every open question of agents with this prefix and these labels, by agent, as far as they are on disk. Agents whose
    definition is missing cannot be answered, and are left out; start-up has reported them."""

    async def look(head: Head) -> Sequence[Approval]:
        actor = await _asking(runtime, head)
        if actor is None:
            return ()
        questions = tuple(actor.state.approvals.open.values())
        return [_approval(actor, question) for question in questions if question.seq <= actor.log.committed]

    # A question is part of an open turn, so the index has its agent among those that start-up looks at.
    return Listing(runtime.store, look, prefix=prefix, labels=labels, flag="attention")


async def _asking(runtime: Runtime, head: Head) -> Actor | None:
    actor = runtime.registry.peek(head.agent)
    if actor is not None or "approval" not in head.summary.waits:
        return actor
    try:
        return await runtime.registry.actor(head.agent)
    except DefinitionMissing as error:
        _log.warning("a question of %r is not listed: %s", head.agent, error)
        return None


def _approval(actor: Actor, question: Question) -> Approval:
    call = next((call for call in actor.position.calls if call.id == question.call_id), None)
    return Approval(
        id=question.id,
        agent=actor.id,
        turn=actor.position.turn,
        call_id=question.call_id,
        tool=call.name if call is not None else "",
        arguments=question.effective or (call.effective or call.arguments if call is not None else ""),
        question=question.question,
        asked=moment(question.asked),
        expires=None if question.expires is None else moment(question.expires),
    )
