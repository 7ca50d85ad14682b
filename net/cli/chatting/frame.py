"""What a terminal is sent: rows that stay, and under them a region that is drawn again. Pure.

The region is the open row of what streams, a line about the state, and the message being typed. To draw it again, the cursor goes
to its first row, everything from there is erased, new rows are written for good, and the region follows. Nothing else is assumed
of the terminal: no alternate screen, no scroll region; what scrolled off stays readable above.
"""

from __future__ import annotations

from typing import NamedTuple

from ..output import plain
from .flow import Row, cells, split

STYLES = {"dim": "2", "bold": "1", "error": "31", "tool": "36", "prompt": "1;32"}
"""Style → what SGR calls it."""
PROMPT, MORE = "> ", "  "
MOST_ROWS = 8
"""Rows of a long message that are shown, around the cursor."""


class Region(NamedTuple):
    """Rows, and where the cursor stands in them."""

    rows: list[Row]
    row: int
    column: int


class Frame:
    """Draws; remembers how far the cursor is below the region's first row."""

    def __init__(self, *, colour: bool) -> None:
        self.colour = colour
        self._below = 0

    def draw(self, done: list[Row], region: Region) -> str:
        """Everything to send: `done` is written for good, above the region."""
        text = [self._home(), *(f"{self._row(row)}\r\n" for row in done)]
        text.append("\r\n".join(self._row(row) for row in region.rows))
        up = len(region.rows) - 1 - region.row
        text.append((f"\x1b[{up}A" if up else "") + "\r" + (f"\x1b[{region.column}C" if region.column else ""))
        self._below = region.row
        return "".join(text)

    def leave(self, done: list[Row]) -> str:
        """The last drawing: the region goes, what stays is above the cursor."""
        text = self._home() + "".join(f"{self._row(row)}\r\n" for row in done)
        self._below = 0
        return text

    def _home(self) -> str:
        return (f"\x1b[{self._below}A" if self._below else "") + "\r\x1b[J"

    def _row(self, row: Row) -> str:
        return "".join(self._piece(style, text) for style, text in row)

    def _piece(self, style: str, text: str) -> str:
        code = STYLES.get(style)
        return f"\x1b[{code}m{text}\x1b[0m" if code and self.colour else text


def region(open_row: Row, status: str, typed: str, at: int, width: int, *, most: int = MOST_ROWS) -> Region:
    """The region: what streams, the state, and the message being typed with the cursor at its character `at`; of a long one the
    `most` rows around the cursor."""
    rows: list[Row] = [open_row] if open_row else []
    rows.append(_status_row(status, width))
    typed_rows, row, column = _typed(typed, at, width)
    first = max(0, min(row - most // 2, len(typed_rows) - most))
    return Region([*rows, *typed_rows[first : first + most]], len(rows) + row - first, column)


def _status_row(status: str, width: int) -> Row:
    row: Row = [("dim", plain(status).replace("\n", " "))]
    return row if cells(row) <= width else split(row, width)[0]


def _typed(typed: str, at: int, width: int) -> tuple[list[Row], int, int]:
    """The typed message as rows, and the cursor's row and column."""
    rows: list[Row] = []
    cursor = (0, len(PROMPT))
    place = 0
    for number, line in enumerate(typed.split("\n")):
        for piece, lead in _pieces(line, PROMPT if number == 0 else MORE, width):
            if place <= at <= place + len(piece):
                cursor = len(rows), cells([("", lead), ("", shown(piece[: at - place]))])
            rows.append([("prompt", lead), ("", shown(piece))])
            place += len(piece)
        place += 1
    row, column = cursor
    return rows, row, min(column, max(width - 1, 0))


def _pieces(line: str, lead: str, width: int) -> list[tuple[str, str]]:
    """A typed line cut to the width, hard: the cursor's place must be plain to see."""
    pieces: list[tuple[str, str]] = []
    while True:
        room, used = max(width - cells([("", lead)]) - 1, 1), 0
        end = 0
        while end < len(line) and (used := used + cells([("", shown(line[end]))])) <= room:
            end += 1
        end = max(end, min(len(line), 1))
        pieces.append((line[:end], lead))
        line, lead = line[end:], MORE
        if not line:
            return pieces


def shown(text: str) -> str:
    """Typed text as it is shown: one cell row, no control characters."""
    return plain(text).replace("\t", " ")
