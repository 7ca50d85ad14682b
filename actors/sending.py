"""Sending from outside: the way of a message from a caller into an inbox, once.

The `accept` seam may change or refuse it, or answer it alone. Then the id is looked up, on disk and in what is not there yet, and
the put is appended, with no checkpoint between the last look and the append: so two equal sends cannot both miss. The driver is
woken in the same stretch, and the receipt comes when the put is on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ..storage.errors import InboxFull, InputRefused
from ..storage.events import CommandResult, CommandRun, InboxPut, Lane
from ..storage.messages import Message
from .answers import Answer, Reject
from .failures import described
from .sizes import accepted
from .values import Receipt

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime import Runtime


@trio.lowlevel.enable_ki_protection
async def send(runtime: Runtime, to: str, put: InboxPut, *, look_up: bool) -> tuple[Receipt, bool]:
    """Accept a message for an agent, durable on return; and whether it is a new one, and not the same sent again.

    Raises:
        InputRefused: a plugin or a limit refused it.
        InboxFull: its lane is full.
        CommitFailed: it did not reach the disk.
    """
    actor = await runtime.registry.actor(to)
    with actor.held():
        taken = await accept(actor, put.message)
        if isinstance(taken, Answer):
            return await _answer(actor, put.message, taken), False
        message, blobs = accepted(taken, actor.agent.limits, agent=to)
        seq = await runtime.store.find(to, message.id) if look_up else None
        # No checkpoint from here to the append.
        if seq is None and look_up:
            seq = actor.log.tail_id(message.id)
            seq = seq if seq is not None else actor.inbox.seen(message.id)
        new = seq is None
        if seq is None:
            limit = actor.agent.limits.pending
            if actor.inbox.check_full(put.lane, limit):
                raise InboxFull(to, put.lane, limit, message_id=message.id)
            seq = actor.log.append(msgspec.structs.replace(put, message=message), blobs=blobs)
        if put.wake:
            actor.wake()
        await actor.log.commit()
        return Receipt(message.id, seq), new


async def accept(actor: Actor, message: Message) -> Message | Answer:
    """What plugins make of a message from outside.

    Raises:
        InputRefused: one of them refused it, or failed.
    """
    if not actor.chains.has("accept"):
        return message

    async def as_it_is(message: Message) -> Any:
        return message

    try:
        taken = await actor.chains.run("accept", actor.context, message, as_it_is)
    except Exception as error:
        text = f"the message for {actor.id!r} was refused: {described(error)}"
        raise InputRefused(text, message_id=message.id, agent=actor.id) from error
    if isinstance(taken, Reject):
        raise InputRefused(f"the message for {actor.id!r} was refused: {taken.why}", message_id=message.id, agent=actor.id)
    return taken


async def _answer(actor: Actor, message: Message, answer: Answer) -> Receipt:
    """A control command: it acted at acceptance. Its id makes it idempotent."""
    seq = await actor.runtime.store.find(actor.id, message.id)
    seq = seq if seq is not None else actor.log.tail_id(message.id)
    if seq is None:
        name, _, args = message.text.strip().partition(" ")
        run = CommandRun(id=message.id, name=name, args=args.strip())
        seq = actor.log.append(run, CommandResult(id=message.id, text=answer.text))
    await actor.log.commit()
    return Receipt(message.id, seq)


__all__ = ["Lane", "accept", "send"]
