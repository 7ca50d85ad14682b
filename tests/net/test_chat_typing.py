"""What is typed at a terminal: from bytes to keys, and from keys to a message."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.net.cli.chatting.editor import Editor, Submit
from callboard.net.cli.chatting.keys import Key, Keys, Paste


def keys(*pieces: bytes) -> list[Key]:
    decoder = Keys()
    return [key for piece in pieces for key in decoder.feed(piece)]


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"ab\r", ["a", "b", "enter"]),
        ("é日".encode(), ["é", "日"]),
        (b"\x03\x04\x0c", ["ctrl-c", "ctrl-d", "ctrl-l"]),
        (b"\x7f\x08", ["backspace", "backspace"]),
        (b"\x1b[A\x1bOB\x1b[C\x1b[D", ["up", "down", "right", "left"]),
        (b"\x1b[1~\x1b[4~\x1b[3~\x1b[H\x1b[F", ["home", "end", "delete", "home", "end"]),
        (b"\x1b[1;5C\x1bb", ["word-right", "word-left"]),
        (b"\x1b\rx\n", ["newline", "x", "newline"]),
        (b"\x1b[99;5Xa\x1b[200", ["a"]),
        (b"\x1b[200~one\rtwo\x1b[201~!", [Paste("one\ntwo"), "!"]),
        (b"\xff", ["\ufffd"]),
    ],
)
def test_bytes_are_keys(sent: bytes, expected: list[Key]) -> None:
    assert keys(sent) == expected
    assert keys(*(sent[at : at + 1] for at in range(len(sent)))) == expected, "however they are cut"


@given(st.binary(max_size=80), st.integers(0, 80))
def test_any_bytes_are_read_wherever_they_are_cut(sent: bytes, cut: int) -> None:
    assert keys(sent[:cut], sent[cut:]) == keys(sent)


def test_a_sequence_without_end_does_not_eat_what_follows() -> None:
    assert keys(b"\x1b[" + b"1;" * 60, b"hello\r")[-1] == "enter"


def typed(*given: Key, editor: Editor | None = None) -> tuple[Editor, list[object]]:
    editor = editor or Editor()
    return editor, [wish for key in given if (wish := editor.feed(key)) is not None]


def test_a_line_is_sent_by_enter() -> None:
    editor, wishes = typed(*"hi there", "enter", "enter", " ", "enter")
    assert wishes == [Submit("hi there")]
    assert editor.text == ""


def test_line_ends_come_in_by_newline_and_by_paste_and_stay_in_one_message() -> None:
    _, wishes = typed("a", "newline", "b", Paste("\nc\x1b[2J\n"), "enter")
    assert wishes == [Submit("a\nb\nc[2J")]


@pytest.mark.parametrize(
    ("pressed", "text", "at"),
    [
        (["left", "left", "x"], "one two thrxee", 12),
        (["home", "x"], "xone two three", 1),
        (["home", "end", "backspace"], "one two thre", 12),
        (["ctrl-w"], "one two ", 8),
        (["word-left", "word-left", "ctrl-k"], "one ", 4),
        (["word-left", "ctrl-u"], "three", 0),
        (["home", "word-right", "delete"], "onetwo three", 3),
        (["home", "ctrl-d", "ctrl-b", "backspace"], "ne two three", 0),
        (["left"] * 99 + ["right"], "one two three", 1),
        (["f13", "tab"], "one two three\t", 14),
    ],
)
def test_a_line_is_edited(pressed: list[Key], text: str, at: int) -> None:
    editor, _ = typed(*"one two three", *pressed)
    assert (editor.text, editor.at) == (text, at)


def test_what_was_sent_is_found_again_and_the_draft_is_kept() -> None:
    editor, _ = typed(*"one", "enter", *"two", "enter", *"two", "enter", *"draft", "up")
    assert editor.text == "two"
    typed("up", editor=editor)
    assert editor.text == "one"
    typed("up", "down", "down", editor=editor)
    assert editor.text == "draft"
    typed("down", editor=editor)
    assert editor.text == "draft"


def test_wishes() -> None:
    editor, wishes = typed("ctrl-c", "ctrl-l", "ctrl-d")
    assert wishes == ["interrupt", "redraw", "end"]
    assert typed("a", "home", "ctrl-d", editor=editor)[1] == [], "with something typed, ctrl-d deletes"
    assert editor.text == ""


PRESSED: list[Key] = [
    *("a", " ", "left", "right", "up", "down", "home", "end", "word-left", "word-right"),
    *("backspace", "delete", "ctrl-w", "ctrl-u", "ctrl-k", "newline", "enter", Paste("x\ny")),
]


@given(st.lists(st.sampled_from(PRESSED), max_size=60))
def test_the_cursor_stays_in_the_text(pressed: list[Key]) -> None:
    editor = Editor()
    for key in pressed:
        editor.feed(key)
        assert 0 <= editor.at <= len(editor.text)
