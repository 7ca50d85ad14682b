"""The turn's table and the walk through it."""

from __future__ import annotations

import pickle
from collections.abc import Awaitable, Callable
from contextlib import nullcontext

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.turns.states import (
    BUILD,
    COMMAND,
    COMPACT,
    DONE,
    RESPOND,
    RESTORE,
    RUN,
    SAVE,
    STATES,
    TABLE,
    State,
    TurnTableError,
    diagram,
    next_state,
    table,
    walk,
)
from callboard.storage.errors import CallboardError, ModelError
from callboard.storage.events import TraceEntry

Handlers = dict[State, Callable[[str], Awaitable[str]]]


def answer(event: str) -> Callable[[str], Awaitable[str]]:
    async def handler(subject: str) -> str:
        assert subject == "the turn"
        return event

    return handler


def handlers(**events: str) -> Handlers:
    """Handlers for a plain walk, but for the states named."""
    plain = {RESTORE: "ok", COMPACT: "ok", COMMAND: "dispatch", BUILD: "ok", RUN: "ok", SAVE: "ok", RESPOND: "ok"}
    return {state: answer(events.get(state.name, event)) for state, event in plain.items()}


async def walked(given: Handlers) -> list[tuple[str, str | None]]:
    trace: list[TraceEntry] = []
    await walk(given, "the turn", trace, turn=1)
    return [(entry.state, entry.event) for entry in trace]


async def test_c149_a_plain_walk_has_seven_entries() -> None:
    assert await walked(handlers()) == [
        ("RESTORE", "ok"),
        ("COMPACT", "ok"),
        ("COMMAND", "dispatch"),
        ("BUILD", "ok"),
        ("RUN", "ok"),
        ("SAVE", "ok"),
        ("RESPOND", "ok"),
    ]


async def test_c150_a_shortcut_has_three_entries_blocked_and_empty_have_six() -> None:
    assert [state for state, _ in await walked(handlers(COMMAND="shortcut"))] == ["RESTORE", "COMPACT", "COMMAND"]
    for event in ("blocked", "empty"):
        trace = await walked(handlers(BUILD=event))
        assert len(trace) == 6
        assert trace[3:] == [("BUILD", event), ("SAVE", "ok"), ("RESPOND", "ok")]


async def test_c151_a_failed_state_leaves_type_and_text_and_ends_the_walk() -> None:
    async def fails(_: str) -> str:
        raise ModelError("RATE_LIMIT", "slow down")

    trace: list[TraceEntry] = []
    with pytest.raises(ModelError):
        await walk({**handlers(), RUN: fails}, "the turn", trace, turn=1)
    assert [entry.state for entry in trace] == ["RESTORE", "COMPACT", "COMMAND", "BUILD", "RUN"]
    assert (trace[-1].event, trace[-1].error, trace[-1].text) == (None, "ModelError", "slow down")


async def test_c151_a_cancelled_state_leaves_an_entry_too() -> None:
    trace: list[TraceEntry] = []

    async def hangs(_: str) -> str:
        await trio.sleep_forever()
        raise AssertionError

    with trio.CancelScope() as scope:
        async with trio.open_nursery() as nursery:

            async def drive() -> None:
                await walk({**handlers(), RUN: hangs}, "the turn", trace, turn=1)

            nursery.start_soon(drive)
            await trio.testing.wait_all_tasks_blocked()
            scope.cancel()
    assert (trace[-1].state, trace[-1].error) == ("RUN", "Cancelled")


@pytest.mark.parametrize(("stumbles", "named"), [(False, ("Cancelled", None)), (True, ("ExceptionGroup", "ValueError: no"))])
async def test_c151_a_group_is_named_by_what_in_it_is_no_cancellation(stumbles: bool, named: tuple[str, str | None]) -> None:
    async def hangs() -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            if stumbles:
                raise ValueError("no") from None
            raise

    async def runs(_: str) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hangs)
            nursery.start_soon(trio.sleep_forever)
        raise AssertionError

    trace: list[TraceEntry] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        with pytest.raises(ExceptionGroup) if stumbles else nullcontext():
            try:
                await walk({**handlers(), RUN: runs}, "the turn", trace, turn=1)
            except BaseExceptionGroup as group:
                raise group.split(trio.Cancelled)[stumbles] or group from None
    assert (trace[-1].error, trace[-1].text) == named


