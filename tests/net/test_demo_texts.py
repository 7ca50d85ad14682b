"""Figures and outlines of the demo: against a person's tools, and against texts made to mislead them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from callboard.net.demo import texts
from callboard.net.demo.texts import Entry

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", ["README.md", "pyproject.toml", "storage/errors.py", "storage/messages.py", "LICENSE"])
def test_figures_are_those_of_wc(name: str) -> None:
    raw = (ROOT / name).read_bytes()
    counted = subprocess.run(
        ["wc", "-lwc"], input=raw, capture_output=True, check=True, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    ).stdout.split()
    facts = texts.facts(name, raw)
    assert [facts.lines, facts.words, facts.bytes] == [int(n) for n in counted]


def test_a_last_line_without_an_end_is_a_line_to_read_but_not_to_wc() -> None:
    facts = texts.facts("a.txt", b"one\ntwo")
    assert (facts.lines, texts.lines_of(b"one\ntwo")) == (1, ["one", "two"])
    assert texts.lines_of(b"") == []
    assert texts.lines_of(b"a\r\nb\r\n") == ["a", "b"]


def test_terms_are_those_of_grep() -> None:
    raw = (ROOT / "storage/errors.py").read_bytes()
    for term, count in texts.terms(raw, 5):
        found = subprocess.run(["grep", "-oiw", term], input=raw, capture_output=True, check=True).stdout
        assert len(found.splitlines()) == count, term


def test_terms_break_ties_by_name_and_leave_common_words_out() -> None:
    assert texts.terms(b"zebra apple apple ZEBRA which which which my_zebra abc", 5) == [("apple", 2), ("zebra", 2)]
    assert texts.terms(b"zebra", 0) == []


def test_headings_of_markdown_skip_code() -> None:
    raw = b"# One #\n\n```sh\n# not one\n~~~\n```\n## Two\n#hash\n~~~~\n# nor this\n~~~\n~~~~\n### Three\n"
    assert texts.headings("a.md", raw) == [Entry(1, "# One"), Entry(7, "## Two"), Entry(13, "### Three")]


def test_headings_elsewhere_are_underlined() -> None:
    assert texts.headings("a.rst", b"Title\n=====\n\ntext\n\nPart\n----\n| a |\n") == [Entry(1, "Title"), Entry(6, "Part")]
    assert texts.headings("a.txt", b"====\n====\n\n------\nlong line here\n---\n") == []


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("a.py", b"class A:\n    def m(self): ...\n\nasync def f(): ...\ndef g(): (\n", ["class A", "def f", "def g"]),
        ("a.js", b"export default class A {}\nfunction* gen() {}\nconst x = 1\n", ["class A", "function gen"]),
        ("a.ts", b"export interface I {}\nexport async function f() {}\n", ["interface I", "function f"]),
        ("a.go", b"func (s *S) Do() {}\ntype S struct{}\n", ["func Do", "type S"]),
        ("a.rs", b"pub(crate) fn f() {}\nstruct S;\n", ["fn f", "struct S"]),
        ("a.sh", b"go() {\n}\nfunction stop() {\n}\n", ["function go", "function stop"]),
        ("a.c", b"struct point {\nint x;\n};\nstruct point p;\n", ["struct point"]),
        ("a.json", b'{"class A": 1}\n', []),
    ],
)
def test_definitions_are_lines_that_begin_like_one(name: str, raw: bytes, expected: list[str]) -> None:
    assert [entry.text for entry in texts.definitions(name, raw)] == expected


def test_slices_count_from_one_and_clip() -> None:
    raw = b"a\nb\n" + b"x" * 500 + b"\n"
    assert texts.slice_of(raw, 2, 1) == ["b"]
    assert [len(line) for line in texts.slice_of(raw, 3, 9)] == [texts.CLIP]
    assert texts.slice_of(raw, 0, 1) == ["a"]
    assert texts.slice_of(raw, 9, 5) == []


def test_longest_lines_come_with_their_numbers() -> None:
    assert texts.longest_lines(b"aa\nbbbb\ncccc\n", 2) == [Entry(2, "4 characters: bbbb"), Entry(3, "4 characters: cccc")]


def test_what_is_no_utf8_beyond_the_sniffed_head_is_still_counted() -> None:
    facts = texts.facts("a.txt", b"good\n\xff\xfe bad\n")
    assert (facts.lines, facts.bytes) == (2, 12)
