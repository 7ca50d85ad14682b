"""RemoteRef: the handle of an agent behind a connection, with the methods of the local `AgentRef`.

A program that was written against one works with the other. What differs is said by the types: values are those of the wire (an
`output` that was a struct arrives as plain data), and `status` is what was last heard. Every send has an id, minted here if the
caller gives none, so that sending again over a new connection is the same send.

The signatures stand here and there, since every one has its own types (of outcomes, streams, forks); a test holds them together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
import trio

from ..actors.content import Content, mint_id, to_message
from ..actors.values import AgentInfo, Outcome, Receipt, Status, Timer
from ..mailbox.items import Item
from ..storage.errors import AskTimeout
from ..storage.messages import Message
from .link import Link
from .remote_streams import RemoteDeltas, RemoteFollow, RemoteReader
from .wire import methods as m

MARGIN_S = 10
"""How much longer than the service the client waits for an outcome: only when nobody is there to say that time is out."""


class RemoteRef:
    """One agent of a service. Made by `Client`."""

    __slots__ = ("_link", "_status", "id", "name")

    def __init__(self, link: Link, known: m.Known) -> None:
        self._link = link
        self._status: Status = known.status
        self.id, self.name = known.id, known.name

    def __repr__(self) -> str:
        return f"<RemoteRef {self.id!r}, last heard to be {self._status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteRef) and other.id == self.id and other._link is self._link

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def status(self) -> Status:
        """As last heard: when the handle was made, or `info` was asked."""
        return self._status

    # -- sending

    async def ask(
        self,
        content: Content,
        *,
        timeout: float | None = None,
        message_id: str | None = None,
        on_cancel: Literal["detach", "cancel"] = "detach",
        route: Mapping[str, Any] | None = None,
        sender: str | None = None,
    ) -> Outcome[Any]:
        """Send a prompt and wait for the outcome of the turn that takes it, over as many connections as it takes.

        With `on_cancel="cancel"` a timeout, a cancelled caller and a lost connection also cancel the turn; otherwise it goes on.

        Raises:
            AskTimeout: the turn was not over in `timeout` seconds.
            InputDropped, InputParked: no turn will take the message.
            InboxFull, InputRefused: it did not get in.
            Disconnected: the service was gone for longer than the client's patience.
        """
        send = _sending(content, message_id)
        params = m.Asking(agent=self.id, **send, route=_plain(route), sender=sender, timeout=timeout, on_cancel=on_cancel)
        return await self._wait(f"message {params.message_id!r}", "ask", params, timeout)

    async def followup(
        self,
        content: Content,
        *,
        message_id: str | None = None,
        route: Mapping[str, Any] | None = None,
        sender: str | None = None,
    ) -> Receipt:
        """Queue a prompt; it gets a turn of its own. Durable on return."""
        return await self._send("followup", content, message_id, route, sender)

    async def steer(
        self,
        content: Content,
        *,
        message_id: str | None = None,
        route: Mapping[str, Any] | None = None,
        sender: str | None = None,
    ) -> Receipt:
        """Send into the running turn, at its next boundary; if none runs, it opens one. Durable on return."""
        return await self._send("steer", content, message_id, route, sender)

    async def inject(
        self,
        content: Content,
        *,
        message_id: str | None = None,
        route: Mapping[str, Any] | None = None,
        sender: str | None = None,
    ) -> Receipt:
        """Add context for the next boundary, whenever that is; wakes nobody. Durable on return."""
        return await self._send("inject", content, message_id, route, sender)

    async def _send(
        self, method: str, content: Content, message_id: str | None, route: Mapping[str, Any] | None, sender: str | None
    ) -> Receipt:
        send = _sending(content, message_id)
        receipt: Receipt = await self._call(method, m.Send(agent=self.id, **send, route=_plain(route), sender=sender))
        return receipt

    # -- waiting and stopping

    async def outcome(
        self, message_id: str | None = None, *, turn: int | None = None, timeout: float | None = None
    ) -> Outcome[Any]:
        """The outcome of the turn that took (or takes) a message, or of a turn by its number.

        Raises:
            UsageError: there is no such message.
            AskTimeout: it was not over in time.
        """
        what = f"turn {turn}" if message_id is None else f"message {message_id!r}"
        return await self._wait(
            what, "outcome", m.OutcomeOf(agent=self.id, message_id=message_id, turn=turn, timeout=timeout), timeout
        )

    async def cancel(self, cause: Literal["user", "hook"] = "user", *, keep_inbox: bool = False, text: str | None = None) -> None:
        """Cancel what the agent and its children do. What is queued is dropped, or with `keep_inbox` parked.

        Returns when the fact is on disk; `wait_idle` waits for the end.
        """
        await self._call("cancel", m.Cancel(agent=self.id, cause=cause, keep_inbox=keep_inbox, text=text))

    async def wait_idle(self) -> None:
        """Return when nothing runs."""
        await self._call("wait_idle", self._self())

    async def dispose(self) -> None:
        """Stop now and keep the inbox, parked; the next send or spawn activates the agent again."""
        await self._call("dispose", self._self())

    async def resume(self) -> None:
        """Take up the open turn of a fork."""
        await self._call("resume", self._self())

    async def compact(self) -> bool:
        """Offer what the model sees to the `compact` seam, while the agent is idle; whether it was rewritten. Sends wait for it.

        Raises:
            UsageError: the agent is at work.
        """
        found: bool = await self._call("compact", self._self())
        return found

    # -- the inbox

    async def pending(self) -> tuple[Item, ...]:
        """What waits in both lanes, in the order in which it would be taken."""
        items: list[Item] = await self._call("pending", self._self())
        return tuple(items)

    async def withdraw(self, message_id: str) -> bool:
        """Take a pending message out again; False if a turn has it, or nobody knows it."""
        done: bool = await self._call("withdraw", m.OnMessage(agent=self.id, message_id=message_id))
        return done

    async def replace(self, message_id: str, content: Content, *, new_id: str | None = None) -> Receipt | Literal[False]:
        """Put another message in the place of a pending one, under an id of its own; False if that is too late."""
        send = _sending(content, new_id)
        params = m.Replace(agent=self.id, message_id=message_id, content=send["content"], new_id=send["message_id"])
        receipt: Receipt | Literal[False] = await self._call("replace", params)
        return receipt

    # -- reminders

    async def remind(
        self,
        content: Content,
        *,
        after_s: float | None = None,
        at: datetime | None = None,
        every_s: float | None = None,
        id: str | None = None,
        route: Mapping[str, Any] | None = None,
    ) -> Timer:
        """Let the agent have this message later, in a turn of its own: after so many seconds or at a time, once or, with
        `every_s`, again and again. Durable on return.

        Raises:
            UsageError: the times make no sense, or a message has the id already.
        """
        send = _sending(content, id)
        params = m.Remind(
            agent=self.id,
            content=send["content"],
            after_s=after_s,
            at=at,
            every_s=every_s,
            id=send["message_id"],
            route=_plain(route),
        )
        timer: Timer = await self._call("remind", params)
        return timer

    async def timers(self) -> tuple[Timer, ...]:
        """The reminders that are set, by when they are due."""
        timers: list[Timer] = await self._call("timers", self._self())
        return tuple(timers)

    async def cancel_timer(self, id: str) -> bool:
        """Take a reminder back; False if it has fired, or nobody knows it."""
        done: bool = await self._call("cancel_timer", m.OnTimer(agent=self.id, id=id))
        return done

    # -- reading

    def follow(self, after: int | None = -1, types: Collection[str] | None = None) -> RemoteFollow:
        """Committed records after `after`, now and as they come, each once; None: from now on. It stays open at the end."""
        return RemoteFollow(self._link, self.id, after=after, types=types)

    def read(self, after: int = -1, upto: int | None = None, types: Collection[str] | None = None) -> RemoteReader:
        """Committed records after `after` up to `upto`; stops at the end."""
        return RemoteReader(self._link, self.id, after=after, upto=upto, types=types)

    def deltas(self, after: int | None = -1) -> RemoteDeltas:
        """What the agent shows while it works: text, reasoning, tools, discards, ends."""
        return RemoteDeltas(self._link, self.id, after=after)

    async def messages(self) -> Sequence[Message]:
        """What the model would see now."""
        messages: list[Message] = await self._call("messages", self._self())
        return messages

    async def info(self) -> AgentInfo:
        """All that is known of the agent now, and what it waits for."""
        info: AgentInfo = await self._call("info", self._self())
        self._status = info.status
        return info

    async def fork(
        self,
        *,
        at: int | None = None,
        id: str | None = None,
        turn: int | None = None,
        agent: str | None = None,
        rerun: bool = False,
    ) -> RemoteRef:
        """An agent that shares this one's records up to seq `at`, or those before turn `turn`, without copying them.

        `agent` names a definition that it goes on under. With `rerun` it runs turn `turn` again.
        """
        new = id if id is not None else f"{self.id}~{mint_id()}"
        params = m.Fork(agent=self.id, at=at, id=new, turn=turn, definition=agent, rerun=rerun)
        return RemoteRef(self._link, await self._call("fork", params))

    # -- calling

    def _self(self) -> m.OnAgent:
        return m.OnAgent(agent=self.id)

    async def _call(self, method: str, params: m.Params) -> Any:
        return await self._link.call(method, params)

    async def _wait(self, what: str, method: str, params: m.Params, timeout: float | None) -> Outcome[Any]:
        with trio.move_on_after(float("inf") if timeout is None else timeout + MARGIN_S):
            outcome: Outcome[Any] = await self._call(method, params)
            return outcome
        text = f"the turn of {self.id!r} for {what} was not over in {timeout:g} s, nor did the service say so; it may go on"
        raise AskTimeout(text, agent=self.id)


def _sending(content: Content, message_id: str | None) -> dict[str, Any]:
    """Content and id of a send. On the wire whoever sends is a user: the source of a whole message stays behind."""
    message = to_message(content, id=message_id)
    return {"content": list(message.content), "message_id": message.id}


def _plain(route: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if route is None:
        return None
    plain: dict[str, Any] = msgspec.to_builtins(route)
    return plain
