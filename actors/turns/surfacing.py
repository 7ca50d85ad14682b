"""Rewrites of the model's view: what the `compact` seam, a command or a recovery from overflow may replace.

The log keeps the old records; a `surface/replace` names the range that a message stands for from now on, or that vanishes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, overload

import trio

from ...storage.errors import CallboardError, UsageError
from ...storage.events import Note, SurfaceReplace
from ...storage.messages import Message, Request
from ..answers import LimitReached, Position, Replace, Why
from ..failures import described

if TYPE_CHECKING:
    from ...storage.folds import Surface
    from ..actor import Actor
    from ..seams import SeamContext
    from .turn import Turn


async def compact_view(turn: Turn) -> None:
    """COMPACT: offer the view, and what this turn is about to claim, to the `compact` seam."""
    if not turn.chains.has("compact"):
        return
    incoming = tuple(item.message for item in turn.actor.inbox.pending("next-step"))
    prompt = (turn.prompt.message,) if turn.prompt is not None else ()
    await _rewrite(turn, lambda: offer_view(turn.actor, turn.actor.context, incoming=incoming + prompt))


async def make_room(turn: Turn) -> None:
    """Before a request: offer the view again to those who want it, now that the boundary has added to it."""
    if turn.chains.every_step:
        await _rewrite(turn, lambda: turn.chains.compact_step(turn.actor.context, position_of(turn.actor, why="step"), _leave))


async def _rewrite(turn: Turn, offer: Callable[[], Awaitable[Replace | None]]) -> None:
    try:
        replacement = await offer()
        await trio.lowlevel.checkpoint_if_cancelled()
        if replacement is not None:
            turn.log.append(replace_event(turn.actor, replacement))
    except LimitReached:
        raise
    except Exception as error:
        # A failure to summarise never fails the turn: the view is as it was.
        turn.log.append(Note(kind="compact-failed", data={"error": described(error)}))


async def offer_view(
    actor: Actor, context: SeamContext, *, incoming: Sequence[Message] = (), why: Why = "budget"
) -> Replace | None:
    """What the `compact` seam would make of the view; a throw is the caller's."""
    return await actor.chains.run("compact", context, position_of(actor, incoming, why=why), _leave)


def position_of(actor: Actor, incoming: Sequence[Message] = (), *, why: Why = "budget") -> Position:
    """The view, and how full it is, as far as the last request tells."""
    state, gauge = actor.state, actor.state.gauge
    context, header = state.headers.context, state.headers.current
    reserved = actor.agent.max_tokens if header is None else header.settings.max_tokens
    return Position(
        Entries(state.surface),
        incoming,
        gauge.tokens(incoming),
        gauge.window(_window_at_first(actor) if context is None else context.window),
        why,
        reserved or 0,
        gauge.ratio,
        gauge.fruitless,
    )


def _window_at_first(actor: Actor) -> int | None:
    """The window of the agent's own model, before anything was sent to one: what its adapter says of such a request. A history
    that came with the agent may be too long for the first one."""
    try:
        provider, name, model = actor.runtime.route_of(actor.agent.model)
        if model is None:
            return None
        request = Request(provider, name, actor.agent.sampling, messages=actor.state.surface.messages())
        return model.prepare(request).context_window
    except CallboardError:  # such a request cannot be sent; the turn fails where it is
        return None


class Entries(Sequence[tuple[int, Message]]):
    """The messages on a surface with their seqs, gathered when somebody looks: most looks at a position end at its numbers."""

    __slots__ = ("_gathered", "_surface")

    def __init__(self, surface: Surface) -> None:
        self._surface = surface
        self._gathered: tuple[tuple[int, Message], ...] | None = None

    def _all(self) -> tuple[tuple[int, Message], ...]:
        if self._gathered is None:
            self._gathered = self._surface.entries()
        return self._gathered

    def __len__(self) -> int:
        return len(self._all())

    @overload
    def __getitem__(self, index: int) -> tuple[int, Message]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, Message]]: ...
    def __getitem__(self, index: int | slice) -> tuple[int, Message] | Sequence[tuple[int, Message]]:
        return self._all()[index]

    def __repr__(self) -> str:
        return f"<{len(self._surface)} messages with their seqs>"


async def _leave(position: Position) -> Replace | None:
    return None


def replace_event(actor: Actor, replacement: Replace) -> SurfaceReplace:
    """The record of a rewrite; its ends are moved to the nearest messages on the surface.

    Raises:
        UsageError: the range holds no message, or half of a call and its result.
    """
    surface = actor.state.surface
    seqs = [seq for seq, _ in surface.entries()]
    inside = _between(seqs, replacement.start, actor.log.last if replacement.end is None else replacement.end)
    ends = surface.ends_of(inside)
    why = ends if isinstance(ends, str) else surface.check_replace(*ends)
    if isinstance(ends, str) or why is not None:
        raise UsageError(f"the view cannot be rewritten: {why}", agent=actor.id, turn=actor.position.turn)
    return SurfaceReplace(start=ends[0], end=ends[1], message=replacement.message, cause=replacement.cause)


def _between(seqs: list[int], start: int, end: int) -> list[int]:
    """The seqs on the surface from `start` up to `end`, by their places there: a summary has a later seq than what follows it."""
    first = seqs.index(start) if start in seqs else next((at for at, seq in enumerate(seqs) if seq >= start), len(seqs))
    last = seqs.index(end) if end in seqs else max((at for at, seq in enumerate(seqs) if seq <= end), default=-1)
    return seqs[first : last + 1]
