"""What a summary may stand for, and the texts around it: random histories, no model, no log."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callboard.actors.plugins.compaction import prompt
from callboard.actors.plugins.compaction.extract import HEAD, extract
from callboard.actors.plugins.compaction.ranges import QUESTIONS, SOURCE, Range, choose, open_questions
from callboard.actors.tokens import message_tokens, text_tokens
from callboard.storage import events as e
from callboard.storage.folds import Surface
from callboard.storage.messages import (
    AgentSource,
    Image,
    Message,
    ModelSource,
    PluginSource,
    Source,
    TextBlock,
    ToolCallBlock,
    UserSource,
)

MODEL = ModelSource("p", "m")
SOURCES: dict[str, Source] = {"q": UserSource(), "n": PluginSource("context"), "m": AgentSource("b"), "s": SOURCE}


def user(text: str, source: Source | None = None) -> Message:
    return Message(f"u {text}", "user", (TextBlock(text),), source or UserSource())


def model(text: str, *calls: str) -> Message:
    blocks = [TextBlock(text)] if text else []
    return Message(f"a {text} {calls}", "assistant", (*blocks, *(ToolCallBlock(c, "look", "{}") for c in calls)), MODEL)


def surface_of(script: Sequence[tuple[str, int]]) -> Surface:
    """A surface as a log would fold it: `q` a question, `a` an answer, `t` a call and its result, `n` a plugin's message, `m` an
    agent's, `s` a summary; each with a length."""
    surface, seq = Surface(), 0

    def add(event: e.Event) -> None:
        nonlocal seq
        surface.apply(seq, 0, event)
        seq += 1

    for number, (kind, length) in enumerate(script):
        text = f"{number} " + "x" * length
        if kind == "t":
            add(e.AssistantMessage(turn=1, step=1, message=model("", f"c{number}", f"d{number}")))
            for call in (f"c{number}", f"d{number}"):
                add(e.ToolResult(turn=1, step=1, call_id=call, content=(TextBlock(text),)))
        elif kind == "a":
            add(e.AssistantMessage(turn=1, step=1, message=model(text)))
        else:
            add(e.UserMessage(message=user(text, SOURCES[kind])))
    return surface


SCRIPTS = st.lists(st.tuples(st.sampled_from("qatnms"), st.integers(0, 2000)), max_size=40)


@settings(max_examples=300)
@given(SCRIPTS, st.integers(0, 5000))
def test_a_chosen_range_is_whole_leaves_what_is_open_and_new_and_gets_somewhere(script: list[tuple[str, int]], keep: int) -> None:
    surface = surface_of(script)
    entries = surface.entries()
    messages = [message for _, message in entries]
    tokens = [message_tokens(message) for message in messages]
    found = choose(messages, tokens, keep=keep)
    if found is None:
        return
    start, end = entries[found.first][0], entries[found.last][0]
    assert surface.check_replace(start, end) is None, "it parts no call from its result"
    assert found.last < len(messages) - 1, "the newest stays"
    assert not open_questions(messages) & set(range(found.first, found.last + 1))
    assert found.tokens == sum(tokens[found.first : found.last + 1])
    assert sum(tokens[found.last + 1 :]) > min(keep, sum(tokens)) - max(tokens) * 3 or found.last + 1 in open_questions(messages)
    before = len(surface)
    summary = Message("s", "user", (TextBlock("s"),), SOURCE)
    surface.apply(10_000, 0, e.SurfaceReplace(start=start, end=end, message=summary))
    assert len(surface) <= before
    assert found.last > found.first or messages[found.first].source != SOURCE, "a summary of a summary is no progress"


@settings(max_examples=100)
@given(SCRIPTS, st.integers(0, 2000))
def test_one_rewrite_after_the_other_comes_to_an_end_within_what_is_kept(script: list[tuple[str, int]], keep: int) -> None:
    surface = surface_of(script)
    for number in range(len(script) + 2):
        entries = surface.entries()
        messages = [message for _, message in entries]
        found = choose(messages, [message_tokens(message) for message in messages], keep=keep)
        if found is None:
            break
        summary = Message(f"s{number}", "user", (TextBlock("s"),), SOURCE)
        start, end = entries[found.first][0], entries[found.last][0]
        surface.apply(10_000 + number, 0, e.SurfaceReplace(start=start, end=end, message=summary))
    else:
        raise AssertionError("it goes on for ever")
    left = [message for _, message in surface.entries()]
    questions = open_questions(left)
    old = [m for place, m in enumerate(left) if place not in questions and m.source != SOURCE]
    newest = 3 if left and left[-1].role == "tool" else 1
    assert sum(message_tokens(m) for m in old[:-newest]) <= keep


