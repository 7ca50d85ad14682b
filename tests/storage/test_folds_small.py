"""Usage, children, outbox, timers and approvals; and what all folds have in common."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_script import fold, text

from callboard.storage import events as e
from callboard.storage import messages as m
from callboard.storage.folds import (
    Approvals,
    ApprovalsState,
    Children,
    ChildrenState,
    Headers,
    HeadersState,
    Outbox,
    OutboxState,
    Surface,
    SurfaceState,
    Timers,
    TimersState,
    UsageFold,
    UsageState,
)
from callboard.storage.folds.children import KEEP, Child
from callboard.storage.folds.outbox import KEEP as KEEP_LOST
from callboard.storage.folds.outbox import counted

FORKED = e.LogForked(agent="f", name="n", source="a", at=1)
ENDED = e.TurnEnd(turn=1, reason=e.Completed())
FAILURE = m.Failure("SERVER")


# -- usage


def test_c016_usage_is_that_of_turns_plugins_and_ended_children() -> None:
    usage = UsageFold()
    call = {"route": "acme:small", "usage": {"input": 100}}
    fold(
        usage,
        [
            e.TurnEnd(turn=1, reason=e.Completed(), usage=m.Usage(1, 2)),
            e.TurnEnd(turn=2, reason=e.Interrupted(), usage=m.Usage(10)),
            e.ChildEnded(child="c", reason=e.Completed(), usage=m.Usage(1000)),
            e.Note(kind="model-call", data=call),
            e.Note(kind="other", data=call),
        ],
    )
    assert usage.own == m.Usage(111, 2) and usage.children == m.Usage(1000) and usage.total == m.Usage(1111, 2)
    fold(usage, [FORKED])
    assert usage.total == m.NO_USAGE


@pytest.mark.parametrize("data", [None, "x", {}, {"usage": None}, {"usage": {"input": "many"}}, [1]])
def test_a_note_that_makes_no_sense_costs_nothing(data: Any) -> None:
    usage: UsageFold = fold(UsageFold(), [e.Note(kind="model-call", data=data)])
    assert usage.total == m.NO_USAGE


# -- children


def test_c206_children_are_known_by_id_and_by_call() -> None:
    children = Children()
    fold(children, [e.ChildSpawned(child="a/c1", name="w", call_id="c1", task="t1"), e.ChildSpawned(child="b", name="w")])
    assert children.by_call("c1") == children.get("a/c1") == Child("a/c1", "w", "c1", "t1")
    assert [child.id for child in children.alive()] == ["a/c1", "b"]
    fold(children, [e.ChildEnded(child="a/c1", reason=e.Blocked("no")), e.ChildEnded(child="never", reason=e.Completed())])
    assert [child.id for child in children.alive()] == ["b"]
    ended = children.by_call("c1")
    assert ended is not None and ended.ended == e.Blocked("no") and not ended.alive
    assert children.by_call("c2") is None and children.get("c2") is None


def test_c272_children_of_the_turn_are_kept_and_older_ones_are_few() -> None:
    many = [e.ChildSpawned(child=str(n), name="w") for n in range(KEEP + 5)]
    ends = [e.ChildEnded(child=str(n), reason=e.Completed()) for n in range(KEEP + 5)]
    children: Children = fold(Children(), [*many, *ends])
    assert len(children.all()) == KEEP + 5
    fold(children, [e.ChildSpawned(child="lives", name="w"), ENDED])
    assert len(children.all()) == KEEP + 1 and children.get("4") is None and children.get("5") is not None


# -- outbox


def reply(delivery: str) -> e.OutboxPut:
    return e.OutboxPut(delivery=delivery, route=e.Route("irc", "room"), content=(m.TextBlock("hi"),), turn=1)


def test_c198_unsent_replies_keep_their_order_until_each_is_closed() -> None:
    outbox: Outbox = fold(Outbox(), [reply("a"), reply("b"), reply("c"), e.OutboxSent(delivery="b"), e.OutboxSent(delivery="x")])
    assert [unsent.entry.delivery for unsent in outbox.unsent()] == ["a", "c"] and len(outbox) == 2
    fold(outbox, [e.OutboxFailed(delivery="a", failure=FAILURE), e.OutboxFailed(delivery="x", failure=FAILURE)])
    assert [unsent.entry.delivery for unsent in outbox.unsent()] == ["c"]


def test_processes_that_may_have_ended_in_a_delivery_are_counted_as_long_as_it_is_unsent() -> None:
    outbox: Outbox = fold(Outbox(), [reply("a"), counted("a", 2), counted("x", 1)])
    assert (outbox.ends("a"), outbox.ends("x"), len(outbox)) == (2, 0, 1)
    for data in (None, "a", {"delivery": "a"}, {"delivery": ["a"], "ends": 4}, {"delivery": "a", "ends": "4"}):
        fold(outbox, [e.Note(kind="callboard/delivery", data=data)])
    assert Outbox.load(outbox.dump()).ends("a") == 2
    fold(outbox, [e.Note(kind="mine", data={"delivery": "a", "ends": 5}), e.OutboxSent(delivery="a"), counted("a", 3)])
    assert outbox.ends("a") == 0 and len(outbox) == 0


def test_c195_the_newest_lost_replies_are_remembered() -> None:
    outbox = Outbox()
    for n in range(KEEP_LOST + 3):
        fold(outbox, [reply(str(n)), e.OutboxFailed(delivery=str(n), failure=FAILURE)])
    assert [lost.entry.delivery for lost in outbox.lost] == [str(n) for n in range(3, KEEP_LOST + 3)]
    assert outbox.lost[0].failure == FAILURE


# -- timers


def timer(id: str, due: int, every: float | None = None) -> e.TimerSet:
    return e.TimerSet(id=id, due=due, message=text(id), every=every)


def test_c178_a_timer_is_due_once_and_gone_when_it_has_fired() -> None:
    timers: Timers = fold(Timers(), [timer("b", 2000), timer("a", 1000)])
    assert timers.next_due == 1000 and timers.due(999) == ()
    assert [each.id for each in timers.due(2000)] == ["a", "b"]
    timers.apply(2, 1000, e.TimerFired(id="a"))
    assert timers.next_due == 2000 and timers.get("a") is None
    timers.apply(3, 1000, e.TimerCancelled(id="b"))
    assert timers.next_due is None and timers.all() == ()


def test_c178_a_repeating_timer_skips_what_it_missed() -> None:
    timers: Timers = fold(Timers(), [timer("a", 1000, every=1.0)])
    timers.apply(1, 1000, e.TimerFired(id="a"))
    assert timers.next_due == 2000
    timers.apply(2, 7500, e.TimerFired(id="a", late=True))
    assert timers.next_due == 8000
    timers.apply(3, 7600, e.TimerFired(id="a"))
    assert timers.next_due == 9000
    again = timers.get("a")
    assert again is not None and again.fired == 3


# -- approvals


def question(id: str, call: str, expires: int | None = None) -> e.ApprovalAsked:
    return e.ApprovalAsked(id=id, call_id=call, question="May I?", expires=expires)


def test_c119_a_verdict_belongs_to_the_call_it_was_asked_about() -> None:
    approvals: Approvals = fold(Approvals(), [question("q1", "c1", 5000), question("q2", "c2", 4000), question("q3", "c3")])
    assert approvals.next_expiry == 4000
    asked = approvals.by_call("c2")
    assert asked is not None and (asked.id, asked.asked) == ("q2", 1001)
    allow = e.ApprovalAnswered(id="q2", verdict="allow", by="ann")
    fold(approvals, [allow, e.ApprovalAnswered(id="never", verdict="deny")])
    assert approvals.verdicts["c2"].answer == allow and approvals.by_call("c2") is None
    assert list(approvals.open) == ["q1", "q3"] and approvals.next_expiry == 5000


@pytest.mark.parametrize("end", [e.StepEnd(turn=1, step=1), ENDED, FORKED])
def test_c136_a_verdict_does_not_outlive_its_step(end: e.Event) -> None:
    approvals: Approvals = fold(
        Approvals(), [question("q", "c1"), e.ApprovalAnswered(id="q", verdict="allow"), question("r", "c1"), end]
    )
    assert approvals.verdicts == {} and approvals.open == {}


# -- all of them

_ids = st.sampled_from(["a", "b", "c"])
_usages = st.builds(m.Usage, st.integers(0, 5))
_events: st.SearchStrategy[e.Event] = st.one_of(
    st.builds(e.TurnEnd, turn=st.just(1), reason=st.just(e.Completed()), usage=_usages),
    st.builds(e.ChildSpawned, child=_ids, name=st.just("w"), call_id=st.none() | _ids),
    st.builds(e.ChildEnded, child=_ids, reason=st.just(e.Completed()), usage=_usages),
    st.builds(reply, _ids),
    st.builds(e.OutboxSent, delivery=_ids),
    st.builds(e.OutboxFailed, delivery=_ids, failure=st.just(FAILURE)),
    st.builds(timer, _ids, st.integers(0, 5000), st.sampled_from([None, 0.0, 0.5])),
    st.builds(e.TimerFired, id=_ids),
    st.builds(e.TimerCancelled, id=_ids),
    st.builds(question, _ids, _ids, st.none() | st.integers(0, 5)),
    st.builds(e.ApprovalAnswered, id=_ids, verdict=st.just("allow")),
    st.just(e.StepEnd(turn=1, step=1)),
    st.just(e.Note(kind="model-call", data={"usage": {"input": 1}})),
    st.just(FORKED),
)


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (UsageFold, UsageState),
        (Children, ChildrenState),
        (Outbox, OutboxState),
        (Timers, TimersState),
        (Approvals, ApprovalsState),
    ],
)
@given(events=st.lists(_events, max_size=30), at=st.integers(0, 30))
def test_c142_any_fold_from_any_snapshot_is_the_fold_of_the_whole(kind: Any, state: Any, events: list[e.Event], at: int) -> None:
    whole = fold(kind(), events)
    dumped = msgspec.msgpack.encode(fold(kind(), events[:at]).dump())
    rest = fold(kind.load(msgspec.msgpack.decode(dumped, type=state)), events[at:], first=len(events[:at]))
    assert rest.dump() == whole.dump()


@pytest.mark.parametrize("kind", [UsageFold, Children, Outbox, Timers, Approvals])
@given(events=st.lists(_events, max_size=30))
def test_c277_a_fork_begins_with_nothing(kind: Any, events: list[e.Event]) -> None:
    forked = fold(kind(), [*events, FORKED])
    assert forked.dump() == kind().dump()
    called = fold(kind(), events)
    called.fork()
    assert called.dump() == kind().dump()


@pytest.mark.parametrize(("kind", "state"), [(Surface, SurfaceState), (Headers, HeadersState)])
def test_an_empty_fold_is_its_own_snapshot(kind: Any, state: Any) -> None:
    assert kind.load(state()).dump() == kind().dump()
