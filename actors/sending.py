"""Sending from outside: the way of a message from a caller into an inbox, once.

The `accept` seam may change or refuse it, or answer it alone. Then the id is looked up, on disk and in what is not there yet, and
the put is appended, with no checkpoint between the last look and the append: so two equal sends cannot both miss. The driver is
woken in the same stretch, and the receipt comes when the put is on disk. Only who waits for the outcome does not wait for that:
the outcome comes later.

A plugin that answers at `accept` acts there, so one that is asked twice would act twice. An id that is known already is therefore
acknowledged without asking, and two equal sends at once are asked one after the other. (`asides.py` writes what it answered.)
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ..storage.errors import InboxFull, InputRefused
from ..storage.events import InboxPut, Lane
from ..storage.messages import Message
from .answers import Answer, Later, Reject
from .asides import answer_at_once
from .failures import described
from .ports import SendPort
from .seams import SeamContext
from .sizes import accepted
from .values import Receipt

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime import Runtime

ChooseLane = Callable[["Actor", InboxPut], Lane]


@trio.lowlevel.enable_ki_protection
async def send(
    runtime: Runtime, to: str, put: InboxPut, *, look_up: bool, choose_lane: ChooseLane | None = None
) -> tuple[Receipt, bool]:
    """Accept a message for an agent, durable on return; and whether it is a new one, and not the same sent again. Its lane is
    what `choose_lane` says in the stretch in which it is appended.

    Raises:
        InputRefused: a plugin or a limit refused it.
        InboxFull: its lane is full.
        CommitFailed: it did not reach the disk.
    """
    actor = await runtime.registry.actor(to)
    with actor.held():
        return await send_to(actor, put, look_up=look_up, choose_lane=choose_lane)


async def send_to(actor: Actor, put: InboxPut, *, look_up: bool, choose_lane: ChooseLane | None = None) -> tuple[Receipt, bool]:
    """The same, to an agent that the caller holds."""
    sent = await put_in(actor, put, look_up=look_up, choose_lane=choose_lane)
    await actor.log.commit()
    return sent


async def put_in(actor: Actor, put: InboxPut, *, look_up: bool, choose_lane: ChooseLane | None = None) -> tuple[Receipt, bool]:
    """The same, for who waits for more than the disk: the message is on its way there."""
    if not look_up or not actor.chains.has("accept"):
        return await _send(actor, put, look_up, choose_lane)
    async with _one_at_a_time(actor.runtime, (actor.id, put.message.id)):
        seq = await seq_of(actor, put.message.id)
        if seq is not None:
            return _acknowledge(actor, put, seq), False
        return await _send(actor, put, True, choose_lane)


async def _send(actor: Actor, put: InboxPut, look_up: bool, choose_lane: ChooseLane | None) -> tuple[Receipt, bool]:
    taken = await accept(actor, put)
    if isinstance(taken, Later):
        put = msgspec.structs.replace(put, lane="next-turn", releases=taken.releases)
        taken, choose_lane = taken.message, None
    if isinstance(taken, Answer):
        return await answer_at_once(actor, put, taken), False
    message, blobs = accepted(taken, actor.agent.limits, agent=actor.id)
    seq = await seq_of(actor, message.id) if look_up else None
    # No checkpoint from the last look to the append.
    new = seq is None
    if seq is None:
        if choose_lane is not None:
            put = msgspec.structs.replace(put, lane=choose_lane(actor, put))
        limit = actor.agent.limits.pending
        if actor.inbox.check_full(put.lane, limit):
            raise InboxFull(actor.id, put.lane, limit, message_id=message.id)
        seq = actor.log.append(msgspec.structs.replace(put, message=message), blobs=blobs)
    return _acknowledge(actor, put, seq, message.id), new


def _acknowledge(actor: Actor, put: InboxPut, seq: int, message_id: str | None = None) -> Receipt:
    if put.wake:
        actor.wake()
    actor.log.push()
    return Receipt(message_id or put.message.id, seq)


async def seq_of(actor: Actor, message_id: str) -> int | None:
    """Where the log has this id: on disk, or (looked up last, without a checkpoint) in what is not there yet."""
    seq = await actor.runtime.store.find(actor.id, message_id)
    if seq is None:
        seq = actor.log.tail_id(message_id)
    return actor.inbox.seen(message_id) if seq is None else seq


@asynccontextmanager
async def _one_at_a_time(runtime: Runtime, key: tuple[str, str]) -> AsyncGenerator[None]:
    while key in runtime.accepting:
        await runtime.accepting[key].wait()
    done = runtime.accepting[key] = trio.Event()
    try:
        yield
    finally:
        del runtime.accepting[key]
        done.set()


async def accept(actor: Actor, put: InboxPut, *, replaces: bool = False) -> Message | Answer:
    """What plugins make of a message from outside.

    Raises:
        InputRefused: one of them refused it, or failed.
    """
    message = put.message
    if not actor.chains.has("accept"):
        return message

    async def as_it_is(message: Message) -> Any:
        return message

    try:
        context = SeamContext(SendPort(actor, put, replaces=replaces), of=actor.context)
        taken = await actor.chains.run("accept", context, message, as_it_is)
    except Exception as error:
        text = f"the message for {actor.id!r} was refused: {described(error)}"
        raise InputRefused(text, message_id=message.id, agent=actor.id) from error
    if isinstance(taken, Reject):
        raise InputRefused(f"the message for {actor.id!r} was refused: {taken.why}", message_id=message.id, agent=actor.id)
    return _under(message.id, taken)


def _under(id: str, taken: Message | Answer) -> Message | Answer:
    """A message that a plugin made anew, under the id of the one that was sent: by that its sender knows it, waits for its
    outcome and sends it again."""
    if isinstance(taken, Later):
        return msgspec.structs.replace(taken, message=_under(id, taken.message))
    if isinstance(taken, Answer) or taken.id == id:
        return taken
    return msgspec.structs.replace(taken, id=id)


__all__ = ["Lane", "accept", "put_in", "send", "send_to", "seq_of"]