def view(*messages: Message) -> tuple[list[Message], list[int]]:
    return list(messages), [10] * len(messages)


def test_between_turns_everything_before_what_is_kept_goes() -> None:
    messages, tokens = view(user("1"), model("2"), user("3"), model("4"))
    assert choose(messages, tokens, keep=20) == Range(0, 1, 20)
    assert choose(messages, tokens, keep=0) == Range(0, 2, 30)
    assert choose(messages, tokens, keep=40) is None
    assert choose([], [], keep=0) is None
    assert choose(messages[:1], tokens[:1], keep=0) is None


def test_a_long_turn_is_compacted_behind_its_own_question() -> None:
    work = [model("", "c"), Message("r", "tool", ())]
    messages, tokens = view(user("0"), model("1"), user("2"), *work, *work, *work)
    assert choose(messages, tokens, keep=20) == Range(3, 6, 40)
    assert choose(messages, [10, 90, *tokens[2:]], keep=20) == Range(0, 1, 100)


def test_the_first_and_the_newest_of_very_many_open_questions_stay() -> None:
    messages, _ = view(model("done"), *(user(str(n)) for n in range(20)))
    assert open_questions(messages) == {1, *range(21 - QUESTIONS + 1, 21)}
    assert open_questions([*messages, model("", "c")]) == open_questions(messages)
    assert open_questions([*messages, model("all of them")]) == frozenset()


# -- without a model


def test_an_extract_says_who_said_what_and_what_was_called() -> None:
    picture = Message("p", "user", (TextBlock("see"), Image("image/png", blob="x")))
    history = [
        user("first\n  question"),
        model("", "c1"),
        model("look", "c2"),
        model("an answer"),
        picture,
        user("it is late", PluginSource("clock")),
    ]
    assert extract(history, limit=500).splitlines() == [
        HEAD,
        "- user: first question",
        "- you: look",
        "- you called look (2 times)",
        "- you: an answer",
        "- user: see [image/png]",
        "- clock: it is late",
    ]


def test_an_extract_of_an_extract_keeps_its_lines_and_its_head_once() -> None:
    first = extract([user("one"), model("two")], limit=500)
    again = extract([user(first, SOURCE), user("three")], limit=500)
    assert again.splitlines() == [HEAD, "- user: one", "- you: two", "- user: three"]


@given(st.lists(st.text(max_size=500), max_size=30), st.integers(0, 300))
def test_an_extract_has_room_in_its_limit_and_keeps_the_newest(texts: list[str], limit: int) -> None:
    text = extract([user(f"{number} {text}") for number, text in enumerate(texts)], limit=limit)
    assert text_tokens(text) <= limit
    if text:
        assert f"- user: {len(texts) - 1}" in text


# -- what a model is asked


def test_a_transcript_names_who_spoke_and_cuts_what_is_long_in_the_middle() -> None:
    history = [
        user("earlier", SOURCE),
        user("hello"),
        model("I look", "c1"),
        Message("r", "tool", (TextBlock("A" * 3000 + "MIDDLE" + "B" * 3000),)),
        user("noon", PluginSource("clock")),
    ]
    text = prompt.transcript(history, characters=100_000)
    assert "EARLIER SUMMARY: earlier\n\nUSER: hello\n\nASSISTANT: I look\n[calls look with {}]\n\nTOOL: AAA" in text
    assert "MIDDLE" not in text and "RUNTIME (clock): noon\n</conversation>" in text
    assert "at most 666 words" in prompt.system(1000)


@pytest.mark.parametrize("characters", [0, 300, 5_000, 50_000])
def test_a_transcript_has_room_in_its_limit_and_keeps_the_newest(characters: int) -> None:
    history = [user(f"{number} {'x' * 3000}") for number in range(20)]
    text = prompt.transcript(history, characters=characters)
    assert len(text) <= characters + 60
    assert characters < 300 or "USER: 19 " in text
