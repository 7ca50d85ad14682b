"""The reader's model: it takes one file apart, step by step, and reports. Its rules, in order:

the figures first; then the opening lines; then, in one step, an outline (headings of prose, definitions of code) and the
frequent terms; then the report. Asked back, it looks at the longest lines and at the end of the file, and answers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .dialogue import Called, Dialogue
from .findings import Detail, FileReport, path_in, said
from .speech import Answer, Call, RuleModel
from .texts import Entry, clip

OPENING_LINES = 40
ENDING_LINES = 10
TOP_TERMS = 6
TOP_LINES = 3
_PROSE = frozenset({"markdown", "restructured text", "text"})


class ReaderModel(RuleModel):
    """Reads one file with tools and reports on it as JSON."""

    name = "reader"

    def decide(self, dialogue: Dialogue) -> Answer:
        """The next look at the file, or the report."""
        path = path_in(dialogue.questions[0]) if dialogue.questions else None
        if path is None:
            return Answer("I read one file at a time: give me a task that ends in its path.")
        return _report(dialogue, path) if dialogue.turn == 1 else _answer(dialogue, path)


def _report(dialogue: Dialogue, path: str) -> Answer:
    facts = dialogue.answered("file_facts")
    if facts is None:
        return Answer(f"First the figures of {path}.", (Call("file_facts", {"path": path}),))
    if facts.data is None:
        return Answer(said(FileReport(path, problem=facts.text)))
    opening = dialogue.answered("read_slice")
    if opening is None:
        return Answer("How does it begin?", (Call("read_slice", {"path": path, "start": 1, "count": OPENING_LINES}),))
    outliner = "list_headings" if facts.data["kind"] in _PROSE else "list_definitions"
    outline = dialogue.answered(outliner)
    if outline is None:
        calls = (Call(outliner, {"path": path}), Call("count_terms", {"path": path, "top": TOP_TERMS}))
        return Answer("Now its outline, and what it is about.", calls)
    return Answer(said(_put_together(path, facts.data, opening, outline, dialogue.answered("count_terms"))))


def _put_together(path: str, facts: dict[str, Any], opening: Called, outline: Called, terms: Called | None) -> FileReport:
    entries = msgspec.convert((outline.data or {}).get("entries", []), list[Entry])
    counted = ((terms.data if terms else None) or {}).get("terms", [])
    return FileReport(
        path=path,
        reader=facts["reader"],
        kind=facts["kind"],
        bytes=facts["bytes"],
        lines=facts["lines"],
        words=facts["words"],
        longest_line=facts["longest_line"],
        sha256=facts["sha256"],
        opening=_first_words((opening.data or {}).get("lines", [])),
        outline=outline.name.removeprefix("list_") if entries else "",
        entries=tuple(entries),
        terms=tuple((str(term), int(count)) for term, count in counted),
    )


def _first_words(lines: list[str]) -> str:
    """The first line that says something, without the marks around it."""
    stripped = (line.strip().strip("#\"'/*-=<>!;%`{}[]() \t") for line in lines if not line.startswith("#!"))
    return clip(next((line for line in stripped if line), ""), 100)


def _answer(dialogue: Dialogue, path: str) -> Answer:
    now = Dialogue(dialogue.questions, tuple(call for call in dialogue.calls if call.turn == dialogue.turn))
    longest, ending = now.answered("longest_lines"), now.answered("read_slice")
    if longest is None or ending is None:
        start = max(_lines_known(dialogue) - ENDING_LINES + 1, 1)
        last = Call("read_slice", {"path": path, "start": start, "count": ENDING_LINES + 1})
        return Answer("I look again.", (Call("longest_lines", {"path": path, "top": TOP_LINES}), last))
    if longest.data is None or ending.data is None:
        return Answer(said(Detail(path, problem=longest.text if longest.failed else ending.text)))
    lines: list[str] = ending.data["lines"]
    last_line = ending.data["start"] + len(lines) - 1
    text = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return Answer(said(Detail(path, msgspec.convert(longest.data["lines"], tuple[Entry, ...]), last_line, clip(text, 100))))


def _lines_known(dialogue: Dialogue) -> int:
    facts = dialogue.answered("file_facts")
    return int(facts.data["lines"]) if facts and facts.data else 1
