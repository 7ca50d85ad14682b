"""The initiator: which agent's work is running here.

Every task of an agent (its driver, a tool's body, an observer, a timer) starts in a fresh context that holds this one variable.
A task started the usual way copies the context of whoever started it: a driver that A's send happened to start would then run
as A, with all of A's context variables, for as long as it lives. `start_fresh` is the only way to start such a task.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import trio
    from typing_extensions import TypeVarTuple

    Arguments = TypeVarTuple("Arguments")

_initiator: contextvars.ContextVar[str | None] = contextvars.ContextVar("callboard.initiator", default=None)


def current_initiator() -> str | None:
    """The id of the agent whose work is running; None outside any agent's activity."""
    return _initiator.get()


def start_fresh(
    nursery: trio.Nursery,
    function: Callable[[*Arguments], Awaitable[object]],
    *arguments: *Arguments,
    initiator: str | None,
    name: str | None = None,
) -> None:
    """Start a task whose context holds the initiator alone; `name` is what trio's tools show."""
    contextvars.Context().run(_start, nursery, function, arguments, initiator, name)


def fresh_context(initiator: str | None) -> contextvars.Context:
    """A context that holds the initiator alone, for those who start a task in it themselves."""
    context = contextvars.Context()
    context.run(_initiator.set, initiator)
    return context


def _start(
    nursery: trio.Nursery,
    function: Callable[..., Awaitable[object]],
    arguments: tuple[object, ...],
    initiator: str | None,
    name: str | None,
) -> None:
    # trio copies the current context into the new task: here that is the empty one.
    _initiator.set(initiator)
    nursery.start_soon(function, *arguments, name=name)
