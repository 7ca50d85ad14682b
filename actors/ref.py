"""AgentRef: the handle of an agent, by its id.

It holds nothing: the agent behind it may be dropped from memory and opened again, fail and recover, between two calls. Every
method may be called from any task of the trio run that the system lives in, also from inside a turn; a wait that could never end
then fails at once (`AskCycle`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal

import trio

from ..mailbox.items import Item
from ..storage.errors import AskTimeout, DefinitionMissing, InputRefused, UsageError
from ..storage.events import Cause, InboxPut
from ..storage.messages import Message
from ..storage.store import Reader
from .answers import Answer
from .cancelling import cancel
from .content import Content, to_message, to_route
from .forking import fork
from .information import info_of, info_of_unknown
from .maintenance import compact
from .sending import Lane, accept, put_in, send
from .sizes import accepted
from .sources import LogSource, state_of
from .streams import Deltas, Follow
from .texts import well_formed
from .timers import cancel_timer, remind, timers_of
from .turns.child_end import end_for_good
from .values import AgentInfo, Outcome, Receipt, Status, Timer
from .waiting import await_outcome, await_turn, send_and_wait, wait_edge

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from .agent import Agent
    from .runtime import Runtime
    from .waits import EdgeKind

    Out = TypeVar("Out", default=str)
else:
    from typing import TypeVar

    Out = TypeVar("Out")


class AgentRef(Generic[Out]):
    """One agent. Made by `System.spawn` and `System.get`."""

    __slots__ = ("_runtime", "id")

    def __init__(self, runtime: Runtime, id: str) -> None:
        self._runtime, self.id = runtime, id

    def __repr__(self) -> str:
        return f"<AgentRef {self.id!r} {self.status}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AgentRef) and other.id == self.id and other._runtime is self._runtime

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def status(self) -> Status:
        """`running` while a turn is open, `failed` if the last commit did not reach the disk, else `idle`."""
        actor = self._runtime.registry.peek(self.id)
        if actor is not None:
            return actor.status
        if self.id in self._runtime.registry.failed:
            return "failed"
        return "running" if self._runtime.registry.is_asleep(self.id) else "idle"

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
    ) -> Outcome[Out]:
        """Send a prompt and wait for the outcome of the turn that takes it.

        The same `message_id` again gives the same outcome, also after a restart. With `on_cancel="cancel"` a timeout or a
        cancelled caller also cancels the turn; otherwise it goes on.

        Raises:
            AskTimeout: the turn was not over in `timeout` seconds.
            AskCycle: the agent waits, directly or not, for the one whose turn this call is part of.
            InputDropped, InputParked: no turn will take the message.
            InboxFull, InputRefused: it did not get in.
        """
        if on_cancel not in ("detach", "cancel"):  # pyright: ignore[reportUnnecessaryContains]
            raise UsageError(f"on_cancel={on_cancel!r}: write 'detach' (the turn goes on) or 'cancel'")
        put = _put(content, "next-turn", wake=True, message_id=message_id, route=route, sender=sender)
        with self._edge("ask"):
            try:
                look_up = message_id is not None or isinstance(content, Message)
                sending = partial(put_in, put=put, look_up=look_up)
                return await send_and_wait(self._runtime, self.id, put.message.id, sending, timeout)
            except (AskTimeout, trio.Cancelled):
                if on_cancel == "cancel":
                    with trio.CancelScope(shield=True):
                        await self.cancel("user", keep_inbox=True)
                raise

    async def followup(
        self,
        content: Content,
        *,
        message_id: str | None = None,
        route: Mapping[str, Any] | None = None,
        sender: str | None = None,
    ) -> Receipt:
        """Queue a prompt; it gets a turn of its own. Durable on return."""
        return await self._send(content, "next-turn", wake=True, message_id=message_id, route=route, sender=sender)

    async def steer(
        self,
        content: Content,
        *,
        message_id: str | None = None,
        route: Mapping[str, Any] | None = None,
        sender: str | None = None,
    ) -> Receipt:
        """Send into the running turn, at its next boundary; if none runs, it opens one. Durable on return."""
        return await self._send(content, "next-step", wake=True, message_id=message_id, route=route, sender=sender)

    async def inject(
        self,
        content: Content,
        *,
        message_id: str | None = None,
        route: Mapping[str, Any] | None = None,
        sender: str | None = None,
    ) -> Receipt:
        """Add context for the next boundary, whenever that is; wakes nobody. Durable on return."""
        return await self._send(content, "next-step", wake=False, message_id=message_id, route=route, sender=sender)

    async def _send(
        self,
        content: Content,
        lane: Lane,
        *,
        wake: bool,
        message_id: str | None,
        route: Mapping[str, Any] | None,
        sender: str | None,
    ) -> Receipt:
        put = _put(content, lane, wake=wake, message_id=message_id, route=route, sender=sender)
        look_up = message_id is not None or isinstance(content, Message)
        receipt, _ = await send(self._runtime, self.id, put, look_up=look_up)
        return receipt

    # -- waiting and stopping

    async def outcome(
        self, message_id: str | None = None, *, turn: int | None = None, timeout: float | None = None
    ) -> Outcome[Out]:
        """The outcome of the turn that took (or takes) a message, or of a turn by its number.

        Raises:
            UsageError: there is no such message.
            AskTimeout: it was not over in time.
        """
        if message_id is None and turn is None:
            raise UsageError("outcome() needs a message's id, or turn=, to know whose outcome", agent=self.id)
        if message_id is not None:
            with self._edge("ask"):
                return await await_outcome(self._runtime, self.id, message_id, timeout)
        with self._edge("ask"):
            return await await_turn(self._runtime, self.id, turn or 0, timeout)

    async def cancel(self, cause: Literal["user", "hook"] = "user", *, keep_inbox: bool = False, text: str | None = None) -> None:
        """Cancel what the agent and its children do. What is queued is dropped, or with `keep_inbox` parked.

        Returns when the fact is on disk; `wait_idle` waits for the end.
        """
        if cause not in ("user", "hook") or not (text is None or isinstance(text, str)):  # pyright: ignore[reportUnnecessaryIsInstance, reportUnnecessaryContains]
            raise UsageError(f"cancel({cause!r}, text={text!r}): the cause is 'user' or 'hook', the text a text or None")
        actor = await self._runtime.registry.actor(self.id)
        await cancel(actor, Cause(cause, None if text is None else well_formed(text)), keep_inbox=keep_inbox)

    async def wait_idle(self) -> None:
        """Return when nothing runs."""
        with self._edge("wait_idle"):
            actor = await self._runtime.registry.actor(self.id)
            with actor.held():
                await actor.wait_idle()

    async def dispose(self) -> None:
        """Stop now and keep the inbox, parked; the next send or spawn activates the agent again."""
        with self._edge("dispose"):
            actor = await self._runtime.registry.actor(self.id)
            with actor.held():
                await cancel(actor, Cause("disposed"), keep_inbox=True)
                await actor.wait_idle()
                await end_for_good(actor, task=False)

    async def resume(self) -> None:
        """Take up the open turn of a fork, which start-up leaves alone. (What is parked waits for the next message.)"""
        (await self._runtime.registry.actor(self.id)).wake()
        await trio.lowlevel.checkpoint()

    async def compact(self) -> bool:
        """Offer what the model sees to the `compact` seam, while the agent is idle; whether it was rewritten. Sends wait for it.

        Raises:
            UsageError: the agent is at work.
        """
        return await compact(await self._runtime.registry.actor(self.id))

    def _edge(self, kind: EdgeKind) -> AbstractContextManager[object]:
        return wait_edge(self._runtime, self.id, kind)

    # -- the inbox

    async def pending(self) -> tuple[Item, ...]:
        """What waits in both lanes, in the order in which it would be taken."""
        return (await state_of(self._runtime, self.id)).inbox.pending()

    async def withdraw(self, message_id: str) -> bool:
        """Take a pending message out again; False if a turn has it, or nobody knows it."""
        actor = await self._runtime.registry.actor(self.id)
        with actor.held():
            drop = actor.inbox.withdraw(message_id)
            if drop is None:
                await trio.lowlevel.checkpoint()
                return False
            actor.log.append(drop)
            await actor.log.commit(shielded=True)  # who waits for it has to hear of it, also if the caller has left
            actor.promises.settle()
            return True

    async def replace(self, message_id: str, content: Content, *, new_id: str | None = None) -> Receipt | Literal[False]:
        """Put another message in the place of a pending one, under an id of its own; False if that is too late. Like any message
        that wakes, one in the place of such a one lets what is parked run.

        Raises:
            InputRefused: a plugin or a limit refused it, as it would have on its own.
        """
        actor = await self._runtime.registry.actor(self.id)
        with actor.held():
            put = InboxPut(message=to_message(content, id=new_id), lane="next-turn")
            taken = await accept(actor, put, replaces=True)
            if isinstance(taken, Answer):
                text = f"a control command takes no place in the inbox of {self.id!r}: send it on its own"
                raise InputRefused(text, agent=self.id)
            message, blobs = accepted(taken, actor.agent.limits, agent=self.id)
            events = actor.inbox.replace(message_id, InboxPut(message=message, lane="next-turn"))
            if events is None:
                await trio.lowlevel.checkpoint()
                return False
            seq = actor.log.append(*events, blobs=blobs) + 1
            if events[1].wake:
                actor.wake()
            await actor.log.commit(shielded=True)
            actor.promises.settle()
            return Receipt(message.id, seq)

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
        `every_s`, again and again. Durable on return; what was due while nobody ran comes once, late.

        The same `id` again is the same reminder. It is also the id of the message, so `outcome(timer.id)` waits for it.

        Raises:
            UsageError: the times make no sense, or a message has the id already.
        """
        return await remind(self._runtime, self.id, content, after_s=after_s, at=at, every_s=every_s, id=id, route=route)

    async def timers(self) -> tuple[Timer, ...]:
        """The reminders that are set, by when they are due."""
        return await timers_of(self._runtime, self.id)

    async def cancel_timer(self, id: str) -> bool:
        """Take a reminder back; False if it has fired, or nobody knows it."""
        return await cancel_timer(self._runtime, self.id, id)

    # -- reading

    def follow(self, after: int | None = -1, types: Collection[str] | None = None) -> Follow:
        """Committed records after `after`, now and as they come; None: from now on. It stays open at the end."""
        return Follow(self.source(), after=after, types=types)

    def read(self, after: int = -1, upto: int | None = None, types: Collection[str] | None = None) -> Reader:
        """Committed records after `after` up to `upto`; stops at the end."""
        return self._runtime.store.read(self.id, after, upto, types)

    def deltas(self, after: int | None = -1) -> Deltas:
        """What the agent shows while it works: text, reasoning, tools, discards, ends."""
        return Deltas(self.source(), after=after)

    def source(self) -> LogSource:
        """What `follow` reads from, for those who follow in a way of their own: a service shares pages among its followers."""
        return LogSource(self._runtime, self.id)

    async def messages(self) -> Sequence[Message]:
        """What the model would see now."""
        return (await state_of(self._runtime, self.id)).surface.messages()

    async def info(self) -> AgentInfo:
        """All that is known of the agent now, and what it waits for."""
        try:
            return info_of(await self._runtime.registry.actor(self.id))
        except DefinitionMissing:
            return info_of_unknown(self.id, await state_of(self._runtime, self.id))

    async def fork(
        self,
        *,
        at: int | None = None,
        id: str | None = None,
        turn: int | None = None,
        agent: Agent[Any, Any] | None = None,
        rerun: bool = False,
    ) -> AgentRef[Any]:
        """An agent that shares this one's records up to seq `at`, or those before turn `turn`, without copying them.

        With `agent` it goes on under another definition, which is its alone. With `rerun` it runs turn `turn` again: the same
        input, without its route, under ids that are new in the fork.

        Raises:
            UsageError: there is no such seq or turn, nothing to run again, or the id is taken.
        """
        return await fork(self._runtime, self.id, at=at, id=id, turn=turn, agent=agent, rerun=rerun)


def _put(
    content: Content,
    lane: Lane,
    *,
    wake: bool,
    message_id: str | None,
    route: Mapping[str, Any] | None,
    sender: str | None,
) -> InboxPut:
    message = to_message(content, id=message_id)
    return InboxPut(message=message, lane=lane, wake=wake, sender=sender, route=to_route(route))
