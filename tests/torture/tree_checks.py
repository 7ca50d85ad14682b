"""What must hold of the trees' logs, and between the logs and the ledger, after a kill and in the end.

After every kill: each log keeps all rules, whatever the ledger says was acknowledged is in a log, nothing was paid twice, log and
ledger agree about each payment, and what is one commit is there on both sides: mail, births, ends of children, timers and what
they put. In the end nothing is open, due or set, every input has its completed turn, every child has one end, every timer has
fired, and every message was claimed by one turn.

`look` reads a store, checks it, and gives what it found; the figures are for the closing line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import Struct, field
from sides import problems_beside
from trees import PAID, SIGNED, Ledger

from callboard.mailbox.addresses import effect_key
from callboard.storage import events as e
from callboard.storage.messages import AgentSource
from callboard.storage.records import Record
from callboard.storage.store import Head, Store
from callboard.storage.verify import check_records


class Failed(Exception):
    """What the torture found."""


class Kept(Struct):
    """What the logs say, all agents together; keys begin with the agent's id."""

    puts: Counter[str] = field(default_factory=Counter[str])
    mail: Counter[str] = field(default_factory=Counter[str])
    """By receiver: `mail/sent`."""
    letters: Counter[str] = field(default_factory=Counter[str])
    """By receiver: messages that another agent wrote, tasks and ends of children apart."""
    ends_told: Counter[str] = field(default_factory=Counter[str])
    claims: Counter[str] = field(default_factory=Counter[str])
    dropped: set[str] = field(default_factory=set[str])
    """Messages that a cancel took out of an inbox."""
    cancelled: set[str] = field(default_factory=set[str])
    """Turns that were cancelled."""
    answers: dict[str, str] = field(default_factory=dict[str, str])
    timers: Counter[str] = field(default_factory=Counter[str])
    fired: Counter[str] = field(default_factory=Counter[str])
    spawned: Counter[str] = field(default_factory=Counter[str])
    """By child."""
    background: set[str] = field(default_factory=set[str])
    """Tasks whose end is told in a message."""
    ended: Counter[str] = field(default_factory=Counter[str])
    turns: dict[str, str] = field(default_factory=dict[str, str])
    """The end reason of a turn."""
    completed: set[str] = field(default_factory=set[str])
    """Messages that a completed turn took."""
    finished: set[str] = field(default_factory=set[str])
    """Effect keys of calls whose body has a result."""
    heads: dict[str, Head] = field(default_factory=dict[str, Head])
    records: int = 0
    resumes: int = 0
    unknown: int = 0


async def look(store: Store, ledger: Ledger, *, over: bool) -> Kept:
    """Read everything and check it; `over`: nothing may be left to do.

    Raises:
        Failed: the first thing that does not hold.
    """
    kept, paid = Kept(), Counter(ledger.lines("payments"))
    _none(f"{key} was paid {times} times" for key, times in paid.items() if times > 1)
    page = await store.agents()
    while page:
        for head in page:
            _read(kept, head, [record async for record in store.read(head.agent)], paid)
        page = await store.agents(after=page[-1].agent)
    _acknowledged(kept, ledger)
    _both_sides(kept)
    _none(problems_beside(kept, ledger, over=over))
    if over:
        _nothing_left(kept)
    return kept


def _none(problems: Iterable[str]) -> None:
    found = list(problems)
    if found:
        raise Failed("; ".join(found[:3]) + (f"; and {len(found) - 3} more" if len(found) > 3 else ""))


# -- one log


def _read(kept: Kept, head: Head, log: Sequence[Record], paid: Counter[str]) -> None:
    report = check_records(head.agent, log)
    _none(str(problem) for problem in report.problems)
    _none(f"{head.agent} seq {b.seq}: time goes back" for a, b in pairwise(log) if b.time < a.time)
    kept.heads[head.agent] = head
    kept.records += len(log)
    calls, claimed = dict[str, e.ToolCalled](), list[str]()
    created = log[0].event
    parent = created.parent if isinstance(created, e.LogCreated) else None
    forked = next((place for place, record in enumerate(log) if isinstance(record.event, e.LogForked)), 0)
    for record in log[forked:]:  # what a fork shares is its origin's
        _inbox(kept, head.agent, parent, record.event)
        _around(kept, head.agent, record.event)
        match record.event:
            case e.ToolCalled(call_id=call):
                calls[call] = record.event
            case e.ToolResult():
                _result(kept, head.agent, record.event, calls.pop(record.event.call_id, None), paid)
            case e.InboxClaim(ids=ids):
                claimed.extend(ids)
            case e.TurnEnd(turn=turn, reason=reason):
                kept.turns[f"{head.agent} {turn}"] = reason.kind
                if reason.kind == "completed":
                    kept.completed |= {f"{head.agent} {id}" for id in claimed}
                claimed.clear()
            case _:
                pass


def _inbox(kept: Kept, agent: str, parent: str | None, event: object) -> None:
    match event:
        case e.InboxPut(message=message):
            key = f"{agent} {message.id}"
            kept.puts[key] += 1
            match message.source:
                case AgentSource(id=sender) if message.id.endswith("#end"):
                    assert sender != agent
                    kept.ends_told[message.id.removesuffix("#end")] += 1
                case AgentSource(id=sender) if sender != parent:
                    kept.letters[key] += 1
                case _:
                    pass
        case e.InboxClaim(ids=ids):
            kept.claims.update(f"{agent} {id}" for id in ids)
        case e.TurnCancel(turn=turn, ids=ids):
            kept.dropped |= {f"{agent} {id}" for id in ids}
            kept.cancelled |= {f"{agent} {turn}"} if turn is not None else set()
        case e.InboxDrop(ids=ids):
            kept.dropped |= {f"{agent} {id}" for id in ids}
        case e.TurnResume():
            kept.resumes += 1
        case _:
            pass


