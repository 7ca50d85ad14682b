"""The Inbox, case by case: what is pending, what is due, what a turn takes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from callboard.mailbox.inbox import Inbox
from callboard.mailbox.items import Fate, InboxState
from callboard.storage.events import (
    Cause,
    CommandRun,
    Completed,
    Event,
    InboxClaim,
    InboxDrop,
    InboxPut,
    Lane,
    LogForked,
    Route,
    TurnCancel,
    TurnEnd,
)
from callboard.storage.messages import USER, AgentSource, Message, Source, TextBlock


class Desk:
    """An inbox with its log: each record gets the next seq."""

    def __init__(self) -> None:
        self.inbox, self.log = Inbox(), list[tuple[int, Event]]()

    def add(self, *events: Event) -> int:
        for event in events:
            self.log.append((len(self.log) + 1, event))
            self.inbox.apply(len(self.log), 0, event)
        return len(self.log)

    def put(self, id: str, lane: Lane = "next-turn", source: Source = USER, **rest: Any) -> int:
        message = Message(id, "user", (TextBlock(id),), source)
        return self.add(InboxPut(message=message, lane=lane, **rest))

    def followup(self, id: str, **rest: Any) -> int:
        return self.put(id, **rest)

    def steer(self, id: str, **rest: Any) -> int:
        return self.put(id, "next-step", **rest)

    def inject(self, id: str, **rest: Any) -> int:
        return self.put(id, "next-step", wake=False, **rest)

    def end(self, turn: int = 1, *, park: bool = False) -> int:
        return self.add(TurnEnd(turn=turn, reason=Completed(), park=park))

    def cancel(self, *ids: str, keep: bool = False) -> int:
        return self.add(TurnCancel(cause=Cause("user"), turn=1, ids=ids, keep_inbox=keep))

    def take(self, *, first: bool = True, limit: int = 64, now: int = 0) -> list[str]:
        if first:
            self.inbox.reserve_prompt(now)
        ids = tuple(item.id for item in self.inbox.reserve_boundary(first, limit, now))
        if ids:
            self.add(InboxClaim(turn=1, ids=ids))
        return list(ids)

    @property
    def pending(self) -> list[str]:
        return [item.id for item in self.inbox.pending()]

    @property
    def parked(self) -> list[str]:
        return [item.id for item in self.inbox.pending() if item.parked]


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_c032_an_inject_does_not_wake_and_enters_before_the_next_prompt(desk: Desk) -> None:
    desk.inject("i")
    assert not desk.inbox.due(0)
    desk.followup("p")
    assert desk.inbox.due(0)
    assert desk.take() == ["i", "p"]
    assert not desk.inbox.due(0) and desk.pending == []


def test_c033_a_steer_wakes_an_idle_agent(desk: Desk) -> None:
    desk.steer("s")
    assert desk.inbox.due(0)
    assert desk.inbox.reserve_prompt(0) is None
    assert desk.take() == ["s"]


def test_c034_two_steers_are_one_claim_in_order(desk: Desk) -> None:
    desk.steer("a")
    desk.steer("b")
    assert desk.take() == ["a", "b"]


def test_c037_a_follow_up_waits_for_its_own_turn(desk: Desk) -> None:
    desk.followup("one")
    desk.inbox.reserve_prompt(0)
    desk.followup("two")
    desk.steer("s")
    assert [item.id for item in desk.inbox.reserve_boundary(True, 64)] == ["s", "one"]
    assert not desk.inbox.steering() and [item.id for item in desk.inbox.reserve_boundary(False, 64)] == []


def test_c038_withdraw_takes_a_pending_one_once(desk: Desk) -> None:
    desk.followup("a")
    event = desk.inbox.withdraw("a")
    assert event is not None and event == InboxDrop(ids=("a",), why="withdrawn")
    desk.add(event)
    assert desk.inbox.withdraw("a") is None
    assert desk.inbox.withdraw("never") is None
    assert desk.inbox.fate("a") == Fate("dropped", 1, why="withdrawn")


def test_c039_a_replacement_keeps_the_place_under_a_new_id(desk: Desk) -> None:
    for id in ("a", "b", "c"):
        desk.followup(id)
    new = InboxPut(message=Message("b2", "user"), lane="next-step", wake=False)
    events = desk.inbox.replace("b", new)
    assert events is not None
    assert events[0] == InboxDrop(ids=("b",), why="replaced")
    assert (events[1].replaces, events[1].lane, events[1].wake) == ("b", "next-turn", True)
    desk.add(*events)
    assert desk.pending == ["a", "b2", "c"]
    desk.followup("d")
    assert desk.pending == ["a", "b2", "c", "d"]
    assert desk.inbox.fate("b") == Fate("dropped", 2, why="replaced")
    loaded = Inbox.load(desk.inbox.dump())
    assert [item.id for item in loaded.pending()] == ["a", "b2", "c", "d"]


def test_c039_a_replacement_is_answered_where_the_first_version_came_from(desk: Desk) -> None:
    desk.followup("a", route=Route("irc", "room"), sender="ann", context={"scope": "x"}, not_before=7)
    plain = desk.inbox.replace("a", InboxPut(message=Message("b", "user"), lane="next-turn"))
    assert plain is not None
    assert (plain[1].route, plain[1].sender, plain[1].context, plain[1].not_before) == (
        Route("irc", "room"),
        "ann",
        {"scope": "x"},
        7,
    )
    own = desk.inbox.replace("a", InboxPut(message=Message("b", "user"), lane="next-turn", route=Route("web", "1"), not_before=0))
    assert own is not None and (own[1].route, own[1].not_before) == (Route("web", "1"), 0)


def test_c039_a_place_is_kept_over_a_snapshot_between_drop_and_put(desk: Desk) -> None:
    desk.followup("a")
    desk.followup("b")
    desk.add(InboxDrop(ids=("a",), why="replaced"))
    desk.inbox = Inbox.load(desk.inbox.dump())
    desk.followup("a2", replaces="a")
    assert desk.pending == ["a2", "b"]


def test_c039_a_replacement_in_another_lane_goes_to_its_end(desk: Desk) -> None:
    desk.followup("a")
    desk.steer("s")
    desk.add(InboxDrop(ids=("a",), why="replaced"))
    desk.steer("a2", replaces="a")
    assert desk.pending == ["s", "a2"]


def test_c039_a_reserved_or_claimed_one_is_neither_replaced_nor_withdrawn(desk: Desk) -> None:
    desk.followup("a")
    new = InboxPut(message=Message("b", "user"), lane="next-turn")
    desk.inbox.reserve_prompt(0)
    assert desk.inbox.withdraw("a") is None and desk.inbox.replace("a", new) is None
    desk.add(InboxClaim(turn=1, ids=("a",)))
    assert desk.inbox.withdraw("a") is None and desk.inbox.replace("a", new) is None
    assert desk.inbox.replace("never", new) is None


def test_c040_an_id_is_known_while_pending_and_after_it_was_taken(desk: Desk) -> None:
    assert desk.inbox.seen("a") is None
    seq = desk.followup("a")
    assert desk.inbox.seen("a") == seq
    desk.take()
    assert desk.inbox.seen("a") == seq
    assert desk.inbox.fate("a") == Fate("claimed", seq, turn=1)


def test_c040_a_second_put_of_a_pending_id_changes_nothing(desk: Desk) -> None:
    seq = desk.followup("a")
    desk.steer("a")
    assert [(item.seq, item.lane) for item in desk.inbox.pending()] == [(seq, "next-turn")]


def test_c250_the_id_of_a_command_is_known(desk: Desk) -> None:
    seq = desk.add(CommandRun(id="stop", name="/stop"))
    assert desk.inbox.seen("stop") == seq
    assert desk.inbox.fate("stop") == Fate("command", seq)


def test_c250_a_command_with_a_turn_of_its_own_was_claimed(desk: Desk) -> None:
    seq = desk.followup("help")
    desk.take()
    desk.add(CommandRun(id="help", name="/help"))
    assert desk.inbox.fate("help") == Fate("claimed", seq, turn=1)


def test_c250_ids_that_are_on_disk_are_forgotten_and_no_others(desk: Desk) -> None:
    desk.followup("a")
    desk.followup("b")
    desk.take()
    last = desk.add(InboxDrop(ids=("b",), why="cancelled"))
    desk.followup("c")
    desk.inbox.forget_ids(last - 1)
    assert (desk.inbox.seen("a"), desk.inbox.seen("b"), desk.inbox.seen("c")) == (None, 2, 5)
    desk.inbox.forget_ids(last)
    assert (desk.inbox.seen("b"), desk.inbox.seen("c")) == (None, 5)


def test_c250_a_fork_knows_no_ids_and_holds_nothing(desk: Desk) -> None:
    desk.followup("a")
    desk.take()
    desk.followup("b")
    desk.add(LogForked(agent="f", name="n", source="o", at=3))
    assert desk.inbox.seen("a") is None and desk.inbox.seen("b") is None and desk.pending == []


def test_c044_a_lane_is_full_at_its_limit_and_the_other_is_not(desk: Desk) -> None:
    assert desk.inbox.check_full("next-turn", 0)
    desk.followup("a")
    assert not desk.inbox.check_full("next-turn", 2)
    desk.followup("b")
    assert desk.inbox.check_full("next-turn", 2) and not desk.inbox.check_full("next-step", 2)


def test_c251_seventy_steers_and_a_prompt_are_two_boundaries(desk: Desk) -> None:
    for n in range(70):
        desk.steer(f"s{n}")
    desk.followup("p")
    assert desk.take() == [*(f"s{n}" for n in range(64)), "p"]
    assert desk.inbox.steering()
    assert desk.inbox.reserved == set()
    assert desk.take(first=False) == [f"s{n}" for n in range(64, 70)]
    assert not desk.inbox.steering()


def test_c049_what_a_cancel_keeps_is_parked_until_the_next_wake(desk: Desk) -> None:
    desk.followup("a")
    desk.take()
    desk.followup("b")
    desk.cancel(keep=True)
    desk.end()
    assert desk.parked == ["b"] and not desk.inbox.due(0) and desk.inbox.fate("b") == Fate("parked", 3)
    desk.followup("c")
    assert desk.parked == []
    assert desk.take() == ["b"]
    assert desk.take() == ["c"]


def test_c254_an_inject_unparks_nothing(desk: Desk) -> None:
    desk.followup("b")
    desk.end(park=True)
    desk.inject("i")
    assert desk.parked == ["b"] and not desk.inbox.due(0)


def test_what_does_not_release_runs_past_what_is_parked(desk: Desk) -> None:
    desk.followup("b")
    desk.steer("s")
    desk.end(park=True)
    desk.followup("/history", releases=False)
    assert desk.parked == ["s", "b"] and desk.inbox.due(0)
    assert desk.take() == ["/history"] and not desk.inbox.due(0)
    desk.followup("c")
    assert desk.take() == ["s", "b"] and desk.take() == ["c"]


def test_c254_an_end_without_park_parks_nothing(desk: Desk) -> None:
    desk.followup("b")
    desk.end(park=False)
    assert desk.parked == [] and desk.inbox.due(0)


def test_c255_agent_mail_is_never_parked_and_runs_without_the_persons_input(desk: Desk) -> None:
    desk.followup("B")
    desk.steer("S")
    desk.followup("M", source=AgentSource("other"))
    desk.end(park=True)
    assert desk.parked == ["S", "B"] and desk.inbox.due(0)
    assert desk.take() == ["M"]
    assert not desk.inbox.steering() and not desk.inbox.due(0)
    desk.steer("wake")
    assert desk.take() == ["S", "wake", "B"]


def test_c061_a_cancel_drops_what_it_names(desk: Desk) -> None:
    desk.steer("s")
    desk.followup("a")
    desk.followup("b")
    assert desk.inbox.cancel_ids() == ("s", "a", "b")
    assert desk.inbox.cancel_ids(keep={"a"}) == ("s", "b")
    desk.cancel("s", "b")
    assert desk.pending == ["a"] and desk.inbox.fate("s") == Fate("dropped", 1, why="cancelled")


def test_c047_an_idle_cancel_drops_everything_or_writes_nothing(desk: Desk) -> None:
    assert desk.inbox.cancel_ids() == ()
    desk.inject("i")
    desk.followup("b")
    desk.end(park=True)
    assert desk.inbox.cancel_ids() == ("i", "b")


def test_c031_reservations_are_given_back_by_forgetting_them(desk: Desk) -> None:
    desk.inject("i")
    desk.followup("a")
    prompt = desk.inbox.reserve_prompt(0)
    assert prompt is not None
    desk.inbox.reserve_boundary(True, 64)
    assert desk.inbox.reserved == {"i", "a"} and not desk.inbox.due(0)
    assert desk.inbox.cancel_ids() == ("i", "a")
    desk.inbox.release()
    assert desk.inbox.reserved == set() and desk.inbox.due(0) and desk.pending == ["i", "a"]


def test_the_turn_takes_the_route_of_its_prompt_or_of_the_first_steer_that_has_one(desk: Desk) -> None:
    desk.steer("s1")
    desk.steer("s2", route=Route("irc", "room"))
    assert desk.inbox.turn_route(desk.inbox.reserve_prompt(0)) == Route("irc", "room")
    desk.followup("p", route=Route("mail", "ann"))
    assert desk.inbox.turn_route(desk.inbox.reserve_prompt(0)) == Route("mail", "ann")


def test_what_is_not_yet_due_waits_for_its_time(desk: Desk) -> None:
    desk.followup("later", not_before=100)
    desk.followup("latest", not_before=200)
    assert not desk.inbox.due(99) and desk.inbox.next_wake(99) == 100
    assert desk.inbox.due(100) and desk.inbox.next_wake(100) == 200
    assert desk.take(now=100) == ["later"]
    desk.end(park=True)
    assert desk.inbox.next_wake(100) is None
    desk.followup("now")
    assert desk.take(now=100) == ["now"] and desk.take(now=200) == ["latest"]


def test_a_snapshot_keeps_what_is_pending(desk: Desk) -> None:
    desk.steer("s", route=Route("irc", "room"), context={"scope": "x"}, sender="ann")
    desk.followup("later", not_before=100)
    desk.cancel(keep=True)
    packed = msgspec.msgpack.encode(desk.inbox.dump())
    loaded = Inbox.load(msgspec.msgpack.decode(packed, type=InboxState))
    assert loaded.pending() == desk.inbox.pending() and loaded.dump() == desk.inbox.dump()
    assert [item.parked for item in loaded.pending()] == [True, True]
