"""The lead's model: it lists the folder, gives each file to a reader, asks back where a report is thin, and writes the report.

Readers are delegated to in waves, so that no single step grows with the folder; within a wave the lead's limit says how many
run at a time. A call that failed in an earlier turn (a full disk, say) is tried again; one that failed in this turn is a
fact of the report.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from .answers import FolderAnswer, WrittenAnswer
from .dialogue import Called, Dialogue
from .findings import Detail, FileReport, detail_in, path_in, question_about, report_in, task_for
from .report import compose
from .speech import Answer, Call, RuleModel
from .texts import clip

WAVE = 40
_Key = TypeVar("_Key")


class LeadModel(RuleModel):
    """Leads the readers of a folder and writes the report."""

    name = "lead"

    def decide(self, dialogue: Dialogue) -> Answer:
        """The next wave of calls, or the closing sentence."""
        listed = dialogue.answered("list_files")
        if listed is None:
            return Answer("I look at what is in the folder.", (Call("list_files", _limit_in(dialogue)),))
        folder = listed.read(FolderAnswer)
        if folder is None:
            return Answer(f"I cannot list the folder: {clip(listed.text)}")
        return _read(dialogue, folder) or _ask_back(dialogue) or _write(dialogue, folder)


def go_text(limit: int) -> str:
    """What the lead is told."""
    return f"Read the text files of the folder, at most {limit} of them, and write the report on what is in it."


def _limit_in(dialogue: Dialogue) -> dict[str, int]:
    found = re.search(r"at most (\d+)", dialogue.questions[-1]) if dialogue.questions else None
    return {"limit": int(found[1])} if found else {}


def _settled(dialogue: Dialogue, name: str, key: Callable[[Called], _Key]) -> dict[_Key, Called]:
    return {key(c): c for c in dialogue.of(name) if not c.failed or c.turn == dialogue.turn}


def _read(dialogue: Dialogue, folder: FolderAnswer) -> Answer | None:
    given = _settled(dialogue, "reader", lambda call: path_in(str(call.arguments.get("task", ""))))
    left = [file.path for file in folder.files if file.path not in given]
    if not left:
        return None
    wave = left[:WAVE]
    text = f"{len(left)} of {len(folder.files)} files to read; {len(wave)} go to readers now."
    return Answer(text, tuple(Call("reader", {"task": task_for(path)}) for path in wave))


def _reports(dialogue: Dialogue) -> dict[str, FileReport]:
    given = _settled(dialogue, "reader", lambda call: path_in(str(call.arguments.get("task", ""))))
    return {
        path: FileReport(path, problem=call.text) if call.failed else report_in(call.text, path)
        for path, call in given.items()
        if path is not None
    }


def _ask_back(dialogue: Dialogue) -> Answer | None:
    asked = _settled(dialogue, "ask_reader", lambda call: str(call.arguments.get("reader")))
    thin = [report for report in _reports(dialogue).values() if report.thin and report.reader not in asked]
    if not thin:
        return None
    wave = thin[:WAVE]
    calls = (Call("ask_reader", {"reader": report.reader, "question": question_about(report)}) for report in wave)
    return Answer(f"{len(thin)} reports are thin; I ask {len(wave)} readers back.", tuple(calls))


def _details(dialogue: Dialogue, reports: dict[str, FileReport]) -> dict[str, Detail]:
    asked = _settled(dialogue, "ask_reader", lambda call: str(call.arguments.get("reader")))
    by_path = {report.path: asked[report.reader] for report in reports.values() if report.reader in asked}
    return {
        path: Detail(path, problem=call.text) if call.failed else detail_in(call.text, path) for path, call in by_path.items()
    }


def _write(dialogue: Dialogue, folder: FolderAnswer) -> Answer:
    reports = _reports(dialogue)
    written = dialogue.answered("write_report")
    if written is None:
        text = compose(folder, reports, _details(dialogue, reports))
        return Answer("Every file is read; I write the report.", (Call("write_report", {"text": text}),))
    done = written.read(WrittenAnswer)
    if done is None:
        return Answer(f"I could not write the report: {clip(written.text)}")
    return Answer(f"I have read {len(reports)} files and written {done.report} ({done.bytes:,} bytes).")
