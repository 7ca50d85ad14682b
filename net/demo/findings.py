"""What a reader reports about its file, as JSON in its last message, and what it answers when it is asked back."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from .texts import Entry

TASK = "Read this file and report on it: "
"""How the lead puts a task; what follows is the path."""
NAMED = 12
"""So many entries of an outline are in a report; of the others only the number."""
THIN_LINES = 10
"""A report without an outline is thin only for a file of at least so many lines; a shorter one has nothing to outline."""


class FileReport(Struct, frozen=True, omit_defaults=True):
    """A reader's report. All figures are those its tools gave; `problem` says why there are none."""

    path: str
    reader: str = ""
    kind: str = ""
    bytes: int = 0
    lines: int = 0
    words: int = 0
    longest_line: int = 0
    sha256: str = ""
    opening: str = ""
    outline: str = ""
    """What the entries are: `headings`, `definitions`, or empty if the file has neither."""
    entries: tuple[Entry, ...] = ()
    """The first ones."""
    total: int = 0
    """How many there are."""
    terms: tuple[tuple[str, int], ...] = ()
    problem: str = ""

    @property
    def thin(self) -> bool:
        """Whether the lead should ask back."""
        return not self.problem and not self.entries and self.lines >= THIN_LINES and bool(self.reader)


class Detail(Struct, frozen=True, omit_defaults=True):
    """What a reader answers when it is asked back: the longest lines, and how the file ends."""

    path: str
    longest: tuple[Entry, ...] = ()
    last_line: int = 0
    ending: str = ""
    problem: str = ""


def task_for(path: str) -> str:
    """The task of the reader of this file."""
    return TASK + path


def path_in(task: str) -> str | None:
    """The path in a task, or None if the text is none."""
    _, found, path = task.partition(TASK)
    return path if found and path else None


def question_about(report: FileReport) -> str:
    """What the lead asks back about a thin report."""
    return (
        f"Your report on {report.path} names neither headings nor definitions in {report.lines} lines. "
        "Which are its longest lines, and how does it end?"
    )


def report_in(text: str, path: str) -> FileReport:
    """The report in a reader's message; text that is none becomes a report of a problem, with that text."""
    try:
        return msgspec.json.decode(text, type=FileReport)
    except msgspec.DecodeError:
        return FileReport(path, problem=f"the reader did not report: {text.strip() or 'no text'}")


def detail_in(text: str, path: str) -> Detail:
    """The answer in a reader's message; text that is none becomes an answer of a problem, with that text."""
    try:
        return msgspec.json.decode(text, type=Detail)
    except msgspec.DecodeError:
        return Detail(path, problem=f"the reader did not answer: {text.strip() or 'no text'}")


def said(value: FileReport | Detail) -> str:
    """The JSON text of a report or an answer."""
    return msgspec.json.encode(value).decode()
