"""Searching: every text of a log is found, once, whatever the model sees of it."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.storage import events as e
from callboard.storage.errors import UsageError
from callboard.storage.events import Route
from callboard.storage.messages import Message, ReasoningBlock, TextBlock, ToolCallBlock, ToolResultBlock
from callboard.storage.records import Record
from callboard.storage.searching import SEARCHED, Search


def message(*blocks: Any, id: str = "m") -> Message:
    return Message(id, "user", blocks)


TEXT = TextBlock("Say\n  FRIEND and enter")
HOLDERS: list[e.Event] = [
    e.InboxPut(message=message(TEXT), lane="next-turn"),
    e.UserMessage(message=message(TEXT)),
    e.AssistantMessage(turn=1, step=1, message=message(ReasoningBlock("say friend"))),
    e.AssistantMessage(turn=1, step=1, message=message(ToolCallBlock("c", "say", "friend"))),
    e.UserMessage(message=message(ToolResultBlock("c", (TEXT,)))),
    e.TimerSet(id="t", due=1, message=message(TEXT)),
    e.SurfaceReplace(start=0, end=1, message=message(TEXT)),
    e.ToolCalled(turn=1, step=1, call_id="c", name="say", arguments="foe", effective="friend"),
    e.ToolResult(turn=1, step=1, call_id="c", content=(TEXT,)),
    e.OutboxPut(delivery="d", route=Route(), content=(TEXT,), turn=1),
    e.CommandRun(id="m", name="/say", args="friend"),
    e.CommandResult(id="m", text="say friend"),
    e.ApprovalAsked(id="q", call_id="c", question="say friend?"),
    e.ApprovalAnswered(id="q", verdict="reply", text="say friend"),
    e.Note(kind="say", data="friend"),
]


@pytest.mark.parametrize("event", HOLDERS, ids=lambda event: type(event).__name__)
def test_every_record_with_a_text_is_searched(event: e.Event) -> None:
    record = Record(7, 9, event)
    hit = Search("say friend", words=True).see(record)
    assert hit is not None and (hit.seq, hit.time, hit.type) == (7, 9, record.type)
    assert record.type in SEARCHED
    assert Search("foe").see(record) is None


@pytest.mark.parametrize(
    "event", [e.SurfaceReplace(start=0, end=1), e.ApprovalAnswered(id="q", verdict="allow"), e.TurnStart(turn=1)]
)
def test_a_record_without_a_text_holds_none(event: e.Event) -> None:
    assert Search("a").see(Record(0, 0, event)) is None


def test_a_message_is_found_once_and_another_with_the_same_words_again() -> None:
    search = Search("friend")
    put, user = e.InboxPut(message=message(TEXT), lane="next-turn"), e.UserMessage(message=message(TEXT))
    other = e.UserMessage(message=message(TEXT, id="n"))
    assert [search.see(Record(n, 0, x)) is not None for n, x in enumerate((put, user, other))] == [True, False, True]


def test_an_answer_is_found_as_it_was_given_and_not_again_as_it_went_out() -> None:
    def out(text: str) -> e.OutboxPut:
        return e.OutboxPut(delivery="d", route=Route(), content=(TextBlock(text),), turn=1)

    given = e.AssistantMessage(turn=1, step=1, message=message(ReasoningBlock("hm"), TextBlock("a friend")))
    command = e.CommandResult(id="c", text="friend: 7")
    events = [given, command, out("friend: 7"), out("a friend"), out("friends all"), out("foe")]
    search = Search("friend")
    found = [search.see(Record(seq, 0, event)) is not None for seq, event in enumerate(events)]
    assert found == [True, True, False, False, True, False]


def test_the_place_is_shown_on_one_line_with_what_stands_around() -> None:
    long = TextBlock("a " * 100 + "the Needle\nhere" + " b" * 100)
    hit = Search("NEEDLE here", around=5).see(Record(0, 0, e.UserMessage(message=message(long))))
    assert hit is not None and hit.context == "… the Needle here b b …"
    folded = Search("x").see(Record(0, 0, e.UserMessage(message=message(TextBlock("İ" * 50 + "x")))))
    assert folded is not None
    with pytest.raises(UsageError, match="nothing to search"):
        Search("  ")