async def test_c152_an_event_outside_the_table_names_turn_state_and_event() -> None:
    trace: list[TraceEntry] = []
    with pytest.raises(
        TurnTableError, match=r"turn 7: state BUILD answered 'fine'; it may answer 'ok', 'blocked', 'empty'"
    ) as caught:
        await walk(handlers(BUILD="fine"), "the turn", trace, turn=7)
    assert (caught.value.turn, caught.value.state, caught.value.event) == (7, BUILD, "fine")
    assert (trace[-1].state, trace[-1].event, trace[-1].error) == ("BUILD", "fine", "TurnTableError")
    assert isinstance(caught.value, CallboardError)


async def test_c152_a_state_without_handler_is_named() -> None:
    trace: list[TraceEntry] = []
    missing = handlers()
    del missing[SAVE]
    with pytest.raises(TurnTableError, match="turn 7: state SAVE has no handler"):
        await walk(missing, "the turn", trace, turn=7)
    assert (trace[-1].state, trace[-1].error) == ("SAVE", "TurnTableError")


async def test_c153_an_entry_has_its_start_and_its_duration_in_microseconds() -> None:
    ticks = iter(range(0, 10**9, 1_500_000))
    trace: list[TraceEntry] = []
    await walk(
        handlers(COMMAND="shortcut"), "the turn", trace, turn=1, now_ms=lambda: 1764500000250, clock_ns=lambda: next(ticks)
    )
    assert trace[0] == TraceEntry("RESTORE", 1764500000250, 1500, "ok")


async def test_c154_a_turn_taken_up_skips_what_it_has_behind_it() -> None:
    taken_up = await walked(handlers(RESTORE="taken-up"))
    assert [state for state, _ in taken_up] == ["RESTORE", "RUN", "SAVE", "RESPOND"]
    answered = await walked(handlers(RESTORE="answered"))
    assert [state for state, _ in answered] == ["RESTORE", "SAVE", "RESPOND"]


def test_c155_the_diagram_has_every_way_of_the_table() -> None:
    drawn = diagram().splitlines()
    assert drawn[:2] == ["stateDiagram-v2", "    [*] --> RESTORE"]
    assert "    BUILD --> SAVE: blocked, empty" in drawn
    assert drawn[-1] == "    DONE --> [*]"
    assert len(drawn) == 3 + sum(len(set(ways.values())) for ways in TABLE.values())


def test_c155_the_table_for_the_docs_has_a_row_for_each_state() -> None:
    rows = table().splitlines()[2:]
    assert [row.split(" | ")[0] for row in rows] == [f"| {state}" for state in STATES]
    assert rows[-1].endswith("| terminal |")


def test_every_state_is_in_the_table_and_every_way_ends() -> None:
    assert tuple(TABLE) == STATES
    for state in STATES:
        ahead, seen = [state], set[State]()
        while ahead:
            at = ahead.pop()
            assert at is not state or not seen, f"{state} leads back to itself"
            seen.add(at)
            ahead.extend(TABLE[at].values())
        assert DONE in seen


@given(state=st.sampled_from(STATES), event=st.text(max_size=12))
def test_an_unknown_event_never_moves(state: State, event: str) -> None:
    if event in TABLE[state]:
        assert next_state(state, event) is TABLE[state][event]
    else:
        with pytest.raises(TurnTableError, match=state.name):
            next_state(state, event)


def test_states_are_objects_that_travel() -> None:
    assert repr(RUN) == "RUN"
    assert pickle.loads(pickle.dumps(RUN)) is RUN
