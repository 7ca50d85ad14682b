"""The report as Markdown: what is in the folder, file by file, with figures that can be checked by hand.

Pure and deterministic: the same findings give the same bytes. No time, no token count and no agent id is in it, so that a
run that was killed fifty times writes the same report as one that was left in peace.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from .answers import FolderAnswer
from .findings import Detail, FileReport

MARK = "<!-- written by `callboard demo`; a run replaces it -->"
"""The first line: how the demo knows that a report is its own to replace."""


def compose(folder: FolderAnswer, reports: Mapping[str, FileReport], details: Mapping[str, Detail]) -> str:
    """The whole report."""
    ordered = [reports[file.path] for file in folder.files if file.path in reports]
    read = [report for report in ordered if not report.problem]
    sections = [
        _head(folder, read),
        _kinds(read),
        *(_file(report, details.get(report.path)) for report in ordered),
        _left_out(folder),
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def code(text: str) -> str:
    """The text as a code span, whatever is in it: a longer fence than any run of backticks, and no line ends."""
    flat = re.sub(r"[\x00-\x1f\x7f]+", " ", text)
    fence = "`" * (max((len(run) for run in re.findall("`+", flat)), default=0) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") or not flat.strip() else ""
    return f"{fence}{pad}{flat}{pad}{fence}"


def _head(folder: FolderAnswer, read: list[FileReport]) -> list[str]:
    ignored = "Hidden files and those that git ignores" if folder.git else "Hidden files"
    left_out = (
        f"{_count(folder.left_out, 'file')} left out, with the reasons at the end." if folder.left_out else "None is left out."
    )
    return [
        MARK,
        f"# What is in {code(folder.folder)}",
        "",
        f"{_count(len(read), 'text file')}: {_count(sum(r.lines for r in read), 'line')}, "
        f"{_count(sum(r.words for r in read), 'word')}, {_count(sum(r.bytes for r in read), 'byte')}. "
        f"{left_out} {ignored} are not looked at.",
        "",
        "To check a figure: `wc FILE` counts lines, words (`LC_ALL=C`) and bytes, `sha256sum FILE` the digest, "
        "`grep -oiw TERM FILE | wc -l` a term; `sed -n Np FILE` shows line N.",
    ]


def _kinds(read: list[FileReport]) -> list[str]:
    if not read:
        return []
    rows: dict[str, list[FileReport]] = {}
    for report in read:
        rows.setdefault(report.kind, []).append(report)
    ordered = sorted(rows.items(), key=lambda item: (-sum(r.bytes for r in item[1]), item[0]))
    table = [
        f"| {kind} | {len(of)} | {sum(r.lines for r in of):,} | {sum(r.words for r in of):,} | {sum(r.bytes for r in of):,} |"
        for kind, of in ordered
    ]
    return ["| kind | files | lines | words | bytes |", "|---|---:|---:|---:|---:|", *table, "", "## File by file"]


def _file(report: FileReport, detail: Detail | None) -> list[str]:
    head = f"### {code(report.path)}"
    if report.problem:
        return [head, "", f"Not read: {_flat(report.problem)}"]
    return [head, "", *(f"- {line}" for line in _findings(report)), *(f"- {line}" for line in _asked_back(detail))]


def _findings(report: FileReport) -> Iterator[str]:
    yield (
        f"{report.kind}: {_count(report.lines, 'line')}, {_count(report.words, 'word')}, {_count(report.bytes, 'byte')}; "
        f"longest line {_count(report.longest_line, 'character')}; sha256 `{report.sha256[:12]}…`"
    )
    if report.opening:
        yield f"begins: {code(report.opening)}"
    if report.entries:
        shown = ", ".join(f"{code(entry.text)} ({entry.line})" for entry in report.entries)
        rest = report.total - len(report.entries)
        counted = _count(report.total, report.outline.removesuffix("s"))
        yield f"{counted} (line): {shown}{f', and {rest} more' if rest > 0 else ''}"
    if report.terms:
        yield "frequent terms: " + ", ".join(f"{term} {count}" for term, count in report.terms)


def _asked_back(detail: Detail | None) -> Iterator[str]:
    if detail is None:
        return
    if detail.problem:
        yield f"asked back, no answer: {_flat(detail.problem)}"
        return
    longest = "; ".join(f"line {entry.line}, {code(entry.text)}" for entry in detail.longest)
    yield f"asked back, the reader adds its longest lines: {longest}"
    if detail.ending:
        yield f"and how it ends, at line {detail.last_line}: {code(detail.ending)}"


def _left_out(folder: FolderAnswer) -> list[str]:
    if not folder.skipped:
        return []
    more = ", ".join(f"{number:,} {why}" for why, number in folder.more)
    lines = [*(f"- {code(entry.path)}: {entry.why}" for entry in folder.skipped), *([f"- and more: {more}"] if more else [])]
    return ["## Left out", "", *lines]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _flat(text: str) -> str:
    return " ".join(text.split())
