"""What the demo's tools answer: JSON to the model, which reads it back into these shapes."""

from __future__ import annotations

from msgspec import Struct

from .discovery import Found, Skipped
from .texts import Entry

MOST_NAMED = 50
"""So many files that are not read are named in the answer; the rest is counted by reason."""
MOST_ENTRIES = 200
MOST_LINES = 400
"""What a tool gives at most, whatever it is asked for: a model's view has an end, and so has a record."""


class FolderAnswer(Struct, frozen=True):
    """What `list_files` gives; `more` counts what was left out beyond those named in `skipped`, by reason."""

    folder: str
    files: tuple[Found, ...]
    skipped: tuple[Skipped, ...] = ()
    more: tuple[tuple[str, int], ...] = ()
    git: bool = False

    @property
    def left_out(self) -> int:
        """How many files are not read."""
        return len(self.skipped) + sum(number for _, number in self.more)


class FactsAnswer(Struct, frozen=True):
    """What `file_facts` gives: the figures, and who asked for them, so that a report says whom to ask back."""

    path: str
    reader: str
    kind: str
    bytes: int
    lines: int
    words: int
    longest_line: int
    sha256: str


class SliceAnswer(Struct, frozen=True):
    """What `read_slice` gives."""

    path: str
    start: int
    lines: tuple[str, ...]


class EntriesAnswer(Struct, frozen=True):
    """What the outlining tools give: the first entries, and how many there are."""

    path: str
    total: int
    entries: tuple[Entry, ...]


class TermsAnswer(Struct, frozen=True):
    """What `count_terms` gives."""

    path: str
    terms: tuple[tuple[str, int], ...]


class LinesAnswer(Struct, frozen=True):
    """What `longest_lines` gives."""

    path: str
    lines: tuple[Entry, ...]


class WrittenAnswer(Struct, frozen=True):
    """What `write_report` gives."""

    report: str
    bytes: int
    sha256: str
