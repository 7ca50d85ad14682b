"""What handles give back, and what content they take."""

from __future__ import annotations

import pickle
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from callboard.actors.content import mint_id, route_map, to_message, to_route
from callboard.actors.values import AgentSummary, Outcome, Receipt, explain, moment
from callboard.storage.errors import InputRefused, TurnFailed, UsageError
from callboard.storage.events import (
    Aborted,
    Blocked,
    Cause,
    Completed,
    EndReason,
    Errored,
    Interrupted,
    Limited,
    MaxTokens,
    Route,
)
from callboard.storage.messages import (
    USER,
    AgentSource,
    Failure,
    File,
    Message,
    PluginSource,
    TextBlock,
    ToolCallBlock,
    Usage,
)
from callboard.storage.store import Head, Summary


class Trip(msgspec.Struct):
    city: str


# -- outcomes


def test_a_completed_outcome_results_in_output_or_text() -> None:
    assert Outcome[str](agent="a", turn=1, reason=Completed(), text="hello").result() == "hello"
    trip = Outcome[Trip](agent="a", turn=1, reason=Completed(), text="{}", output=Trip("Oslo"))
    assert trip.result().city == "Oslo"
    assert trip.ok
    assert str(trip) == "{}"


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (MaxTokens(), "was cut at the model's output cap"),
        (Blocked("budget spent"), "was blocked: budget spent"),
        (Aborted(Cause("user")), "was aborted, cause user"),
        (Aborted(Cause("hook", "late"), Failure("SERVER", "down")), r"was aborted, cause hook: late \(beside it SERVER: down\)"),
        (Errored(Failure("RATE_LIMIT", "slow down")), "ended with an error: RATE_LIMIT: slow down"),
        (Interrupted(), "was interrupted by a crash"),
        (Limited("steps", "100 steps"), "reached the limit steps: 100 steps"),
    ],
    ids=lambda value: value.kind if hasattr(value, "kind") else "",
)
def test_c247_any_other_end_raises_and_says_which_and_why(reason: EndReason, sentence: str) -> None:
    outcome = Outcome[str](agent="trip-42", turn=3, reason=reason, text="half", seq=17)
    assert not outcome.ok
    with pytest.raises(TurnFailed, match=f"^turn 3 of 'trip-42' {sentence}") as caught:
        outcome.result()
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.outcome, error.agent, error.turn, error.seq) == (outcome, "trip-42", 3, 17)
    assert explain(reason) in str(outcome)


def test_one_outcome_answers_several_messages() -> None:
    outcome = Outcome[str](agent="a", turn=1, reason=Completed())
    assert outcome.of_message("m2") == Outcome[str](agent="a", turn=1, reason=Completed(), message_id="m2")


def test_every_reason_says_its_kind_as_json_has_it() -> None:
    bad = (Blocked("x"), Aborted(Cause("user")), Errored(Failure("X")), Interrupted(), Limited("x"))
    for reason in (Completed(), MaxTokens(), *bad):
        assert msgspec.json.decode(msgspec.json.encode(reason))["kind"] == reason.kind


def test_a_summary_is_made_of_an_index_entry() -> None:
    known = Summary(name="planner", labels={"k": "v"}, parent="p", turn=3, open=True, usage=Usage(5), waits=("child",))
    summary = AgentSummary.of(Head("a", 17, 1764500000000, 2, known))
    assert (summary.id, summary.name, summary.labels, summary.parent, summary.head) == ("a", "planner", {"k": "v"}, "p", 17)
    assert (summary.status, summary.turn, summary.usage.total, summary.waits) == ("running", 3, 5, ("child",))
    assert summary.updated == moment(1764500000000) == datetime(2025, 11, 30, 10, 53, 20, tzinfo=UTC)
    assert AgentSummary.of(Head("a", 17, 0, 2, Summary()), "failed").status == "failed"
    assert AgentSummary.of(Head("a", 17, 0, 2, Summary())).status == "idle"


# -- content


def test_a_text_blocks_or_a_message_become_a_message() -> None:
    assert to_message("hi", id="m1") == Message("m1", "user", (TextBlock("hi"),), USER)
    file = File.from_bytes(b"x", "text/plain")
    assert to_message([TextBlock("see"), file], id="m1").content == (TextBlock("see"), file)
    assert to_message([file], id="m1").content == (file,)
    own = Message("mine", "user", (TextBlock("hi"),), PluginSource("timer"))
    assert to_message(own) == own
    assert to_message(own, id="m2", source=AgentSource("a")) == Message("m2", "user", own.content, AgentSource("a"))
    assert to_message("hi").id != to_message("hi").id


@pytest.mark.parametrize("content", ["", "  \n", [], [TextBlock(" ")], Message("m", "user")])
def test_empty_content_is_refused(content: Any) -> None:
    with pytest.raises(InputRefused, match="empty") as caught:
        to_message(content, id="m1")
    assert caught.value.message_id == "m1"


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (None, "content is None"),
        (b"hi", "content is b'hi'"),
        ({"text": "hi"}, "give a text, a list of blocks"),
        (5, "content is 5"),
        (TextBlock("hi"), r"give a list: \[TextBlock\(...\)\]"),
        (["hi"], r"holds the text 'hi'; write TextBlock\(text\)"),
        ([ToolCallBlock("c", "x")], "only TextBlock, Image and File"),
        ([3], "holds 3"),
        (Message("m", "assistant", (TextBlock("hi"),)), "role 'assistant' cannot be sent"),
    ],
)
def test_c247_content_of_a_wrong_type_is_guessed(content: Any, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        to_message(content)


def test_minted_ids_differ_also_between_processes() -> None:
    code = "from callboard.actors.content import mint_id; print(mint_id())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    ids = {mint_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert other.split("-")[0] not in {id.split("-")[0] for id in ids}


# -- routes


def test_a_route_is_a_mapping_outside_and_a_struct_inside() -> None:
    route = to_route({"channel": "irc", "chat": 42, "thread": None, "message": "7"})
    assert route == Route("irc", "42", None, "7")
    assert route is not None
    assert route_map(route) == {"channel": "irc", "chat": "42", "message": "7"}
    assert to_route(route) is route
    assert to_route(None) is None


@pytest.mark.parametrize(
    ("route", "hint"),
    [
        ({"room": "x"}, "has no 'room'"),
        ({"chat": ["x"]}, "'chat' of the route"),
        ({"chat": True}, "give a text"),
        ("irc", "give a mapping"),
        ({"channel": "irc", "chat": "é" * 241}, "'chat' of a route may have 480 bytes of UTF-8; this one has 482: 'éé"),
        ({"channel": "irc", "chat": "c", "message": "m" * 5_000_000}, "this one has 5,000,000"),
    ],
)
def test_a_route_that_cannot_be_says_why(route: Any, hint: str) -> None:
    with pytest.raises(UsageError, match=hint):
        to_route(route)


def test_receipts_are_plain_values() -> None:
    assert Receipt("m1", 3) == Receipt(message_id="m1", seq=3)
