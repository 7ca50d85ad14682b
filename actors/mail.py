"""Mail: one agent writes to another, and the sender's record and the receiver's are one commit.

So mail is sent exactly once: a body that runs again after a crash finds its message by the same id, which its effect key makes.
An `ask` also waits for the outcome, as an edge of the one wait graph, so that agents that wait for each other fail by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import trio

from ..storage.errors import AgentDeleted, InboxFull
from ..storage.events import AskedBy, InboxPut, Lane, MailSent
from ..storage.messages import AgentSource
from .content import Content, to_message
from .sending import seq_of
from .sizes import accepted
from .values import Outcome, Receipt
from .waiting import send_and_wait

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime import Runtime

Kind = Literal["followup", "steer", "inject", "ask"]


class Mail:
    """The way between agents of one system."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def send(self, sender: Actor, to: str, content: Content, message_id: str, kind: Kind, *, fresh: bool) -> Receipt:
        """Put a message into the inbox of `to`; durable on return. A deleted agent is a dead letter, which is recorded.

        The id of a `fresh` one was made for it by a body that never ran before: nobody has to look whether it was sent already.

        Raises:
            AgentNotFound: there never was such an agent.
            InboxFull: its lane holds as many messages as it may.
        """
        return (await self._send(sender, to, content, message_id, kind, fresh))[0]

    async def _send(
        self, sender: Actor, to: str, content: Content, message_id: str, kind: Kind, fresh: bool
    ) -> tuple[Receipt, bool]:
        message = to_message(content, id=message_id, source=AgentSource(sender.id))
        message, blobs = accepted(message, sender.agent.limits, agent=to)
        try:
            receiver = await self._runtime.registry.actor(to)
        except AgentDeleted:
            sender.log.append(MailSent(to=to, message_id=message_id, kind=kind, dead=True))
            await sender.log.commit()
            if kind == "ask":
                raise
            return Receipt(message_id, -1), False
        with receiver.held():
            # From the last look to the append there is no checkpoint: two equal sends must not both miss.
            seq = None if fresh else await seq_of(receiver, message_id)
            new = seq is None
            if seq is None:
                seq = self._put(sender, receiver, message_id, kind, message, blobs)
            await receiver.log.commit()
            if sender.log.dirty:  # with what is no part of this: both records went together
                await sender.log.commit()
        return Receipt(message_id, seq), new

    @trio.lowlevel.enable_ki_protection
    def _put(self, sender: Actor, receiver: Actor, message_id: str, kind: Kind, message: Any, blobs: dict[str, bytes]) -> int:
        for log in (receiver.log, sender.log):
            if log.failed is not None:  # while it was looked up; half a unit must not stay in the other log
                raise log.failed
        lane: Lane = "next-step" if kind in ("steer", "inject") else "next-turn"
        limit = receiver.agent.limits.pending
        if receiver.inbox.check_full(lane, limit):
            raise InboxFull(receiver.id, lane, limit, message_id=message_id)
        ask = AskedBy(message_id, sender.id) if kind == "ask" else None
        put = InboxPut(message=message, lane=lane, wake=kind != "inject", sender=sender.id, ask=ask)
        sent = MailSent(to=receiver.id, message_id=message_id, kind=kind)
        if receiver is sender:
            seq = sender.log.append(sent, put, blobs=blobs) + 1
        else:
            seq = receiver.log.append(put, blobs=blobs)
            sender.log.append(sent)
            receiver.log.join(sender.log)
        receiver.wake()
        return seq

    async def ask(
        self, sender: Actor, to: str, content: Content, message_id: str, timeout: float | None, *, fresh: bool
    ) -> Outcome[Any]:
        """Send, and wait for the outcome of the turn that takes it.

        Raises:
            AskCycle: `to` waits, directly or not, for the sender; nothing was sent.
            AskTimeout: the turn goes on.
            InputDropped, InputParked, AgentDeleted: no turn will take it.
        """
        with self._runtime.graph.edge(sender.id, to, "ask", since=self._runtime.now_ms()):
            if to in self._runtime.registry.deleted:
                await self._send(sender, to, content, message_id, "ask", fresh)  # a fact of the sender's log, and then an error
            return await send_and_wait(
                self._runtime, to, message_id, lambda _: self._send(sender, to, content, message_id, "ask", fresh), timeout
            )
