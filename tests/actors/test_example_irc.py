"""docs/examples/irc.py: what strangers send makes no other command, and every text fits its lines."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

IRC = runpy.run_path(str(Path(__file__).resolve().parents[2] / "docs" / "examples" / "irc.py"))
Line, parse, pieces = IRC["Line"], IRC["parse"], IRC["pieces"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("PING :a b", Line("PING", ("a b",))),
        (":ann!a@h PRIVMSG #a :hi: there", Line("PRIVMSG", ("#a", "hi: there"), "ann!a@h")),
        ("@msgid=1;x=2 :ann privmsg #a hi", Line("PRIVMSG", ("#a", "hi"), "ann", "msgid=1;x=2")),
        ("", Line("", ())),
        (":", Line("", ())),
    ],
)
def test_lines_are_taken_apart(text: str, line: object) -> None:
    assert parse(text) == line


@given(st.text())
def test_a_text_is_sent_in_lines_that_fit_and_hold_no_line_end(text: str) -> None:
    sent = list(pieces(text))
    assert all(0 < len(piece.encode()) <= 400 and not set(piece) & set("\r\n\0") for piece in sent)
    assert "".join(sent) == "".join(text.splitlines()).replace("\0", "")


def test_a_long_text_is_cut_between_characters() -> None:
    assert [len(piece) for piece in pieces("é" * 401)] == [200, 200, 1]
