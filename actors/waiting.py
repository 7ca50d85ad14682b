"""Waiting for the outcome of a message: live, or from the log if its turn is over.

Whoever waits from inside a turn is named by a context variable that only drivers and bodies have, so that an observer, which
holds no turn, can never be part of a cycle.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import trio

from ..storage.errors import AskTimeout, UsageError
from .outcomes import find_aside, find_outcome
from .promises import fate_error
from .values import Outcome, Receipt

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime import Runtime
    from .waits import EdgeKind

_FOREVER = _NO_EDGE = nullcontext()
in_turn: contextvars.ContextVar[str | None] = contextvars.ContextVar("callboard.in_turn", default=None)
"""The id of the agent whose turn this task is part of; None outside of turns."""


def wait_edge(runtime: Runtime, target: str, kind: EdgeKind) -> AbstractContextManager[object]:
    """A wait from inside a turn is an edge of the wait graph, for the length of a block; from outside it is nobody's business.

    Raises:
        AskCycle: it would never end.
    """
    waiter = in_turn.get()
    return _NO_EDGE if waiter is None else runtime.graph.edge(waiter, target, kind, since=runtime.now_ms())


async def await_outcome(runtime: Runtime, agent: str, message_id: str, timeout: float | None) -> Outcome[Any]:
    """The outcome of the turn that takes the message.

    Raises:
        UsageError: the agent has no such message.
        AskTimeout: the turn was not over in `timeout` seconds; it goes on.
        InputDropped, InputParked, AgentDeleted: no turn will take it.
    """
    with _within(timeout):
        return await _await(runtime, agent, message_id)
    raise _overdue(agent, message_id, timeout)


async def send_and_wait(
    runtime: Runtime, agent: str, message_id: str, send: Callable[[Actor], Awaitable[tuple[Receipt, bool]]], timeout: float | None
) -> Outcome[Any]:
    """Send a message and wait for its outcome; `send` need not wait until it is on disk. The promise is made before the send, so
    that no log has to be read for a new message whose turn is over before the sender is awake again.

    Raises:
        AskTimeout, InputDropped, InputParked, AgentDeleted: as for `await_outcome`; and whatever the send raises.
    """
    with _within(timeout):
        actor = await runtime.registry.actor(agent)
        with actor.held():
            promise = actor.promises.make(message_id)
            try:
                _, new = await send(actor)
                if new:
                    return await promise.wait()
            finally:
                actor.promises.drop(message_id, promise)
        return await _await(runtime, agent, message_id)
    raise _overdue(agent, message_id, timeout)


def _within(timeout: float | None) -> AbstractContextManager[object]:
    return _FOREVER if timeout is None else trio.CancelScope(deadline=trio.current_time() + timeout)


def _overdue(agent: str, message_id: str, timeout: float | None) -> AskTimeout:
    return AskTimeout(
        f"the turn of {agent!r} for message {message_id!r} was not over in {timeout:g} s; it goes on: ask again with that id",
        agent=agent,
    )


async def _await(runtime: Runtime, agent: str, message_id: str) -> Outcome[Any]:
    actor = await runtime.registry.actor(agent)
    with actor.held():
        promise = actor.promises.make(message_id)
        try:
            fate = actor.inbox.fate(message_id)
            waiting = fate is not None and fate.kind == "pending"
            taken = message_id in actor.position.claimed and actor.position.open
            if not waiting and not taken:
                error = fate_error(actor, message_id)
                if error is not None:
                    raise error
                found = await _from_log(runtime, agent, message_id)
                if found is not None:
                    return found
            return await promise.wait()
        finally:
            actor.promises.drop(message_id, promise)


async def _from_log(runtime: Runtime, agent: str, message_id: str) -> Outcome[Any] | None:
    """The outcome on disk; None if the turn that took the message is still open."""
    seq = await runtime.store.find(agent, message_id)
    actor = await runtime.registry.actor(agent)
    if seq is None and actor.log.tail_id(message_id) is None and actor.inbox.seen(message_id) is None:
        raise UsageError(f"agent {agent!r} has no message {message_id!r}", agent=agent)
    aside = None if seq is None else await find_aside(runtime.store, agent, message_id, seq)
    if aside is not None:
        return aside
    return await find_outcome(runtime.store, agent, message_id=message_id, output=actor.agent.typed)


async def await_turn(runtime: Runtime, agent: str, turn: int, timeout: float | None) -> Outcome[Any]:
    """The outcome of a turn by its number, when it has ended.

    Raises:
        AskTimeout: it was not over in `timeout` seconds.
    """
    with _within(timeout):
        while True:
            actor = await runtime.registry.actor(agent)
            with actor.held():
                seen = actor.log.committed
                if actor.position.turn >= turn:
                    found = await find_outcome(runtime.store, agent, turn=turn, output=actor.agent.typed)
                    if found is not None:
                        return found
                await actor.log.wait_beyond(seen)
    raise AskTimeout(f"turn {turn} of {agent!r} was not over in {timeout:g} s", agent=agent, turn=turn)
