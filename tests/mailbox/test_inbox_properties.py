"""The Inbox under any sequence of operations, against a plain model; and any log at all."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from callboard.mailbox.inbox import Inbox
from callboard.mailbox.items import InboxState
from callboard.storage import events as e
from callboard.storage.messages import USER, AgentSource, Message

LANES: list[e.Lane] = ["next-step", "next-turn"]


class Entry:
    """One message in the model: what was put, and when, and whether it is parked."""

    def __init__(self, put: e.InboxPut) -> None:
        self.put, self.id = put, put.message.id
        self.parked = False

    @property
    def may_park(self) -> bool:
        return self.put.wake and self.put.message.source == USER


class Model(RuleBasedStateMachine):
    """Random senders, turns, cancels and restarts; the model keeps two plain lists."""

    @initialize()
    def start(self) -> None:
        self.log: list[e.Event] = []
        self.inbox = Inbox()
        self.lanes: dict[e.Lane, list[Entry]] = {"next-step": [], "next-turn": []}
        self.claims: list[str] = []
        self.put_seqs: dict[str, int] = {}
        self.now = self.cancelled = 0
        self.prompt: str | None = None
        self.held: list[str] = []
        self.in_turn = self.first = False

    def add(self, *events: e.Event) -> None:
        for event in events:
            self.log.append(event)
            self.inbox.apply(len(self.log), 0, event)

    def remove(self, ids: Any) -> None:
        for lane in LANES:
            self.lanes[lane] = [entry for entry in self.lanes[lane] if entry.id not in ids]

    def entries(self) -> list[Entry]:
        return [*self.lanes["next-step"], *self.lanes["next-turn"]]

    def takeable(self, lane: e.Lane) -> list[Entry]:
        return [
            entry
            for entry in self.lanes[lane]
            if not entry.parked and entry.id not in self.held and (entry.put.not_before or 0) <= self.now
        ]

    def park(self) -> None:
        for entry in self.entries():
            entry.parked = entry.may_park

    def woken(self, put: e.InboxPut) -> None:
        for entry in self.entries():
            entry.parked = entry.parked and not (put.wake and put.releases)

    # -- what happens

    @rule(count=st.integers(1, 4), lane=st.sampled_from(LANES))
    def send_several(self, count: int, lane: e.Lane) -> None:
        for _ in range(count):
            self.send(lane, False, False, None, True)

    @rule(
        lane=st.sampled_from(LANES),
        mail=st.booleans(),
        inject=st.booleans(),
        later=st.sampled_from([None, None, None, 5]),
        releases=st.sampled_from([True, True, False]),
    )
    def send(self, lane: e.Lane, mail: bool, inject: bool, later: int | None, releases: bool) -> None:
        source = AgentSource("other") if mail else USER
        message = Message(f"m{len(self.log)}", "user", source=source)
        not_before = None if later is None else self.now + later
        wake = not (inject and lane == "next-step")
        put = e.InboxPut(message=message, lane=lane, wake=wake, not_before=not_before, releases=releases)
        self.add(put)
        self.put_seqs[message.id] = len(self.log)
        self.lanes[lane].append(Entry(put))
        self.woken(put)

    @rule(data=st.data())
    def send_again(self, data: st.DataObject) -> None:
        if self.put_seqs:
            id = data.draw(st.sampled_from(sorted(self.put_seqs)))
            assert self.inbox.seen(id) == self.put_seqs[id]

    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.put_seqs) or ["none"]))
        event = self.inbox.withdraw(id)
        pending = id in [entry.id for entry in self.entries()]
        assert (event is not None) == (pending and id not in self.held)
        if event is not None:
            self.add(event)
            self.remove(event.ids)

    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.put_seqs) or ["none"]))
        new = Message(f"r{len(self.log)}", "user")
        events = self.inbox.replace(id, e.InboxPut(message=new, lane="next-turn"))
        if events is None:
            return
        self.add(*events)
        self.put_seqs[new.id] = len(self.log)
        entries = self.lanes[events[1].lane]
        entries[[entry.id for entry in entries].index(id)] = Entry(events[1])
        self.woken(events[1])

    @rule(passed=st.integers(1, 5))
    def time_passes(self, passed: int) -> None:
        self.now += passed

    @precondition(lambda self: not self.in_turn)
    @rule(limits=st.lists(st.integers(1, 3), max_size=3), decide=st.booleans())
    def start_turn(self, limits: list[int], decide: bool) -> None:
        due = self.inbox.due(self.now)
        assert due == any(entry.put.wake for lane in LANES for entry in self.takeable(lane))
        if due:
            expected = next((entry.id for entry in self.takeable("next-turn") if entry.put.wake), None)
            prompt = self.inbox.reserve_prompt(self.now)
            self.prompt = None if prompt is None else prompt.id
            assert self.prompt == expected
            self.held = [] if expected is None else [expected]
            self.in_turn = self.first = True
            self.add(e.TurnStart(turn=1))
            for limit in limits:
                self.take(limit, True)
            if limits:
                self.take(2, decide)

    @precondition(lambda self: self.in_turn)
    @rule(limit=st.integers(0, 3), decide=st.booleans())
    def boundary(self, limit: int, decide: bool) -> None:
        self.take(limit, decide)

    def take(self, limit: int, decide: bool) -> None:
        expected = [entry.id for entry in self.takeable("next-step")[:limit]]
        if self.first and self.prompt is not None:
            expected.append(self.prompt)
        taken = tuple(item.id for item in self.inbox.reserve_boundary(self.first, limit, self.now))
        assert list(taken) == expected
        self.held += [id for id in taken if id not in self.held]
        assert self.inbox.reserved == set(self.held)
        if not decide:
            self.inbox.release()
            self.in_turn, self.held, self.prompt = False, [], None
            return
        if taken:
            self.add(e.InboxClaim(turn=1, ids=taken))
        self.claims += taken
        self.remove(taken)
        self.held = [id for id in self.held if id not in taken]
        self.first = False
        assert self.inbox.steering(self.now) == bool(self.takeable("next-step"))

    @precondition(lambda self: self.in_turn)
    @rule(park=st.booleans())
    def end_turn(self, park: bool) -> None:
        self.add(e.TurnEnd(turn=1, reason=e.Completed(), park=park))
        self.inbox.release()
        self.in_turn, self.held, self.prompt = False, [], None
        if park:
            self.park()

    @precondition(lambda self: len(self.log) > self.cancelled + 6)
    @rule(keep=st.booleans())
    def cancel(self, keep: bool) -> None:
        ids = () if keep else self.inbox.cancel_ids()
        if not keep:
            assert list(ids) == [entry.id for entry in self.entries()]
        self.add(e.TurnCancel(cause=e.Cause("user"), ids=ids, keep_inbox=keep))
        self.cancelled = len(self.log)
        self.remove(ids)
        self.park()
        self.inbox.release()
        self.in_turn, self.held, self.prompt = False, [], None

    @precondition(lambda self: not self.in_turn)
    @rule()
    def restart(self) -> None:
        again = Inbox()
        for seq, event in enumerate(self.log, 1):
            again.apply(seq, 0, event)
        self.inbox = again

    # -- what holds

    @invariant()
    def c043_pending_is_the_fold(self) -> None:
        items = self.inbox.pending()
        assert [(item.id, item.parked) for item in items] == [(entry.id, entry.parked) for entry in self.entries()]
        for lane in LANES:
            assert self.inbox.pending(lane) == tuple(item for item in items if item.lane == lane)
            assert not self.inbox.check_full(lane, len(self.lanes[lane]) + 1)
            assert self.inbox.check_full(lane, len(self.lanes[lane]))

    @invariant()
    def c045_no_message_is_claimed_twice(self) -> None:
        assert len(set(self.claims)) == len(self.claims)

    @invariant()
    def c254_what_is_due_is_what_is_due_after_a_restart(self) -> None:
        packed = msgspec.msgpack.encode(self.inbox.dump())
        loaded = Inbox.load(msgspec.msgpack.decode(packed, type=InboxState))
        assert loaded.pending() == self.inbox.pending()
        if not self.held:
            assert loaded.due(self.now) == self.inbox.due(self.now)
            assert loaded.next_wake(self.now) == self.inbox.next_wake(self.now)

    @invariant()
    def next_wake_is_the_earliest_still_to_come(self) -> None:
        times = [
            entry.put.not_before
            for entry in self.entries()
            if entry.put.not_before is not None and entry.put.wake and not entry.parked and entry.id not in self.held
        ]
        assert self.inbox.next_wake(self.now) == min((time for time in times if time > self.now), default=None)


TestModel = Model.TestCase
TestModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


_ids = st.sampled_from(["a", "b", "c"])
_some = st.lists(_ids, max_size=2).map(tuple)
_any_event: st.SearchStrategy[e.Event] = st.one_of(
    st.builds(
        e.InboxPut,
        message=st.builds(Message, _ids, st.just("user")),
        lane=st.sampled_from(LANES),
        wake=st.booleans(),
        replaces=st.none() | _ids,
        not_before=st.none() | st.integers(0, 5),
        releases=st.booleans(),
    ),
    st.builds(e.InboxClaim, turn=st.just(1), ids=_some),
    st.builds(e.InboxDrop, ids=_some, why=st.sampled_from(["withdrawn", "cancelled", "replaced"])),
    st.builds(e.TurnCancel, cause=st.just(e.Cause("user")), ids=_some),
    st.builds(e.TurnEnd, turn=st.just(1), reason=st.just(e.Completed()), park=st.booleans()),
    st.builds(e.CommandRun, id=_ids, name=st.just("/x")),
    st.just(e.LogForked(agent="f", name="n", source="a", at=1)),
)


@given(st.lists(_any_event, max_size=30), st.integers(0, 30))
def test_c142_any_log_folds_whole_and_from_any_snapshot_to_the_same(events: list[e.Event], at: int) -> None:
    whole, before = Inbox(), Inbox()
    for seq, event in enumerate(events):
        whole.apply(seq, 0, event)
        if seq < at:
            before.apply(seq, 0, event)
    packed = msgspec.msgpack.encode(before.dump())
    rest = Inbox.load(msgspec.msgpack.decode(packed, type=InboxState))
    for seq, event in enumerate(events):
        if seq >= at:
            rest.apply(seq, 0, event)
    assert rest.pending() == whole.pending() and rest.dump() == whole.dump()
    assert (rest.due(3), rest.next_wake(3)) == (whole.due(3), whole.next_wake(3))
    assert len(whole) == len(whole.pending()) and not whole.reserved
