"""What an agent is doing and what it waits for, put together for people.

Most of it the log knows: an open request, a call without a result, a question, a timer. So the answer to "why does it wait?" is
the same whether the agent runs in this process, in another, or nowhere; a running one adds what only memory knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..mailbox.addresses import effect_key
from .channels.losses import lost_replies
from .values import AgentInfo, Wait, moment

if TYPE_CHECKING:
    from .actor import Actor
    from .state import AgentState
    from .values import Status


def info_of(actor: Actor) -> AgentInfo:
    """All that is known of an open agent now."""
    return info_in_log(actor.id, actor.state, status=actor.status, waits=waits_of(actor))


def info_of_unknown(id: str, state: AgentState) -> AgentInfo:
    """All that is known of an agent whose definition this system does not have."""
    waits = (*waits_in_log(state), Wait("definition", state.identity.name))
    return info_in_log(id, state, status="running" if state.position.open else "idle", waits=waits)


def info_in_log(id: str, state: AgentState, *, status: Status, waits: tuple[Wait, ...]) -> AgentInfo:
    """All that the log says of an agent."""
    at = state.position
    return AgentInfo(
        id=id,
        definition=state.identity.name,
        labels=state.identity.labels or {},
        parent=state.identity.parent,
        depth=state.identity.depth,
        status=status,
        turn=at.turn,
        step=at.step,
        pending=len(state.inbox),
        parked=sum(item.parked for item in state.inbox.pending()),
        context_tokens=state.gauge.tokens(),
        context_window=state.gauge.window(state.headers.context.window if state.headers.context is not None else None),
        unsent=len(state.outbox),
        lost=lost_replies(state),
        children=tuple(child.id for child in state.children.alive()),
        usage=state.usage.total,
        waits=waits,
    )


def waits_of(actor: Actor) -> tuple[Wait, ...]:
    """What an open agent waits for: as far as its log says, and what is known in memory alone."""
    runtime, waits = actor.runtime, list(waits_in_log(actor.state))
    asked = {wait.what for wait in waits if wait.kind == "ask"}
    for edge in runtime.graph.of(actor.id):
        if edge.kind != "delegate" and (edge.kind != "ask" or edge.target not in asked):  # the log has those
            waits.append(Wait(edge.kind, edge.target, moment(edge.since) if edge.since else None))
    stream = actor.turn.stream if actor.turn is not None else None
    if stream is not None and stream.queued:
        waits = [Wait("model-slot", wait.what, wait.since) if wait.kind == "model" else wait for wait in waits]
    missing = runtime.report.waiting.get(actor.id)
    if missing is not None:
        waits.append(Wait("definition", missing))
    if actor.log.waiting:
        waits.append(Wait("commit", f"seq {actor.log.last}"))
    return tuple(waits)


def waits_in_log(state: AgentState) -> Iterator[Wait]:
    """What the open turn waits for or, if none is open, whose end the agent waits for and what the clock has for it next."""
    if state.position.open:
        yield from _in_turn(state)
    else:
        yield from _at_rest(state)


def _in_turn(state: AgentState) -> Iterator[Wait]:
    at = state.position
    where = f"turn {at.turn}, step {at.step}, attempt"
    if at.request is not None:
        yield Wait("model", f"{where} {at.request.attempt}", moment(at.request.time))
    if at.retry_at is not None:
        yield Wait("retry", f"{where} {at.attempts + 1}", None, moment(at.retry_at))
    for call in at.open_calls:
        if call.state != "started":
            continue
        child = state.children.by_call(call.id)
        if child is not None and child.alive:
            yield Wait("child", child.id, moment(call.time))
        else:
            yield Wait("tool", f"{call.name} ({call.id})", moment(call.time))
    for question in state.approvals.open.values():
        until = None if question.expires is None else moment(question.expires)
        yield Wait("approval", question.question, moment(question.asked), until)
    yield from _asked(state)


def _asked(state: AgentState) -> Iterator[Wait]:
    """Whom each call without a result has asked last; who sent mail under an id that a tool chose, nobody can say."""
    at = state.position
    for call in at.open_calls if state.asks.asked else ():
        prefix = f"{effect_key(state.identity.agent, at.turn, at.step, call.id)}#"
        asked = next((ask for ask in reversed(state.asks.asked) if ask.message_id.startswith(prefix)), None)
        if asked is not None:
            yield Wait("ask", asked.to, moment(asked.time))


def _at_rest(state: AgentState) -> Iterator[Wait]:
    for child in state.children.alive():
        if child.background:
            yield Wait("child", child.id)
    timer = min(state.timers.all(), key=lambda timer: timer.due, default=None)
    if timer is not None:
        yield Wait("timer", timer.message.text, None, moment(timer.due))
    for item in state.inbox.pending():
        if item.not_before is not None and item.wake:
            yield Wait("timer", item.message.text, None, moment(item.not_before))