def _around(kept: Kept, agent: str, event: object) -> None:
    match event:
        case e.MailSent(to=to, message_id=id, dead=False):
            kept.mail[f"{to} {id}"] += 1
        case e.ChildSpawned(child=child, background=background, task=task):
            kept.spawned[child] += 1
            if background and task is not None:
                kept.background.add(task)
        case e.ChildEnded(child=child):
            kept.ended[child] += 1
        case e.ApprovalAnswered(id=id, verdict=verdict):
            kept.answers[f"{agent} {id}"] = verdict
        case e.TimerSet(id=id):
            kept.timers[f"{agent} {id}"] += 1
        case e.TimerFired(id=id):
            kept.fired[f"{agent} {id}"] += 1
        case _:
            pass


def _result(kept: Kept, agent: str, result: e.ToolResult, call: e.ToolCalled | None, paid: Counter[str]) -> None:
    """Log and ledger agree about what this call did."""
    key = effect_key(agent, result.turn, result.step, result.call_id)
    if call is not None and call.name == "look" and not agent.startswith("brief-"):  # those are deleted
        kept.finished.add(key)
    if result.call_id not in ("p", "s"):
        return
    text = "".join(getattr(block, "text", "") for block in result.content)
    kept.unknown += result.error == "OUTCOME_UNKNOWN"
    done = result.error is None and text in (PAID, SIGNED)
    if done and key not in paid:
        raise Failed(f"{key}: the log says {text}, the ledger has nothing")
    if not done and result.error != "OUTCOME_UNKNOWN" and key in paid:
        raise Failed(f"{key}: the log says {result.error or text}, and the ledger has it")
    if call is None and key in paid:
        raise Failed(f"{key}: its body ran, and no record said before that it would")


# -- all logs together


def _acknowledged(kept: Kept, ledger: Ledger) -> None:
    _none(f"{line} was acknowledged, and is not there" for line in ledger.lines("receipts") if kept.puts[line] != 1)
    _none(f"reminder {line} was acknowledged, and is not there" for line in ledger.lines("timers") if kept.timers[line] != 1)
    for line in ledger.lines("answers"):
        agent, id, verdict = line.rsplit(" ", 2)
        if kept.answers.get(f"{agent} {id}") != verdict:
            raise Failed(f"answer {line} was acknowledged, and the log says {kept.answers.get(f'{agent} {id}')}")
    said: defaultdict[str, set[str]] = defaultdict(set)
    for line in ledger.lines("outcomes"):
        agent, id, rest = line.split(" ", 2)
        said[f"{agent} {id}"].add(rest)
        turn, kind = rest.split(" ")[:2]
        if kept.turns.get(f"{agent} {turn}") != kind:
            raise Failed(f"outcome {line} was told, and the log says {kept.turns.get(f'{agent} {turn}')}")
    _none(f"{key} has more outcomes than one: {sorted(texts)}" for key, texts in said.items() if len(texts) > 1)


def _both_sides(kept: Kept) -> None:
    """What is one commit is on disk in all logs, or in none; and once."""
    _none(f"message {key} was put {times} times" for key, times in kept.puts.items() if times > 1)
    _none(f"mail {key} has no letter, or several" for key in kept.mail if not kept.mail[key] == kept.letters[key] == 1)
    _none(f"letter {key} has no mail" for key in kept.letters if key not in kept.mail)
    _none(f"child {child} has no log" for child in kept.spawned if child not in kept.heads and not _going(kept, child))
    _none(f"{child} was born, or ended, twice" for child in kept.spawned if kept.spawned[child] > 1 or kept.ended[child] > 1)
    _none(
        f"{child} has ended, and its turn is open"
        for child in kept.ended
        if child in kept.heads and kept.heads[child].summary.open
    )
    _none(f"timer {key} fired {times} times" for key, times in kept.fired.items() if times > 1)
    _none(f"timer {key} fired, and put nothing" for key in kept.fired if kept.puts[key] != 1)


def _going(kept: Kept, child: str) -> bool:
    """Whether its parent is being deleted: it goes first, and has ended in the parent's log."""
    return child.startswith("brief-") and kept.ended[child] == 1


def _nothing_left(kept: Kept) -> None:
    _none(f"{id} is open or due in the end" for id, head in kept.heads.items() if head.summary.attention)
    _none(f"{id} has a timer in the end" for id, head in kept.heads.items() if head.summary.timer is not None)
    _none(
        f"message {key} was claimed {kept.claims[key]} times"
        for key in kept.puts
        if kept.claims[key] + (key in kept.dropped) != 1
    )
    _none(f"child {child} never ended" for child in kept.spawned if kept.ended[child] != 1)
    _none(f"the end of {task} was told {kept.ends_told[task]} times" for task in kept.background if kept.ends_told[task] != 1)
    _none(f"timer {key} never fired" for key in kept.timers if kept.fired[key] != 1)
    inputs = {key for key in kept.puts if key.startswith("lead-") and key.rpartition(" m")[2].isdigit()}
    _none(f"{key} has no completed turn" for key in inputs - kept.completed)
