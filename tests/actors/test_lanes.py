"""The order in which replies go out, as a property: one at a time for each place, in order, nobody waits for another (C198)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.channels.lanes import LaneQueue, Pending, Place
from callboard.storage.events import OutboxPut, Route

PLACES = ["a", "b", "c"]


def pending(number: int, chat: str) -> Pending:
    return Pending("agent", number, 0, OutboxPut(delivery=str(number), route=Route(chat=chat), content=(), turn=1))


MOVES = st.lists(
    st.tuples(st.sampled_from(["add", "take", "done", "retry", "hold", "free"]), st.integers(0, 2), st.integers(0, 3))
)


@given(MOVES)
def test_c198_each_place_is_served_in_order_one_at_a_time(moves: list[tuple[str, int, int]]) -> None:
    queue, number, now = LaneQueue(), 0, 0.0
    waiting: dict[str, list[int]] = {place: [] for place in PLACES}
    moving: dict[str, Pending] = {}
    held: set[Place] = set()
    later: dict[str, float] = {}
    for move, which, amount in moves:
        chat = PLACES[which]
        if move == "add":
            number += 1
            assert queue.add(pending(number, chat)) and not queue.add(pending(number, chat))
            waiting[chat].append(number)
        elif move == "take":
            now += amount
            item = queue.take(now)
            free = [c for c in PLACES if waiting[c] and c not in moving and (c, None) not in held and later.get(c, 0) <= now]
            assert (item is not None) == bool(free), "what can go does not wait for others"
            if item is not None:
                assert item.put.route.chat in free and item.seq == waiting[item.put.route.chat][0], "in order"
                moving[item.put.route.chat] = item
                later.pop(item.put.route.chat, None)
        elif move == "done" and chat in moving:
            queue.done(moving.pop(chat))
            waiting[chat].pop(0)
        elif move == "retry" and chat in moving:
            later[chat] = now + amount
            queue.retry(moving.pop(chat), later[chat])
        elif move == "hold":
            empty = not waiting[chat] and (chat, None) not in held
            assert queue.hold((chat, None)) is empty
            held |= {(chat, None)} if empty else set()
        elif move == "free" and (chat, None) in held:
            held.discard((chat, None))
            queue.release((chat, None))
    assert len(queue) == sum(map(len, waiting.values()))
    for place in held:
        queue.release(place)
    for item in moving.values():
        queue.retry(item, now)
    drained: dict[str, list[int]] = {place: [] for place in PLACES}
    while (item := queue.take(now + 10)) is not None:
        drained[item.put.route.chat].append(item.seq)
        queue.done(item)
    assert drained == waiting and len(queue) == 0, "nothing is lost, nothing is doubled"


def test_places_take_turns() -> None:
    queue = LaneQueue()
    for number, chat in enumerate(["a", "a", "a", "b", "c"]):
        queue.add(pending(number, chat))
    order: list[int] = []
    while (item := queue.take(0)) is not None:
        order.append(item.seq)
        queue.done(item)
    assert order == [0, 3, 4, 1, 2]


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2)), max_size=12), st.integers(0, 3), st.integers(0, 3))
def test_replies_of_an_agent_that_is_no_more_are_dropped_and_all_others_go(
    replies: list[tuple[str, int]], taken: int, retried: int
) -> None:
    queue = LaneQueue()
    for number, (agent, which) in enumerate(replies):
        put = OutboxPut(delivery=str(number), route=Route(chat=PLACES[which]), content=(), turn=1)
        queue.add(Pending(agent, number, 0, put))
    moving = [item for _ in range(taken) if (item := queue.take(0)) is not None]
    for item in moving[:retried]:
        queue.retry(item, 1)
    queue.forget("a")
    for item in moving[retried:]:
        queue.done(item)
    left: list[int] = []
    while (item := queue.take(2)) is not None:
        assert item.agent == "b"
        left.append(item.seq)
        queue.done(item)
    done = {item.seq for item in moving[retried:]}
    assert sorted(left) == [n for n, (agent, _) in enumerate(replies) if agent == "b" and n not in done]
    assert len(queue) == 0 and queue.next_at is None


def test_threads_of_a_chat_are_places_of_their_own_and_messages_are_not() -> None:
    queue = LaneQueue()
    for number, route in enumerate([Route(chat="a", message="1"), Route(chat="a", message="2"), Route(chat="a", thread="t")]):
        queue.add(Pending("agent", number, 0, OutboxPut(delivery=str(number), route=route, content=(), turn=1)))
    first, second = queue.take(0), queue.take(0)
    assert first is not None and second is not None and queue.take(0) is None
    assert (first.seq, second.seq) == (0, 2)
