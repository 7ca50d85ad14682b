"""What the demo's tools answer: JSON to the model, which reads it back into these shapes."""

from __future__ import annotations

from msgspec import Struct

from .discovery import Listing
from .texts import Entry


class FolderAnswer(Struct, frozen=True):
    """What `list_files` gives."""

    folder: str
    listing: Listing


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
    """What the outlining tools give."""

    path: str
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
