"""Statistics: how full every queue is, and what each agent in memory is at.

Counts are always of everything. Single agents are many, so only the busiest are shown: those with the most work before them. Who
looks for one, or for a family, names the beginning of their ids. Nothing is read from disk, and nothing waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .information import waits_of
from .values import Status

if TYPE_CHECKING:
    from .actor import Actor
    from .runtime import Runtime

BUSIEST = 20
"""How many agents are shown if nobody asks for certain ones."""


class ActorStatistics(Struct, frozen=True, kw_only=True):
    """One agent in memory."""

    id: str
    status: Status
    asleep: bool
    """Whether its open turn waits for a person and nobody runs it."""
    turn: int
    step: int
    next_turn: int
    """Messages in that lane."""
    next_step: int
    reserved: int
    """How many of both a turn has taken and not yet claimed."""
    uncommitted: int
    """Records that are not on disk yet."""
    committing: int
    """Tasks that wait for that."""
    followers: int
    holds: int
    """Calls of handles, and children, that keep it in memory."""
    asked: int
    """Messages whose outcome somebody in this process waits for."""
    bodies: int
    """Tool bodies that run."""
    unseen: int
    """Committed records that plugins which observe have still to see."""
    waits: tuple[str, ...]
    """What it waits for, each as `kind what`; `ref.info` says since when."""


def statistics(runtime: Runtime, agents: str | None) -> Mapping[str, Any]:
    """All that `System.statistics` gives."""
    actors = tuple(runtime.registry)
    return {
        "writer": runtime.writer.statistics(),
        "store": runtime.store.statistics(),
        "agents": len(actors),
        "running": sum(actor.status == "running" and not actor.asleep for actor in actors),
        "asleep": runtime.registry.asleep,
        "pending": sum(len(actor.inbox) for actor in actors),
        "uncommitted": sum(_uncommitted(actor) for actor in actors),
        "outbox": sum(len(actor.state.outbox) for actor in actors),
        "schedule": len(runtime.schedule),
        "waits": len(runtime.graph),
        "bodies": sum(_bodies(actor) for actor in actors),
        "models": _models(actors),
        "model_slots": runtime.model_slots.statistics(),
        "observers": {"agents": len(runtime.observers), "unseen": sum(_unseen(actor) for actor in actors)},
        "channels": runtime.switchboard.statistics(),
        "strays": tuple(runtime.strays),
        "reviving": len(runtime.reviver),
        "opened": runtime.registry.opened,
        "done": runtime.tally.read(),
        "busiest": _shown(actors, agents),
    }


def _shown(actors: Sequence[Actor], prefix: str | None) -> tuple[ActorStatistics, ...]:
    if prefix is not None:
        return tuple(_of(actor) for actor in sorted(actors, key=lambda actor: actor.id) if actor.id.startswith(prefix))
    return tuple(_of(actor) for actor in nlargest(BUSIEST, actors, key=_busy))


def _busy(actor: Actor) -> tuple[int, bool, str]:
    """How much is before an agent; those that run come before those that rest."""
    return len(actor.inbox) + _uncommitted(actor) + _unseen(actor), actor.status != "idle", actor.id


def _of(actor: Actor) -> ActorStatistics:
    return ActorStatistics(
        id=actor.id,
        status=actor.status,
        asleep=actor.asleep,
        turn=actor.position.turn,
        step=actor.position.step,
        next_turn=actor.inbox.count("next-turn"),
        next_step=actor.inbox.count("next-step"),
        reserved=len(actor.inbox.reserved),
        uncommitted=_uncommitted(actor),
        committing=actor.log.waiting,
        followers=actor.log.followers,
        holds=actor.holds,
        asked=len(actor.promises),
        bodies=_bodies(actor),
        unseen=_unseen(actor),
        waits=tuple(f"{wait.kind} {wait.what}" for wait in waits_of(actor)),
    )


def _uncommitted(actor: Actor) -> int:
    return actor.log.last - actor.log.committed


def _bodies(actor: Actor) -> int:
    batch = actor.turn.batch if actor.turn is not None else None
    return 0 if batch is None else batch.running


def _unseen(actor: Actor) -> int:
    watch = actor.runtime.observers.of(actor)
    return 0 if watch is None else max(0, actor.log.committed - watch.seen)


def _models(actors: Sequence[Actor]) -> Mapping[str, Mapping[str, int]]:
    """By provider: requests that stream now, and those that wait for one of the system's slots."""
    streaming, queued = Counter[str](), Counter[str]()
    for actor in actors:
        if actor.turn is not None and actor.turn.stream is not None and actor.position.request is not None:
            stream = actor.turn.stream
            (queued if stream.queued else streaming)[stream.provider] += 1
    return {each: {"streaming": streaming[each], "queued": queued[each]} for each in sorted({*streaming, *queued})}
