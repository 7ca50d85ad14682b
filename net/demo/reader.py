"""The reader's model: it takes one file apart, step by step, and reports. Its rules, in order:

the figures first; then the opening lines; then, in one step, an outline (headings of prose, definitions of code) and the
frequent terms; then the report. Asked back, it looks at the longest lines and at the end of the file, and answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from .answers import EntriesAnswer, FactsAnswer, LinesAnswer, SliceAnswer, TermsAnswer
from .dialogue import Dialogue
from .findings import NAMED, Detail, FileReport, path_in, said
from .speech import Answer, Call, RuleModel
from .texts import clip

OPENING_LINES = 40
ENDING_LINES = 10
TOP_TERMS = 6
TOP_LINES = 3
_Shape = TypeVar("_Shape")
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
    looked = dialogue.answered("file_facts")
    if looked is None:
        return Answer(f"First the figures of {path}.", (Call("file_facts", {"path": path}),))
    facts = looked.read(FactsAnswer)
    if facts is None:
        return Answer(said(FileReport(path, problem=looked.text)))
    if dialogue.answered("read_slice") is None:
        return Answer("How does it begin?", (Call("read_slice", {"path": path, "start": 1, "count": OPENING_LINES}),))
    outliner = "list_headings" if facts.kind in _PROSE else "list_definitions"
    if dialogue.answered(outliner) is None:
        calls = (Call(outliner, {"path": path}), Call("count_terms", {"path": path, "top": TOP_TERMS}))
        return Answer("Now its outline, and what it is about.", calls)
    return Answer(said(_put_together(dialogue, facts, outliner)))


def _put_together(dialogue: Dialogue, facts: FactsAnswer, outliner: str) -> FileReport:
    opening = _found(dialogue, "read_slice", SliceAnswer)
    outline = _found(dialogue, outliner, EntriesAnswer)
    terms = _found(dialogue, "count_terms", TermsAnswer)
    entries = outline.entries if outline else ()
    return FileReport(
        path=facts.path,
        reader=facts.reader,
        kind=facts.kind,
        bytes=facts.bytes,
        lines=facts.lines,
        words=facts.words,
        longest_line=facts.longest_line,
        sha256=facts.sha256,
        opening=_first_words(opening.lines if opening else ()),
        outline=outliner.removeprefix("list_") if entries else "",
        entries=entries[:NAMED],
        total=outline.total if outline else 0,
        terms=terms.terms if terms else (),
    )


def _found(dialogue: Dialogue, tool: str, shape: type[_Shape]) -> _Shape | None:
    call = dialogue.answered(tool)
    return call.read(shape) if call else None


def _first_words(lines: Sequence[str]) -> str:
    """The first line that says something, without the marks around it."""
    stripped = (line.strip().strip("#\"'/*-=<>!;%`{}[]() \t") for line in lines if not line.startswith("#!"))
    return clip(next((line for line in stripped if line), ""), 100)


def _answer(dialogue: Dialogue, path: str) -> Answer:
    now = dialogue.last_turn
    if now.answered("longest_lines") is None or now.answered("read_slice") is None:
        facts = _found(dialogue, "file_facts", FactsAnswer)
        start = max((facts.lines if facts else 1) - ENDING_LINES + 1, 1)
        last = Call("read_slice", {"path": path, "start": start, "count": ENDING_LINES + 1})
        return Answer("I look again.", (Call("longest_lines", {"path": path, "top": TOP_LINES}), last))
    longest, ending = _found(now, "longest_lines", LinesAnswer), _found(now, "read_slice", SliceAnswer)
    if longest is None or ending is None:
        return Answer(said(Detail(path, problem=next(call.text for call in now.calls if call.failed))))
    numbered = list(enumerate(ending.lines, ending.start))
    last_line, text = next(((n, line.strip()) for n, line in reversed(numbered) if line.strip()), (0, ""))
    return Answer(said(Detail(path, longest.lines, last_line, clip(text, 100))))
