"""What a terminal is sent, on a terminal small enough to know what it shows."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from callboard.net.cli.chatting.flow import Flow, Row, cells, split
from callboard.net.cli.chatting.frame import MOST_ROWS, Frame, region

_SEQUENCE = re.compile(r"\x1b\[([0-9;]*)([A-Za-z])")


class Screen:
    """A terminal: a list of rows without end, a cursor, and the few sequences that are used."""

    def __init__(self) -> None:
        self.rows: list[str] = [""]
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            found = _SEQUENCE.match(text, at)
            if found:
                self._sequence(int(found[1] or 1) if found[1].isdecimal() or not found[1] else 1, found[2])
                at = found.end()
                continue
            self._put(text[at])
            at += 1

    def _sequence(self, count: int, final: str) -> None:
        match final:
            case "A":
                self.row = max(self.row - count, 0)
            case "C":
                self.column += count
            case "J":
                self.rows[self.row] = self.rows[self.row][: self.column]
                del self.rows[self.row + 1 :]
            case "m":
                pass
            case _:
                raise AssertionError(f"a sequence that no one expects: {count}{final}")

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            while len(self.rows) <= self.row:
                self.rows.append("")
        else:
            assert character.isprintable() or character == "\u0301", f"{character!r} would steer a terminal"
            row = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = row[: self.column] + character + row[self.column + 1 :]
            self.column += 1


def text_of(row: Row) -> str:
    return "".join(text for _, text in row)


def test_text_streams_into_rows_that_break_at_blanks() -> None:
    flow = Flow(10)
    flow.add("", "one two ")
    flow.add("dim", "three four")
    assert [text_of(row) for row in flow.take()] == ["one two"]
    assert flow.open == [("dim", "three four")]
    flow.add("dim", " five\n\nsix")
    assert [text_of(row) for row in flow.take()] == ["three four", "five", ""]
    flow.fresh()
    flow.fresh()
    assert [text_of(row) for row in flow.take()] == ["six"]


def test_a_word_that_is_too_long_is_cut_and_wide_characters_fit() -> None:
    flow = Flow(6)
    flow.add("", "abcdefghij日本語日本語")
    rows = [*flow.take(), flow.open]
    assert "".join(map(text_of, rows)) == "abcdefghij日本語日本語"
    assert all(cells(row) <= 6 for row in rows)


def test_what_would_steer_the_terminal_is_shown_instead() -> None:
    flow = Flow(80)
    flow.add("", "a\x1b[2J\x07\u202eb")
    assert text_of(flow.open) == r"a\x1b[2J\x07\x202eb"


@given(st.text(max_size=80), st.integers(1, 30))
def test_no_text_is_lost_and_no_row_too_wide(text: str, width: int) -> None:
    flow = Flow(width)
    for at in range(0, len(text), 7):
        flow.add("", text[at : at + 7])
    rows = [text_of(row) for row in (*flow.take(), flow.open)]
    assert all(cell_len(row) <= max(width, 2) for row in rows)
    whole = Flow(10_000)
    whole.add("", text)
    everything = [text_of(row) for row in (*whole.take(), whole.open)]
    assert "".join(rows).replace(" ", "") == "".join(everything).replace(" ", "")


@given(
    st.lists(st.tuples(st.sampled_from(["", "dim"]), st.text("ab 日", min_size=1, max_size=9)), min_size=1), st.integers(1, 12)
)
def test_a_split_row_is_whole(row: Row, width: int) -> None:
    first, rest = split(row, width)
    assert text_of(first)
    assert text_of(first) + text_of(rest) in (text_of(row), text_of(row).replace(" ", "", 1)) or " " in text_of(row)


@given(
    st.lists(
        st.tuples(
            st.text("ab \n日", max_size=12), st.text("xy\n", max_size=30), st.integers(0, 30), st.sampled_from(["idle", "b" * 99])
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(8, 30),
    st.booleans(),
)
def test_the_region_is_drawn_again_and_what_was_said_stays(
    steps: list[tuple[str, str, int, str]], width: int, colour: bool
) -> None:
    screen, flow, frame, said = Screen(), Flow(width), Frame(colour=colour), list[str]()
    for text, typed, at, status in steps:
        flow.add("dim", text)
        done = flow.take()
        said.extend(map(text_of, done))
        below = region(flow.open, status, typed, min(at, len(typed)), width)
        screen.feed(frame.draw(done, below))
        expected = [*said, *map(text_of, below.rows)]
        assert [row.rstrip() for row in screen.rows] == [row.rstrip() for row in expected]
        assert (screen.row, screen.column) == (len(said) + below.row, below.column)
        assert len(below.rows) <= MOST_ROWS + 2
    screen.feed(frame.leave([]))
    assert [row.rstrip() for row in screen.rows if row] == [row.rstrip() for row in said if row]


def test_the_cursor_stands_where_one_types() -> None:
    below = region([], "idle", "ab\ncd", 5, 20)
    assert [text_of(row) for row in below.rows] == ["idle", "> ab", "  cd"]
    assert (below.row, below.column) == (2, 4)
    assert region([], "idle", "ab\ncd", 3, 20).column == 2
    assert region([("", "so")], "idle", "", 0, 20).row == 2


def test_a_long_message_is_shown_around_the_cursor() -> None:
    typed = "\n".join(map(str, range(30)))
    below = region([], "idle", typed, typed.index("20"), 20)
    shown = [text_of(row).strip() for row in below.rows[1:]]
    assert len(shown) == MOST_ROWS
    assert text_of(below.rows[below.row]).strip() == "20"


def test_colour_is_left_away() -> None:
    below = region([("dim", "so")], "idle", "", 0, 20)
    assert "\x1b[2m" in Frame(colour=True).draw([], below)
    assert "\x1b[2m" not in Frame(colour=False).draw([], below)
