"""What the demo's agents can do. The readers' tools only read, each the real file at the time of its call.

The folder comes from the agent's label and not from the model's words, and no path leads out of it: `../` and absolute paths
are refused like any other path that is not of this folder. All are `safe` to run again: reading changes nothing, a question
keeps its id, and the report is written whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from msgspec import Struct

from ...actors.tools import ToolContext, tool
from ...actors.values import explain
from ...storage.errors import ToolError
from . import texts
from .answers import (
    MOST_ENTRIES,
    MOST_LINES,
    MOST_NAMED,
    EntriesAnswer,
    FactsAnswer,
    FolderAnswer,
    LinesAnswer,
    SliceAnswer,
    TermsAnswer,
    WrittenAnswer,
)
from .discovery import DEFAULT_LIMIT, MAX_BYTES, discover, reasons
from .effects import note_effect
from .report import MARK

FOLDER, REPORT = "folder", "report"
"""The labels that name the folder and the report; readers inherit them from their lead."""


class Stage(Struct, frozen=True):
    """What the tools need of the run itself: its state folder, which is no part of the folder that is read."""

    state: Path


@tool(mode="parallel", replay="safe")
def list_files(ctx: ToolContext[Stage], limit: int = DEFAULT_LIMIT) -> FolderAnswer:
    """List the text files of the folder, and what is left out and why."""
    folder = Path(ctx.labels[FOLDER])
    try:
        listing = discover(folder, leave_out=(ctx.deps.state, Path(ctx.labels[REPORT])), limit=limit)
    except OSError as e:
        raise ToolError(f"the folder {folder} cannot be read: {e.strerror}") from e
    note_effect("list_files", ctx.effect_key)
    named, rest = listing.skipped[:MOST_NAMED], listing.skipped[MOST_NAMED:]
    return FolderAnswer(folder.name or str(folder), listing.files, named, tuple(reasons(rest)), listing.git)


@tool(mode="parallel", replay="safe")
def file_facts(ctx: ToolContext[Stage], path: str) -> FactsAnswer:
    """The figures of a file: bytes, lines and words as `wc` counts them, the longest line, the digest."""
    known = texts.facts(path, _content(ctx, path))
    note_effect("file_facts", ctx.effect_key)
    return FactsAnswer(path, ctx.agent.id, known.kind, known.bytes, known.lines, known.words, known.longest_line, known.sha256)


@tool(mode="parallel", replay="safe")
def read_slice(ctx: ToolContext[Stage], path: str, start: int = 1, count: int = 40) -> SliceAnswer:
    """Read `count` lines of a file from line `start` on; the first line is 1, long lines are clipped."""
    lines = texts.slice_of(_content(ctx, path), start, min(count, MOST_LINES))
    note_effect("read_slice", ctx.effect_key)
    return SliceAnswer(path, max(start, 1), tuple(lines))


@tool(mode="parallel", replay="safe")
def list_headings(ctx: ToolContext[Stage], path: str) -> EntriesAnswer:
    """List the headings of a text, with the line each stands on."""
    entries = texts.headings(path, _content(ctx, path))
    note_effect("list_headings", ctx.effect_key)
    return EntriesAnswer(path, len(entries), tuple(entries[:MOST_ENTRIES]))


@tool(mode="parallel", replay="safe")
def list_definitions(ctx: ToolContext[Stage], path: str) -> EntriesAnswer:
    """List the top-level classes and functions of a program, with the line each stands on."""
    entries = texts.definitions(path, _content(ctx, path))
    note_effect("list_definitions", ctx.effect_key)
    return EntriesAnswer(path, len(entries), tuple(entries[:MOST_ENTRIES]))


@tool(mode="parallel", replay="safe")
def count_terms(ctx: ToolContext[Stage], path: str, top: int = 6) -> TermsAnswer:
    """Count the most frequent terms of a file: words of four letters or more in any case, common ones left out."""
    counted = texts.terms(_content(ctx, path), min(top, MOST_ENTRIES))
    note_effect("count_terms", ctx.effect_key)
    return TermsAnswer(path, tuple(counted))


@tool(mode="parallel", replay="safe")
def longest_lines(ctx: ToolContext[Stage], path: str, top: int = 3) -> LinesAnswer:
    """Find the longest lines of a file."""
    found = texts.longest_lines(_content(ctx, path), min(top, MOST_ENTRIES))
    note_effect("longest_lines", ctx.effect_key)
    return LinesAnswer(path, tuple(found))


@tool(mode="parallel", replay="safe")
async def ask_reader(ctx: ToolContext[Stage], reader: str, question: str) -> str:
    """Ask a reader back about its report; it still knows what it read."""
    outcome = await ctx.ask(reader, question)
    if not outcome.ok:
        raise ToolError(f"the reader {reader} {explain(outcome.reason)}")
    note_effect("ask_reader", ctx.effect_key)
    return str(outcome.text)


@tool(replay="safe")
def write_report(ctx: ToolContext[Stage], text: str) -> WrittenAnswer:
    """Write the report, whole or not at all, in the place of an earlier report of the demo."""
    report = Path(ctx.labels[REPORT])
    try:
        if not may_replace(report):
            raise ToolError(f"{report} was not written by the demo; move it away, or name another file with --report")
        replace_file(report, text.encode())
    except OSError as e:
        raise ToolError(f"{report} cannot be written: {e.strerror}") from e
    note_effect("write_report", ctx.effect_key)
    return WrittenAnswer(report.name, len(text.encode()), hashlib.sha256(text.encode()).hexdigest())


def _content(ctx: ToolContext[Stage], path: str) -> bytes:
    folder = Path(ctx.labels[FOLDER]).resolve()
    whole = (folder / path).resolve()
    if not whole.is_relative_to(folder):
        raise ToolError(f"{path!r} is not in the folder; paths are those that list_files gives")
    try:
        with whole.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as e:
        raise ToolError(f"{path} cannot be read: {e.strerror}") from e
    if len(content) > MAX_BYTES:
        raise ToolError(f"{path} has grown beyond {MAX_BYTES:,} bytes")
    return content


def may_replace(report: Path) -> bool:
    """Whether the report's place is free, or holds a report of the demo: a person's own file is never overwritten."""
    try:
        with report.open("rb") as file:
            return file.read(len(MARK)) == MARK.encode()
    except FileNotFoundError:
        return True


def replace_file(path: Path, content: bytes) -> None:
    """Write the file beside its place, sync it, then move it there: after a kill it is the old or the new one, never half.

    The name beside it is hidden and always the same, so that a kill leaves at most one such file, and the next run uses it.
    """
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


READING = (file_facts, read_slice, list_headings, list_definitions, count_terms, longest_lines)
"""The readers' tools."""
