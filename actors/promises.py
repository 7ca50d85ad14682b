"""Promises: who waits for the outcome of which message.

An `ask` waits for the turn that takes its message. A message that is dropped or parked will not be taken, and whoever waits for
it must hear so at once, by name, instead of waiting for ever. Nothing here is durable: an `ask` that a crash cut is sent again
under its message id, and finds the outcome in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import trio

from ..storage.errors import AgentDeleted, CallboardError, InputDropped, InputParked

if TYPE_CHECKING:
    from .actor import Actor
    from .values import Outcome

T = TypeVar("T")


class Promise(Generic[T]):
    """A value or an error that comes later; one task waits."""

    __slots__ = ("_done", "_error", "_value", "_waiting")

    def __init__(self) -> None:
        self._done = False
        self._waiting: trio.lowlevel.Task | None = None
        self._value: T | None = None
        self._error: CallboardError | None = None

    def keep(self, value: T) -> None:
        """The value is there."""
        self._value = value
        self._wake()

    def break_(self, error: CallboardError) -> None:
        """There will be none."""
        self._error = error
        self._wake()

    def _wake(self) -> None:
        self._done = True
        if self._waiting is not None:
            trio.lowlevel.reschedule(self._waiting)
            self._waiting = None

    async def wait(self) -> T:
        """The value; raises the error."""
        if self._done:
            await trio.lowlevel.checkpoint()
        else:
            self._waiting = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._leave)
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self._waiting = None
        return trio.lowlevel.Abort.SUCCEEDED


class Promises:
    """The promises of one actor, by message id."""

    __slots__ = ("_actor", "_by_id")

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._by_id: dict[str, list[Promise[Outcome[Any]]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_id)

    def __len__(self) -> int:
        return sum(map(len, self._by_id.values()))

    def make(self, message_id: str) -> Promise[Outcome[Any]]:
        """Wait for the outcome of the turn that takes this message. If it is parked or gone already, the promise is broken."""
        promise: Promise[Outcome[Any]] = Promise()
        self._by_id.setdefault(message_id, []).append(promise)
        return promise

    def drop(self, message_id: str, promise: Promise[Outcome[Any]]) -> None:
        """Nobody waits for this one any more."""
        waiting = self._by_id.get(message_id, [])
        if promise in waiting:
            waiting.remove(promise)
        if not waiting:
            self._by_id.pop(message_id, None)

    def keep(self, outcome: Outcome[Any], ids: tuple[str, ...]) -> None:
        """A turn that took these messages ended."""
        for message_id in ids:
            for promise in self._by_id.pop(message_id, ()):
                promise.keep(outcome.of_message(message_id))

    def break_all(self, error: CallboardError) -> None:
        """The agent failed or is gone: nobody's turn will come."""
        by_id, self._by_id = self._by_id, {}
        for promises in by_id.values():
            for promise in promises:
                promise.break_(error)

    def break_one(self, message_id: str, error: CallboardError) -> None:
        """Nothing will take this message."""
        for promise in self._by_id.pop(message_id, ()):
            promise.break_(error)

    def hand_on(self, message_id: str, to: str) -> None:
        """Another message stands for this one now: who waits goes on waiting, for that."""
        waiting = self._by_id.pop(message_id, [])
        if waiting:
            self._by_id.setdefault(to, []).extend(waiting)

    def settle(self) -> None:
        """Break the promises of messages that were dropped or parked. Called after each commit that may have done so."""
        for message_id in list(self._by_id):
            error = fate_error(self._actor, message_id)
            if error is not None:
                for promise in self._by_id.pop(message_id):
                    promise.break_(error)


def fate_error(actor: Actor, message_id: str) -> CallboardError | None:
    """Why no turn will take this message by itself; None if one will, or has."""
    fate = actor.inbox.fate(message_id)
    if fate is None:
        return None
    if actor.id in actor.runtime.registry.deleting and fate.kind != "claimed":
        return AgentDeleted(f"the agent {actor.id!r} is being deleted; message {message_id!r} is not run", agent=actor.id)
    if fate.kind == "parked":
        return InputParked(
            f"message {message_id!r} is parked behind a cancelled or failed turn of {actor.id!r}; the next message runs it",
            message_id=message_id,
            agent=actor.id,
        )
    return dropped(actor.id, message_id, fate.why or "withdrawn") if fate.kind == "dropped" else None


def dropped(agent: str, message_id: str, why: str) -> InputDropped:
    """The error of whoever waits for a message that left the inbox without being run."""
    text = f"message {message_id!r} was {why} before any turn of {agent!r} took it; send it again under a new id"
    return InputDropped(text, why=why, message_id=message_id, agent=agent)
