"""What must hold of the logs of a life beside what `verify` checks of each by itself: across logs, and over a crash."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from helpers import notation

from callboard.actors.state import AgentState
from callboard.mailbox.addresses import effect_key
from callboard.storage import events as e
from callboard.storage.records import Record

Logs = Mapping[str, Sequence[Record]]
BESIDE = ("outbox/sent", "outbox/failed", "note")
"""What may be written beside the turns."""


def closed(logs: Logs, mode: str) -> None:
    """A system that has closed left each turn ended or marked as suspended."""
    for agent, log in logs.items():
        if untouched_fork(log):
            continue
        suspended = next(record.type for record in reversed(log) if record.type not in BESIDE) == "turn/suspend"
        assert suspended or not _state(log).position.open, f"{agent}: {notation(log)}"
        assert mode == "continue" or not suspended, f"{agent} closes open turns and has left one"


def settled_logs(logs: Logs) -> None:
    """Nothing is open or due, and logs agree on what went from one to another."""
    for agent, log in logs.items():
        state = _state(log)
        assert untouched_fork(log) or not state.position.open, f"a turn of {agent} is open"
        assert not state.inbox.due(None), f"{agent} has input that nobody takes: {state.inbox.pending()}"
        _context(agent, log)
    _families(logs)
    _mail(logs)


def acknowledged(logs: Logs, sent: Sequence[tuple[str, str]]) -> None:
    """What people were told is taken stands in a log, also if it was said again because the disk was full."""
    taken = {(agent, event.message.id) for agent, log in logs.items() for event in _of(log, e.InboxPut)}
    taken |= {(agent, event.id) for agent, log in logs.items() for event in _of(log, e.CommandRun)}
    assert not (lost := set(sent) - taken), f"acknowledged and lost: {lost}"


def recovered(before: Logs, after: Logs, bodies: Counter[str], mode: str) -> None:
    """What recovery left of these logs."""
    settled_logs(after)
    for agent, log in before.items():
        assert list(after[agent][: len(log)]) == list(log), f"what {agent} had written did not stand"
        _cut_turn(agent, _state(log), after[agent][len(log) :], mode, new_fork=untouched_fork(log))
    for agent in after:
        _bodies(agent, before.get(agent, ()), after[agent], bodies)


def _context(agent: str, log: Sequence[Record]) -> None:
    """What results carry for the next step of a turn that completed has entered the inbox."""
    completed = {event.turn for event in _of(log, e.TurnEnd) if e.kind_of(event.reason) == "completed"}
    put = {event.message.id for event in _of(log, e.InboxPut)}
    for result in _of(log, e.ToolResult):
        missing = {message.id for message in result.context or ()} - put
        assert result.turn not in completed or not missing, f"context of {agent}, call {result.call_id}, is lost"


def _families(logs: Logs) -> None:
    """A child has one end for each birth, and a log of its own; and no child is without a birth."""
    born = Counter(event.child for log in logs.values() for event in _of(log, e.ChildSpawned))
    ended = Counter(event.child for log in logs.values() for event in _of(log, e.ChildEnded))
    there = Counter(agent for agent, log in logs.items() for event in _of(log, e.LogCreated) if event.parent is not None)
    assert born == there, f"births and the logs of children differ: {_differ(born, there)}"
    assert born == ended, f"births and ends of children differ: {_differ(born, ended)}"


def _mail(logs: Logs) -> None:
    """What one log says it sent, the other has, and the other way round."""
    sent = Counter((event.to, event.message_id) for log in logs.values() for event in _of(log, e.MailSent) if not event.dead)
    tasks = {(event.child, event.task) for log in logs.values() for event in _of(log, e.ChildSpawned)}
    came = Counter(
        (agent, event.message.id)
        for agent, log in logs.items()
        for event in _of(log, e.InboxPut)
        if event.sender in logs
        and event.restarts is None
        and (agent, event.message.id) not in tasks
        and not event.message.id.endswith(("#end", "!"))
    )
    assert sent == came, f"mail that was sent and mail that came differ: {_differ(sent, came)}"


def _differ(one: Counter[Any], other: Counter[Any]) -> str:
    return f"{[*(one - other)]} against {[*(other - one)]}"


def _bodies(agent: str, before: Sequence[Record], after: Sequence[Record], bodies: Counter[str]) -> None:
    """No body that had started before the crash runs again, unless that is safe or a person said so; none runs twice."""
    started = {effect_key(agent, c.turn, c.step, c.call_id) for c in _of(before, e.ToolCalled) if c.replay == "never"}
    asked = {effect_key(agent, c.turn, c.step, c.call_id) for c in _of(before, e.ToolCalled) if c.replay == "ask"}
    allowed = any(event.verdict == "allow" for event in _of(after[len(before) :], e.ApprovalAnswered))
    for key, times in bodies.items():
        assert times == 1, f"{key} ran {times} times"
        assert key not in started, f"{key} ran again"
        assert key not in asked or allowed, f"{key} ran again, and nobody was asked"


def _cut_turn(agent: str, before: AgentState, new: Sequence[Record], mode: str, *, new_fork: bool) -> None:
    """What recovery did with the turn that was open, if one was."""
    at = before.position
    if new_fork:
        return
    if not at.open:
        assert not any(isinstance(r.event, e.TurnResume) and r.event.turn == at.turn for r in new), "a closed turn was resumed"
        return
    ends = [event for event in _of(new, e.TurnEnd) if event.turn == at.turn]
    assert len(ends) == 1, f"turn {at.turn} of {agent} has {len(ends)} ends"
    kind, resumes = e.kind_of(ends[0].reason), [event for event in _of(new, e.TurnResume) if event.turn == at.turn]
    if at.cancel is None and mode == "continue":
        assert len(resumes) == 1, f"turn {at.turn} of {agent} was resumed {len(resumes)} times"
        assert kind != "interrupted"
        return
    assert not [event for event in _of(new, e.RequestSent) if event.turn == at.turn], "a request in a turn that must not go on"
    assert not resumes, f"turn {at.turn} of {agent} must not go on, and was resumed"
    assert kind == ("aborted" if at.cancel is not None else "interrupted"), f"turn {at.turn} of {agent} ended {kind}"


def _state(log: Sequence[Record]) -> AgentState:
    state = AgentState()
    for record in log:
        state.apply(record.seq, record.time, record.event)
    return state


def _of(log: Sequence[Record], type: Any) -> list[Any]:
    return [record.event for record in own(log) if isinstance(record.event, type)]


def own(log: Sequence[Record]) -> Sequence[Record]:
    """The records of the agent itself: those of a fork begin behind what it shares."""
    start = max((place for place, record in enumerate(log) if isinstance(record.event, e.LogForked)), default=0)
    return log[start:]


def untouched_fork(log: Sequence[Record]) -> bool:
    """A fork that nobody has sent anything to: it stands as it was made, also within a turn."""
    return isinstance(log[-1].event, e.LogForked)
