"""Figures and outlines of one text: pure functions from its bytes, each chosen so that a person can check it by hand.

`lines` and `words` are what `wc` says, a term's count is what `grep -oiw TERM FILE | wc -l` says, definitions are the lines
that begin like one. Where a figure needs a rule, the rule is in the function's docstring.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections import Counter
from pathlib import PurePosixPath

from msgspec import Struct

CLIP = 160

_KINDS = {
    ".c": "c", ".cc": "c++", ".cpp": "c++", ".css": "css", ".csv": "csv", ".go": "go", ".h": "c", ".html": "html", ".ini": "ini",
    ".java": "java", ".js": "javascript", ".json": "json", ".jsonl": "json lines", ".jsx": "javascript", ".kt": "kotlin",
    ".markdown": "markdown", ".md": "markdown", ".py": "python", ".pyi": "python", ".rb": "ruby", ".rs": "rust",
    ".rst": "restructured text", ".sh": "shell", ".sql": "sql", ".toml": "toml", ".ts": "typescript", ".tsx": "typescript",
    ".txt": "text", ".xml": "xml", ".yaml": "yaml", ".yml": "yaml",
}  # fmt: skip

_NAME = r"(?P<name>[A-Za-z_$][\w$]*)"
_SCRIPT = re.compile(rf"^(?:export\s+)?(?:default\s+)?(?:async\s+)?(?P<kind>class|function|interface|type|enum)\*?\s+{_NAME}")
_JVM = re.compile(
    rf"^\s*(?:(?:public|private|protected|static|final|abstract|open|data)\s+)*(?P<kind>class|interface|enum|record|object)\s+{_NAME}"
)
_C = re.compile(rf"^(?P<kind>struct|class|enum|union|namespace)\s+{_NAME}\s*(?:final\s*)?[:{{]?\s*$")
_DEFINITIONS = {
    "javascript": _SCRIPT,
    "typescript": _SCRIPT,
    "java": _JVM,
    "kotlin": _JVM,
    "c": _C,
    "c++": _C,
    "go": re.compile(rf"^(?P<kind>func|type)\s+(?:\([^)]*\)\s*)?{_NAME}"),
    "rust": re.compile(rf"^(?:pub(?:\([^)]*\))?\s+)?(?:async\s+)?(?P<kind>fn|struct|enum|trait|mod|type)\s+{_NAME}"),
    "ruby": re.compile(rf"^\s*(?P<kind>class|module|def)\s+(?:self\.)?{_NAME}"),
    "shell": re.compile(r"^(?:(?P<kind>function)\s+)?(?P<name>[A-Za-z_][\w-]*)\s*\(\)"),
    "sql": re.compile(
        rf"^\s*create\s+(?:or\s+replace\s+)?(?P<kind>table|view|index|function|trigger)\s+(?:if\s+not\s+exists\s+)?{_NAME}", re.I
    ),
    "python": re.compile(rf"^(?:async\s+)?(?P<kind>class|def)\s+{_NAME}"),
}  # fmt: skip
_COMMON = frozenset(re.findall(r"\w+", """
    about after again also because been before being both could does done each else every first from have here into just like
    made make many more most much must never none only other over same should some such than that their them then there these
    they this those through under until very want well were what when where which while will with without would your
    const import return self void
"""))  # fmt: skip


class Facts(Struct, frozen=True):
    """The figures of one file: bytes, lines and words as `wc` counts them, the longest line in characters, its sha256."""

    kind: str
    bytes: int
    lines: int
    words: int
    longest_line: int
    sha256: str


class Entry(Struct, frozen=True):
    """One line of an outline: a heading or a definition, and the line it stands on."""

    line: int
    text: str


def kind_of(path: str) -> str:
    """What a file is, by its name; `text` if the name says nothing."""
    pure = PurePosixPath(path)
    return {"Makefile": "make", "Dockerfile": "docker"}.get(pure.name) or _KINDS.get(pure.suffix.lower(), "text")


def facts(path: str, raw: bytes) -> Facts:
    """The figures of a file."""
    return Facts(
        kind=kind_of(path),
        bytes=len(raw),
        lines=raw.count(b"\n"),
        words=len(raw.split()),
        longest_line=max((len(line) for line in lines_of(raw)), default=0),
        sha256=hashlib.sha256(raw).hexdigest(),
    )


def lines_of(raw: bytes) -> list[str]:
    """The lines of a file without their ends; only a newline ends a line, as for `wc`, `head` and `sed`."""
    lines = raw.decode("utf-8", "replace").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def clip(text: str, length: int = CLIP) -> str:
    """The text in at most `length` characters, with an ellipsis where it was cut."""
    return text if len(text) <= length else text[: length - 1] + "…"


def slice_of(raw: bytes, start: int, count: int) -> list[str]:
    """`count` lines from line `start` (the first is 1), each clipped; what `sed -n START,ENDp` shows."""
    first = max(start, 1) - 1
    return [clip(line) for line in lines_of(raw)[first : first + max(count, 0)]]


def headings(path: str, raw: bytes) -> list[Entry]:
    """The headings: `#` lines of Markdown outside code fences; underlined lines elsewhere."""
    lines = lines_of(raw)
    return _marked(lines) if kind_of(path) == "markdown" else _underlined(lines)


def _marked(lines: list[str]) -> list[Entry]:
    found: list[Entry] = []
    fence = ""
    for number, line in enumerate(lines, 1):
        mark = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence and (heading := re.match(r" {0,3}(#{1,6})\s+(.*?)\s*#*\s*$", line)) and heading[2]:
            found.append(Entry(number, clip(f"{heading[1]} {heading[2]}")))
    return found


def _underlined(lines: list[str]) -> list[Entry]:
    pairs = itertools.pairwise(lines)
    return [
        Entry(number, clip(title.strip()))
        for number, (title, under) in enumerate(pairs, 1)
        if re.fullmatch(r"([=~^#*-])\1{2,}", under) and len(under) >= len(title.rstrip()) > 0 and re.search(r"\w", title)
    ]


def definitions(path: str, raw: bytes) -> list[Entry]:
    """What the file defines at its top level, by how its lines begin: what `grep -nE '^(async )?(class|def) '` shows for Python.

    A pattern and not a parser: it holds for every language of the table, for files with errors, and can be checked by hand.
    """
    pattern = _DEFINITIONS.get(kind_of(path))
    if pattern is None:
        return []
    found = ((number, pattern.match(line)) for number, line in enumerate(lines_of(raw), 1))
    return [Entry(n, clip(f"{m['kind'] or 'function'} {m['name']}")) for n, m in found if m]


def terms(raw: bytes, top: int) -> list[tuple[str, int]]:
    """The most frequent terms: words of four letters or more in any case, less the most common English ones; ties by name."""
    words = re.findall(r"\w+", raw.decode("utf-8", "replace").lower())
    counts = Counter(w for w in words if len(w) >= 4 and w.isalpha() and w not in _COMMON)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[: max(top, 0)]


def longest_lines(raw: bytes, top: int) -> list[Entry]:
    """The longest lines in the order of their length, clipped; ties by number."""
    numbered = sorted(enumerate(lines_of(raw), 1), key=lambda item: (-len(item[1]), item[0]))
    return [Entry(number, f"{len(line)} characters: {clip(line.strip(), 80)}") for number, line in numbered[: max(top, 0)]]
