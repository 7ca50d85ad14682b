"""What must hold of what agents said to their channel: over the logs, over a crash, and by the channel's own account.

Each reply is closed by exactly one record; a place hears what an agent says in the order in which it was said; what is known to
have been sent is not sent again, and within one process nothing is taken twice.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from helpers import notation
from life_chat import Chat
from proof_rules import Logs, own

from callboard.storage import events as e
from callboard.storage.records import Record


def delivered(before: Logs, after: Logs, chat: Chat | None) -> None:
    """What a settled system left of its replies; `before` is what the logs said when it began."""
    for agent, log in after.items():
        _closed(agent, own(log), all_closed=chat is not None)
        _ends(agent, own(log))
    if chat is not None:
        _taken(before, after, chat)


def _closed(agent: str, log: Sequence[Record], *, all_closed: bool) -> None:
    put: dict[str, tuple[str, str | None]] = {}
    open_at: defaultdict[tuple[str, str | None], list[str]] = defaultdict(list)
    for event in (record.event for record in log):
        if isinstance(event, e.OutboxPut):
            assert event.delivery not in put, f"two replies of {agent} have one id"
            put[event.delivery] = place = event.route.chat, event.route.thread
            open_at[place].append(event.delivery)
        elif isinstance(event, e.OutboxSent | e.OutboxFailed):
            assert event.delivery in put, f"{agent}: {event.delivery} was never said"
            waiting = open_at[put[event.delivery]]
            assert waiting[:1] == [event.delivery], f"{agent}: {event.delivery} closes before {waiting}"
            waiting.pop(0)
    left = [delivery for waiting in open_at.values() for delivery in waiting]
    assert not (left and all_closed), f"{agent} has said what nobody sends: {left}, {notation(log)}"


def _ends(agent: str, log: Sequence[Record]) -> None:
    """A turn says that its answer was put if and only if it is there, right behind the end; none is missing without a reason."""
    route: dict[int, bool] = {}
    for place, event in enumerate(record.event for record in log):
        if isinstance(event, e.TurnStart):
            route[event.turn] = event.route is not None
        if not isinstance(event, e.TurnEnd):
            continue
        following = log[place + 1].event if place + 1 < len(log) else None
        is_put = isinstance(following, e.OutboxPut) and following.turn == event.turn
        assert is_put == (event.delivery == "put"), f"turn {event.turn} of {agent} ends {event.delivery}: {notation(log)}"
        silent = isinstance(event.reason, e.Aborted | e.Interrupted)
        if route.get(event.turn) and event.delivery == "none":
            assert silent, f"turn {event.turn} of {agent} leaves its route without a word: {notation(log)}"


def _taken(before: Logs, after: Logs, chat: Chat) -> None:
    known = {
        (agent, record.event.delivery)
        for agent, log in before.items()
        for record in own(log)
        if isinstance(record.event, e.OutboxSent | e.OutboxFailed)
    }
    for (session, agent, delivery), times in Counter((t.session, t.agent, t.delivery) for t in chat.taken).items():
        assert times == 1, f"{delivery} of {agent} was taken {times} times in session {session}"
        assert (agent, delivery) not in known, f"{delivery} of {agent} was sent already, and sent again"
    orders = _orders(after)
    for session in range(chat.sessions + 1):
        for agent, order in orders.items():
            heard = [order[t.delivery] for t in chat.taken if t.session == session and t.agent == agent]
            for place in {place for place, _ in heard}:
                seqs = [seq for where, seq in heard if where == place]
                assert seqs == sorted(seqs), f"{place} hears {agent} in another order than it spoke"


def _orders(logs: Logs) -> Mapping[str, Mapping[str, tuple[tuple[str, str | None], int]]]:
    return {
        agent: {
            record.event.delivery: ((record.event.route.chat, record.event.route.thread), record.seq)
            for record in own(log)
            if isinstance(record.event, e.OutboxPut)
        }
        for agent, log in logs.items()
    }
