"""The board and what is drawn from it: a fold of events that may be seen again after a restart."""

from __future__ import annotations

import io

import trio
from rich.console import Console
from trio.testing import MockClock

from callboard.net.demo.findings import task_for
from callboard.net.demo.progress import Board
from callboard.net.demo.screen import Lines, LiveTree
from callboard.storage.events import (
    AssistantMessage,
    Event,
    RequestSent,
    StepStart,
    ToolCalled,
    TurnEnd,
    TurnResume,
    TurnStart,
    UserMessage,
)
from callboard.storage.events.base import Completed, Errored
from callboard.storage.messages import Failure, Message, TextBlock, Usage


def spoken(turn: int, step: int, tokens: int) -> list[Event]:
    message = Message("a", "assistant", (TextBlock("x"),))
    return [
        StepStart(turn=turn, step=step),
        RequestSent(turn=turn, step=step, attempt=1, digest="d", upto=1),
        AssistantMessage(turn=turn, step=step, message=message, usage=Usage(input=tokens)),
    ]


def reading(path: str) -> list[Event]:
    task = UserMessage(message=Message("u", "user", (TextBlock(task_for(path)),)))
    call = ToolCalled(turn=1, step=1, call_id="c1", name="file_facts", arguments="{}")
    return [TurnStart(turn=1), task, *spoken(1, 1, 100), call, *spoken(1, 2, 50)]


END = TurnEnd(turn=1, reason=Completed())


def test_a_reader_from_its_task_to_its_report() -> None:
    board = Board("demo")
    lines = [board.apply("demo/r1", event) for event in [*reading("a.md"), END]]
    assert [line for line in lines if line] == ["reader of a.md starts", "reader of a.md: done, 2 steps, 150 tokens"]
    row = board.rows["demo/r1"]
    assert (row.what, row.state, row.step_count, row.spent, len(row.calls)) == ("a.md", "done", 2, 150, 1)
    assert (board.finished, board.spent, board.steps) == (1, 150, 2)


def test_events_seen_again_count_once() -> None:
    board = Board("demo")
    for _ in range(2):
        for event in [*reading("a.md"), END]:
            board.apply("demo/r1", event)
    assert (board.spent, board.steps, len(board.rows["demo/r1"].calls)) == (150, 2, 1)


def test_other_agents_of_the_store_are_not_shown() -> None:
    board = Board("demo")
    assert board.apply("demo-2/r1", TurnStart(turn=1)) is None
    assert list(board.rows) == ["demo"]


def test_a_turn_that_goes_on_and_one_that_fails_are_told() -> None:
    board = Board("demo")
    assert board.apply("demo", TurnResume(turn=1)) == "lead goes on"
    reason = Errored(error=Failure("SERVER"))
    assert board.apply("demo", TurnEnd(turn=1, reason=reason)) == "lead: ended: error, 0 steps, 0 tokens"


def test_what_was_done_before_counts() -> None:
    board = Board("demo")
    board.known("demo/r1", running=False, tokens=70)
    board.known("demo/r2", running=True, tokens=0)
    assert (board.finished, board.spent) == (1, 70)


def test_lines_are_printed_as_they_come() -> None:
    said: list[str] = []
    lines = Lines(Board("demo"), said.append)
    for event in [*reading("a.md"), END]:
        lines.show("demo/r1", event)
    assert said == ["reader of a.md starts", "reader of a.md: done, 2 steps, 150 tokens"]


async def test_the_tree_shows_who_works_and_the_last_who_finished(autojump_clock: MockClock) -> None:
    out = io.StringIO()
    tree = LiveTree(Board("demo"), Console(file=out, force_terminal=True, width=100, height=40, color_system=None))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tree.run)
        for n in range(10):
            for event in [*reading(f"f{n}.md"), *([END] if n < 9 else [])]:
                tree.show(f"demo/r{n}", event)
        await trio.sleep(0.3)
        nursery.cancel_scope.cancel()
    last = out.getvalue().split("lead")[-1]
    assert "3 readers reported before" in last
    assert "✓ f3.md  done  2 steps, 1 calls, 150 tokens" in last
    assert "f2.md" not in last
    assert "▸ f9.md  thinking" in last
    assert "9 of 10 readers done · 20 steps · 1,500 tokens" in last
