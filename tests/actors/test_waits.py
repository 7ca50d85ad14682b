"""The wait graph: cycles are found before anybody waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.waits import Edge, EdgeKind, WaitGraph
from callboard.storage.errors import AskCycle

KINDS: list[EdgeKind] = ["ask", "delegate", "wait_idle", "dispose", "delete"]


@pytest.mark.parametrize("kind", KINDS)
def test_c218_waiting_for_oneself_is_a_cycle_of_one(kind: EdgeKind) -> None:
    graph = WaitGraph()
    with pytest.raises(AskCycle, match="a → a") as caught, graph.edge("a", "a", kind):
        raise AssertionError
    assert caught.value.cycle == ["a", "a"]
    assert len(graph) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_c270_the_wait_that_closes_a_cycle_fails_and_the_other_stays(kind: EdgeKind) -> None:
    graph = WaitGraph()
    with graph.edge("a", "b", "ask"):
        with pytest.raises(AskCycle) as caught:
            graph.add("b", "a", kind)
        assert caught.value.cycle == ["b", "a", "b"]
        assert caught.value.agent == "b"
        assert [edge.target for edge in graph.of("a")] == ["b"]
    graph.add("b", "a", kind)


def test_c270_a_long_cycle_is_written_out_by_its_shortest_way() -> None:
    graph = WaitGraph()
    for waiter, target in (("a", "b"), ("b", "c"), ("c", "d"), ("a", "c"), ("d", "e")):
        graph.add(waiter, target, "ask")
    with pytest.raises(AskCycle) as caught:
        graph.add("d", "a", "delegate")
    assert caught.value.cycle == ["d", "a", "c", "d"]


def test_two_waits_between_one_pair_are_two() -> None:
    graph = WaitGraph()
    first = graph.add("a", "b", "ask")
    second = graph.add("a", "b", "ask")
    graph.remove(first)
    assert graph.of("a") == (second,)
    with pytest.raises(AskCycle):
        graph.add("b", "a", "ask")
    graph.remove(second)
    assert len(graph) == 0
    graph.add("b", "a", "ask")


def test_an_edge_goes_with_its_block_also_on_an_error() -> None:
    graph = WaitGraph()
    with pytest.raises(ValueError, match="boom"), graph.edge("a", "b", "ask", since=5):
        assert graph.waiters("b")[0].since == 5
        raise ValueError("boom")
    assert graph.waiters("b") == () == graph.of("a")


def test_repr_shows_who_waits_for_whom() -> None:
    graph = WaitGraph()
    assert repr(graph) == "<WaitGraph empty>"
    graph.add("a", "b", "delegate")
    assert repr(graph) == "<WaitGraph a → b (delegate)>"


AGENTS = st.sampled_from("abcdef")


@given(st.lists(st.tuples(AGENTS, AGENTS, st.booleans()), max_size=40))
def test_no_sequence_of_waits_makes_a_cycle(moves: list[tuple[str, str, bool]]) -> None:
    graph = WaitGraph()
    held: list[Edge] = []
    for waiter, target, release in moves:
        if release and held:
            graph.remove(held.pop(0))
            continue
        try:
            held.append(graph.add(waiter, target, "ask"))
        except AskCycle as error:
            pairs = {(edge.waiter, edge.target) for edge in held} | {(waiter, target)}
            assert error.cycle[0] == error.cycle[-1] == waiter
            assert all(pair in pairs for pair in zip(error.cycle, error.cycle[1:], strict=False))
        assert not has_cycle(held)
    assert len(graph) == len(held)


def has_cycle(edges: list[Edge]) -> bool:
    """Whether no order of the agents fits all edges: take away agents that wait for nobody until none is left."""
    left = {(edge.waiter, edge.target) for edge in edges}
    while left:
        waiting = {waiter for waiter, _ in left}
        free = {pair for pair in left if pair[1] not in waiting}
        if not free:
            return True
        left -= free
    return False
