"""Following an agent: every committed record once, in order, from any seq; and what a chat shows of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from callboard.actors.streams import DELTA_TYPES, DeltaFold, Deltas, Follow
from callboard.actors.values import Delta
from callboard.storage import chunks as c
from callboard.storage.errors import AgentDeleted, UsageError
from callboard.storage.events import (
    EVENTS,
    AssistantChunk,
    CommandResult,
    CommandRun,
    Completed,
    Event,
    InboxClaim,
    RequestFailed,
    RequestSent,
    StepEnd,
    StepStart,
    ToolCalled,
    TurnEnd,
    TurnStart,
)
from callboard.storage.messages import Chunk, Failure, ReasoningBlock, TextBlock
from callboard.storage.records import Record


class Committed:
    """A log in memory whose records are all committed, read in small pages."""

    def __init__(self, *events: Event, page: int = 3) -> None:
        self.records: list[Record] = []
        self.page = page
        self.reads = 0
        self.deleted = False
        self._moved = trio.Event()
        self.commit(*events)

    def commit(self, *events: Event) -> None:
        for event in events:
            self.records.append(Record(len(self.records), 0, event))
        self._wake()

    def delete(self) -> None:
        self.deleted = True
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    def last(self) -> int:
        return len(self.records) - 1

    async def read_page(self, after: int, types: Collection[str] | None) -> tuple[Sequence[Record], int]:
        self.reads += 1
        await trio.lowlevel.checkpoint()
        page = self.records[after + 1 : after + 1 + self.page]
        return [r for r in page if types is None or r.type in types], (page[-1].seq if page else after)

    async def wait_beyond(self, seq: int) -> None:
        while self.last() <= seq:
            if self.deleted:
                raise AgentDeleted("the agent was deleted", agent="a")
            await self._moved.wait()


def steps(n: int) -> list[Event]:
    return [StepStart(turn=1, step=i) for i in range(n)]


async def take(follow: Follow, n: int) -> list[int]:
    return [(await anext(follow)).seq for _ in range(n)]


async def test_follow_gives_every_record_once_and_then_waits(autojump_clock: trio.testing.MockClock) -> None:
    source = Committed(*steps(7))
    follow = Follow(source)
    assert await take(follow, 7) == list(range(7))
    with trio.move_on_after(1) as scope:
        await anext(follow)
    assert scope.cancelled_caught
    source.commit(*steps(2))
    assert await take(follow, 2) == [7, 8]


async def test_follow_wakes_when_something_is_committed() -> None:
    source, seen = Committed(), list[int]()

    async def read(task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        async for record in Follow(source):
            seen.append(record.seq)
            if len(seen) == 3:
                break

    async with trio.open_nursery() as nursery:
        await nursery.start(read)
        await wait_all_tasks_blocked()
        source.commit(*steps(1))
        await wait_all_tasks_blocked()
        assert seen == [0]
        source.commit(*steps(2))
    assert seen == [0, 1, 2]


async def test_follow_resumes_by_seq_and_from_now() -> None:
    source = Committed(*steps(5))
    follow = Follow(source, after=2)
    assert follow.seq == 2
    assert await take(follow, 1) == [3]
    assert follow.seq == 3
    again = Follow(source, after=follow.seq)
    now = Follow(source, after=None)
    source.commit(*steps(1))
    assert await take(again, 2) == [4, 5]
    assert await take(now, 1) == [5]


async def test_follow_of_some_types_passes_over_pages_without_them() -> None:
    source = Committed(*steps(10), StepEnd(turn=1, step=1), *steps(4), StepEnd(turn=1, step=2))
    assert await take(Follow(source, types=["step/end"]), 2) == [10, 15]


async def test_a_break_leaves_nothing_open_and_the_next_page_unread() -> None:
    source = Committed(*steps(9))
    async for record in Follow(source):
        if record.seq == 1:
            break
    assert source.reads == 1


async def test_follow_ends_with_its_agent() -> None:
    source = Committed(*steps(1))
    follow = Follow(source)
    await take(follow, 1)
    source.delete()
    with pytest.raises(AgentDeleted):
        await anext(follow)


def test_a_type_that_does_not_exist_is_guessed() -> None:
    with pytest.raises(UsageError, match="'turn/ends'; did you mean 'turn/end'"):
        Follow(Committed(), types=["turn/ends"])
    with pytest.raises(UsageError, match=r"give a list: types=\['turn/end'\]"):
        Follow(Committed(), types="turn/end")
    assert set(EVENTS) >= DELTA_TYPES


@given(total=st.integers(0, 30), page=st.integers(1, 7), after=st.integers(-1, 35), cut=st.integers(0, 30))
def test_no_record_is_lost_or_doubled_over_a_resume(total: int, page: int, after: int, cut: int) -> None:
    async def run() -> None:
        source = Committed(*steps(total), page=page)
        expected = [seq for seq in range(total) if seq > after]
        first = Follow(source, after=after)
        seen = await take(first, min(cut, len(expected)))
        second = Follow(source, after=first.seq)
        seen += await take(second, len(expected) - len(seen))
        assert seen == expected

    trio.run(run)


# -- deltas


def chunk(made: Chunk) -> AssistantChunk:
    return AssistantChunk(turn=1, step=1, chunk=made)


def sent(attempt: int) -> RequestSent:
    return RequestSent(turn=1, step=1, attempt=attempt, digest="", upto=0)


def failed(attempt: int, action: str = "retry") -> RequestFailed:
    failure = Failure("SERVER")
    if action == "retry":
        return RequestFailed(turn=1, step=1, attempt=attempt, failure=failure, action="retry")
    return RequestFailed(turn=1, step=1, attempt=attempt, failure=failure, action="raise")


END = TurnEnd(turn=1, reason=Completed())


def fold(*events: Event, start: int = 0) -> list[Delta]:
    folding = DeltaFold()
    made = [folding.feed(Record(start + i, 0, event)) for i, event in enumerate(events)]
    return [delta for delta in made if delta is not None]


def test_text_reasoning_tools_and_the_end() -> None:
    deltas = fold(
        TurnStart(turn=1),
        StepStart(turn=1, step=1),
        sent(1),
        chunk(c.block_start(0, "reasoning")),
        chunk(c.reasoning_delta(0, "hm")),
        chunk(c.block_start(1, TextBlock("I "))),
        chunk(c.text_delta(1, "look")),
        chunk(c.text_delta(1, "")),
        chunk(c.block_start(2, "tool-call")),
        chunk(c.tool_call_delta(2, id="c1", name="lookup", arguments="{}")),
        chunk(c.finish("tool-calls")),
        ToolCalled(turn=1, step=1, call_id="c1", name="lookup", arguments="{}"),
        END,
    )
    assert [(d.kind, d.text, d.step) for d in deltas] == [
        ("reasoning", "hm", 1),
        ("text", "I ", 1),
        ("text", "look", 1),
        ("tool", "lookup", 1),
        ("end", "", 1),
    ]
    assert deltas[-1].reason == Completed()
    assert [d.seq for d in deltas] == [4, 5, 6, 11, 12]


def test_a_retried_attempt_that_showed_something_is_discarded() -> None:
    deltas = fold(sent(1), chunk(c.text_delta(0, "ha")), failed(1), sent(2), failed(2), sent(3), chunk(c.text_delta(0, "hello")))
    assert [(d.kind, d.text) for d in deltas] == [("text", "ha"), ("discard", ""), ("text", "hello")]


def test_a_final_failure_keeps_what_was_shown_as_the_history_does() -> None:
    deltas = fold(sent(1), chunk(c.text_delta(0, "ha")), failed(1, "raise"), END)
    assert [d.kind for d in deltas] == ["text", "end"]


def test_one_who_resumes_inside_an_attempt_is_told_to_discard() -> None:
    assert [d.kind for d in fold(failed(1), sent(2), failed(2))] == ["discard"]


def test_a_command_answers_as_text_unless_it_ran_beside_the_turn() -> None:
    run, result = CommandRun(id="m", name="/help"), CommandResult(id="m", text="help")
    deltas = fold(TurnStart(turn=1), InboxClaim(turn=1, ids=("m",)), run, result, END)
    assert [(d.kind, d.text, d.turn) for d in deltas] == [("text", "help", 1), ("end", "", 1)]
    assert [d.kind for d in fold(TurnStart(turn=1), StepStart(turn=1, step=1), run, result, END)] == ["end"]
    assert [d.kind for d in fold(TurnStart(turn=1), run, result, END)] == ["end"], "a control command, before the first step"
    assert fold(run, result) == []


def test_reasoning_that_comes_whole_is_shown() -> None:
    assert fold(chunk(c.block_start(0, ReasoningBlock("so"))))[0].kind == "reasoning"


async def test_deltas_are_followed_live() -> None:
    source = Committed(TurnStart(turn=1), sent(1), chunk(c.text_delta(0, "a")))
    deltas = Deltas(source)
    assert (await anext(deltas)).text == "a"
    assert deltas.seq == 2
    source.commit(END)
    async for delta in deltas:
        if delta.kind == "end":
            break
    assert (await anext(Deltas(source, after=2))).kind == "end"
