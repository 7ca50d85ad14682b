"""The demo's models alone: a stage that runs their calls on the real tools, without a runtime, shows what they decide."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.actors.testing.contexts import tool_context
from callboard.net.demo import tools
from callboard.net.demo.dialogue import read_dialogue
from callboard.net.demo.findings import FileReport, report_in, task_for
from callboard.net.demo.lead import LeadModel, go_text
from callboard.net.demo.reader import ReaderModel
from callboard.net.demo.speech import Answer, Call, RuleModel, pieces
from callboard.net.demo.tools import Stage
from callboard.storage.errors import ToolError
from callboard.storage.messages import (
    Message,
    PluginSource,
    Request,
    TextBlock,
    ToolCallBlock,
    ToolCallDelta,
    ToolResultBlock,
    ToolSource,
)

Work = Callable[[Call], str]


class Person:
    """Plays the runtime for one agent: keeps the messages, runs the calls, until the model only speaks."""

    def __init__(self, model: RuleModel, work: Work) -> None:
        self.model, self.work = model, work
        self.messages: list[Message] = []
        self.steps: list[Answer] = []

    def ask(self, text: str) -> str:
        self.messages.append(Message(f"u{len(self.messages)}", "user", (TextBlock(text),)))
        while True:
            dialogue = read_dialogue(self.messages)
            answer = self.model.decide(dialogue)
            self.steps.append(answer)
            made = [(f"c{len(dialogue.calls) + n}", call) for n, call in enumerate(answer.calls)]
            blocks = [ToolCallBlock(i, call.name, msgspec.json.encode(call.arguments).decode()) for i, call in made]
            self.messages.append(Message(f"a{len(self.messages)}", "assistant", (TextBlock(answer.text), *blocks)))
            if not made:
                return answer.text
            self.messages += [self._result(i, call) for i, call in made]

    def _result(self, call_id: str, call: Call) -> Message:
        try:
            content, failed = self.work(call), False
        except ToolError as error:
            content, failed = error.message, True
        block = ToolResultBlock(call_id, (TextBlock(content),), is_error=failed)
        return Message(f"t{call_id}", "tool", (block,), ToolSource(call_id))


class Stand:
    """The tools over one folder, with the readers as persons of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.report = folder, folder / "report.md"
        self.readers: dict[str, Person] = {}
        self.lead = Person(LeadModel(), self.run)

    def run(self, call: Call, agent: str = "lead") -> str:
        if call.name == "reader":
            name = f"lead/{len(self.readers)}"
            self.readers[name] = Person(ReaderModel(), lambda inner: self.run(inner, name))
            return self.readers[name].ask(call.arguments["task"])
        if call.name == "ask_reader":
            return self.readers[call.arguments["reader"]].ask(call.arguments["question"])
        context = tool_context(
            deps=Stage(self.folder / "callboard-state"),
            labels={"folder": str(self.folder), "report": str(self.report)},
            agent=type("Handle", (), {"id": agent})(),
        )
        tool: Any = getattr(tools, call.name)
        return msgspec.json.encode(tool(context, **call.arguments)).decode()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    found = tmp_path / "notes"
    found.mkdir()
    (found / "guide.md").write_text("# Guide\n\nHow the harbour works.\n\n## Cranes\n\nThe harbour has cranes.\n")
    (found / "crane.py").write_text('"""Cranes."""\n\nclass Crane:\n    pass\n\ndef lift(): ...\n')
    (found / "log.csv").write_text("".join(f"{n},harbour\n" for n in range(30)))
    (found / "short.txt").write_text("nothing much\n")
    (found / "crane.png").write_bytes(b"\x89PNG\0")
    return found


def test_a_reader_looks_before_it_reports(folder: Path) -> None:
    stand = Stand(folder)
    reader = Person(ReaderModel(), lambda call: stand.run(call, "lead/x"))
    report = report_in(reader.ask(task_for("guide.md")), "guide.md")
    assert [[call.name for call in step.calls] for step in reader.steps] == [
        ["file_facts"],
        ["read_slice"],
        ["list_headings", "count_terms"],
        [],
    ]
    raw = (folder / "guide.md").read_bytes()
    assert report == FileReport(
        path="guide.md",
        reader="lead/x",
        kind="markdown",
        bytes=len(raw),
        lines=7,
        words=12,
        longest_line=23,
        sha256=hashlib.sha256(raw).hexdigest(),
        opening="Guide",
        outline="headings",
        entries=report.entries,
        total=2,
        terms=(("cranes", 2), ("harbour", 2), ("guide", 1), ("works", 1)),
    )
    assert [entry.text for entry in report.entries] == ["# Guide", "## Cranes"]


