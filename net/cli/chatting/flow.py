"""Text that streams, as rows of a terminal: what is complete is given out for good, the last row is still open. Pure.

Rows break at blanks where they can. Widths are those of cells, so that wide characters fit. A style is a word that `frame` knows;
a row is what `Row` says, and no escape sequence of a model's text ever gets into one: control characters are shown as such.
"""

from __future__ import annotations

from rich.cells import cell_len, get_character_cell_size

from ..output import plain

Row = list[tuple[str, str]]
"""Pieces of one row, each a style and a text."""


class Flow:
    """Rows from pieces of text, each with a style."""

    def __init__(self, width: int = 80) -> None:
        self.width = width
        self.open: Row = []
        """The row that is not complete."""
        self._done: list[Row] = []

    def add(self, style: str, text: str) -> None:
        """Append to the open row; a line end completes it."""
        first, *rest = plain(text).expandtabs(4).split("\n")
        self._append(style, first)
        for line in rest:
            self._break()
            self._append(style, line)

    def fresh(self) -> None:
        """Complete the open row, if anything is in it."""
        if self.open:
            self._break()

    def take(self) -> list[Row]:
        """The rows completed since the last time."""
        done, self._done = self._done, []
        return done

    def _break(self) -> None:
        self._done.append(self.open)
        self.open = []

    def _append(self, style: str, text: str) -> None:
        if not text:
            return
        if self.open and self.open[-1][0] == style:
            self.open[-1] = style, self.open[-1][1] + text
        else:
            self.open.append((style, text))
        while cells(self.open) > max(self.width, 1):
            head, tail = split(self.open, max(self.width, 1))
            self._done.append(head)
            self.open = tail


def cells(row: Row) -> int:
    """How wide a row is."""
    return sum(cell_len(text) for _, text in row)


def split(row: Row, width: int) -> tuple[Row, Row]:
    """A row that is too wide, broken in two: behind the last blank that fits, or where it is full. The first is never empty."""
    text = "".join(piece for _, piece in row)
    fits = _fitting(text, width)
    blank = text.rfind(" ", 0, fits + 1)
    at, skip = (blank, 1) if blank > 0 else (max(fits, 1), 0)
    return _cut(row, 0, at), _cut(row, at + skip, len(text))


def _fitting(text: str, width: int) -> int:
    used = 0
    for at, character in enumerate(text):
        used += get_character_cell_size(character)
        if used > width:
            return at
    return len(text)


def _cut(row: Row, start: int, end: int) -> Row:
    kept: Row = []
    for style, text in row:
        piece = text[max(start, 0) : max(end, 0)]
        start, end = start - len(text), end - len(text)
        if piece:
            kept.append((style, piece))
    return kept
