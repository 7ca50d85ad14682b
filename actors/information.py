"""What an agent is doing and what it waits for, put together for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .values import AgentInfo, Wait, moment

if TYPE_CHECKING:
    from .actor import Actor


def info_of(actor: Actor) -> AgentInfo:
    """All that is known of an open agent now."""
    state, at = actor.state, actor.position
    return AgentInfo(
        id=actor.id,
        definition=state.identity.name,
        labels=actor.labels,
        parent=state.identity.parent,
        depth=state.identity.depth,
        status=actor.status,
        turn=at.turn,
        step=at.step,
        pending=len(actor.inbox),
        children=tuple(child.id for child in state.children.alive()),
        usage=state.usage.total,
        waits=waits_of(actor),
    )


def waits_of(actor: Actor) -> tuple[Wait, ...]:
    """What the agent waits for, as far as the log and the wait graph say."""
    waits = [
        Wait("child" if edge.kind == "delegate" else edge.kind, edge.target, moment(edge.since) if edge.since else None)
        for edge in actor.runtime.graph.of(actor.id)
    ]
    state, at = actor.state, actor.position
    if at.request is not None and actor.status == "running":
        waits.append(Wait("model", f"turn {at.turn}, step {at.step}, attempt {at.request.attempt}"))
    waits.extend(Wait("tool", f"{call.name} ({call.id})") for call in at.open_calls if call.state == "started" and at.open)
    waits.extend(
        Wait(
            "approval", question.question, moment(question.asked), None if question.expires is None else moment(question.expires)
        )
        for question in state.approvals.open.values()
    )
    if actor.log.waiting:
        waits.append(Wait("commit", f"seq {actor.log.last}"))
    return tuple(waits)