def test_a_reader_whose_file_is_gone_says_so(folder: Path) -> None:
    stand = Stand(folder)
    for path, why in (("none.md", "No such file"), ("../notes/x/../../y", "not in the folder"), ("/etc/hostname", "not in")):
        reader = Person(ReaderModel(), stand.run)
        report = report_in(reader.ask(task_for(path)), path)
        assert why in report.problem


def test_the_lead_asks_back_where_a_report_is_thin_and_writes_what_can_be_checked(folder: Path) -> None:
    stand = Stand(folder)
    said = stand.lead.ask(go_text(400))
    names = [[call.name for call in step.calls] for step in stand.lead.steps]
    assert names == [["list_files"], ["reader"] * 4, ["ask_reader"], ["write_report"], []]
    assert stand.lead.steps[2].calls[0].arguments["reader"] == "lead/2", "the table has neither headings nor definitions"
    text = stand.report.read_text()
    assert "report.md" in said
    assert "| csv | 1 | 30 | 30 | 320 |" in text
    assert "- asked back, the reader adds its longest lines: line 11, `10 characters: 10,harbour`" in text
    assert "- and how it ends, at line 30: `29,harbour`" in text
    assert "- 2 definitions (line): `class Crane` (3), `def lift` (6)" in text
    assert "- `crane.png`: binary" in text


def test_the_same_folder_gives_the_same_bytes(folder: Path) -> None:
    reports: list[bytes] = []
    for _ in range(2):
        stand = Stand(folder)
        stand.lead.ask(go_text(400))
        reports.append(stand.report.read_bytes())
    assert reports[0] == reports[1]


def test_the_lead_reads_no_more_than_it_was_told_and_says_what_it_left(folder: Path) -> None:
    stand = Stand(folder)
    stand.lead.ask(go_text(1))
    assert len(stand.readers) == 1
    assert "`guide.md`: beyond the limit of 1 files" in stand.report.read_text()


def test_files_go_out_in_waves(folder: Path) -> None:
    for n in range(100):
        (folder / f"f{n:03d}.txt").write_text("x\n")
    stand = Stand(folder)
    stand.lead.ask(go_text(400))
    waves = [len(step.calls) for step in stand.lead.steps if step.calls and step.calls[0].name == "reader"]
    assert waves == [40, 40, 24]


def test_a_report_that_could_not_be_written_is_written_when_it_is_told_again(folder: Path) -> None:
    (folder / "report.md").write_text("my own words\n")
    stand = Stand(folder)
    assert "could not write the report" in stand.lead.ask(go_text(400))
    assert (folder / "report.md").read_text() == "my own words\n"
    (folder / "report.md").unlink()
    readers = len(stand.readers)
    assert "written report.md" in stand.lead.ask(go_text(400))
    assert len(stand.readers) == readers, "what is read is not read again"


def test_runtime_context_is_no_question() -> None:
    context = Message("p", "user", (TextBlock("It is Monday."),), PluginSource("clock"))
    question = Message("u", "user", (TextBlock(go_text(3)),))
    assert read_dialogue([question, context]).questions == (go_text(3),)


async def test_an_answer_streams_in_pieces_with_ids_that_are_never_used_twice() -> None:
    earlier = Message("a", "assistant", (ToolCallBlock("list_files-1", "list_files", "{}"),))
    listing = b'{"folder":"n","files":[{"path":"a","bytes":1},{"path":"b","bytes":1}]}'
    result = ToolResultBlock("list_files-1", (TextBlock(listing.decode()),))
    messages = [
        Message("u", "user", (TextBlock(go_text(9)),)),
        earlier,
        Message("t", "tool", (result,), ToolSource("list_files-1")),
    ]
    chunks = [c async for c in LeadModel().stream(Request(provider="rules", model="lead", messages=messages))]
    assert [c.id for c in chunks if isinstance(c, ToolCallDelta) and c.id] == ["reader-2", "reader-3"]
    assert "".join(pieces("x" * 1000)) == "x" * 1000
    assert len(list(pieces("x" * 1000))) == 8


def test_a_folder_of_many_odd_files_is_named_up_to_a_point_and_then_counted(folder: Path) -> None:
    for n in range(300):
        (folder / f"z{n:03d}.bin").write_bytes(b"\0")
    (folder / "many.py").write_text("".join(f"def f{n}(): ...\n" for n in range(500)))
    stand = Stand(folder)
    stand.lead.ask(go_text(400))
    text = stand.report.read_text()
    assert "301 files left out" in text
    assert text.count("bin`: binary") == 49
    assert text.endswith("- and more: 251 binary\n")
    assert "- 500 definitions (line): `def f0` (1), " in text and "`def f11` (12), and 488 more" in text
    listing = stand.lead.messages[2].text
    assert len(listing) < 10_000
