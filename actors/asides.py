"""Asides: what a plugin answers at `accept`, beside whatever turn runs.

Run and result are one append under the message's id, which makes the command idempotent, and a sender with a route has the reply
in the outbox by the same append. It belongs to no turn: the one that runs keeps its own reply. A stop is in that append, too: no
crash can leave a command that says "stopped" beside a turn that goes on. Nor one that says "allowed" without the word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..mailbox.addresses import command_delivery_id
from ..storage.errors import InputRefused
from ..storage.events import ApprovalAnswered, Cause, CommandResult, CommandRun, Event, InboxDrop, InboxPut, Note, OutboxPut
from ..storage.messages import Message, TextBlock
from .answers import Answer, Decide, Stop
from .cancelling import cancel
from .texts import well_formed
from .turns.approving import was_answered
from .values import Receipt

if TYPE_CHECKING:
    from .actor import Actor


async def answer_at_once(actor: Actor, put: InboxPut, answer: Answer) -> Receipt:
    """Write what a plugin answered; durable on return.

    Raises:
        InputRefused: the answer rewrites the model's view, which only a turn of its own may do.
    """
    message_id = put.message.id
    if answer.replacement is not None:
        text = f"a command of {actor.id!r} that rewrites the model's view needs a turn of its own: answer it in `command`"
        raise InputRefused(text, message_id=message_id, agent=actor.id)
    if isinstance(answer, Stop):
        return Receipt(message_id, await _stop(actor, put, answer))
    if isinstance(answer, Decide):
        return Receipt(message_id, await _decide(actor, put, answer))
    seq = actor.log.append(*command_events(actor, put.message, answer, answer.text), *_reply(actor, put, answer.text))
    await actor.log.commit(shielded=True)  # who waits for what it took back has to hear of it
    actor.promises.settle()
    return Receipt(message_id, seq)


async def _decide(actor: Actor, put: InboxPut, answer: Decide) -> int:
    question = actor.state.approvals.oldest(actor.runtime.now_ms())
    text = answer.say(None if question is None else question.question)
    events = [*command_events(actor, put.message, answer, text), *_reply(actor, put, text)]
    if question is not None:
        by, why = put.sender or "", None if answer.why is None else well_formed(answer.why)
        events.append(ApprovalAnswered(id=question.id, verdict=answer.verdict, by=by, text=why))
    seq = actor.log.append(*events)
    await actor.log.commit(shielded=True)  # and the call, of the word
    if question is not None:
        was_answered(actor)
    return seq


async def _stop(actor: Actor, put: InboxPut, stop: Stop) -> int:
    seqs: list[int] = []

    def write(below: Sequence[Actor]) -> None:
        runs = actor.position.open or actor.maintenance is not None
        children = sum(member.position.open for member in below)
        waiting = sum(item.may_park for item in actor.inbox.pending())
        text = stop.say(runs, children, waiting)
        seqs.append(actor.log.append(*command_events(actor, put.message, stop, text), *_reply(actor, put, text)))

    await cancel(actor, Cause("user"), keep_inbox=True, before=write)
    return seqs[0]


def command_events(actor: Actor, message: Message, answer: Answer, text: str) -> list[Event]:
    """The records of a command: its run, its result, what it noted and took back."""
    first, _, rest = message.text.strip().partition(" ")
    name, args = answer.ran if answer.ran is not None else (first, rest.strip())
    return [
        CommandRun(id=message.id, name=well_formed(name), args=well_formed(args)),
        CommandResult(id=message.id, text=well_formed(text), error=answer.error),
        *(Note(kind=kind, data=data) for kind, data in answer.notes.items()),
        *_withdrawn(actor, answer.withdraws),
    ]


def _withdrawn(actor: Actor, ids: Sequence[str]) -> list[Event]:
    """What takes back those of these messages that still wait."""
    waiting = tuple(id for id in ids if actor.inbox.withdraw(id) is not None)
    return [InboxDrop(ids=waiting, why="withdrawn")] if waiting else []


def _reply(actor: Actor, put: InboxPut, text: str) -> list[OutboxPut]:
    if put.route is None:
        return []
    delivery = command_delivery_id(actor.id, put.message.id, actor.runtime.now_ms())
    return [OutboxPut(delivery=delivery, route=put.route, content=(TextBlock(well_formed(text)),), turn=0)]
