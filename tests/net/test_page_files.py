"""The inspector's files, read as text: what no browser has to be asked for. The page in a browser: tests/net/outside/."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from callboard.net.http.pages import HOME
from callboard.net.wire import METHODS
from callboard.storage.events import EVENTS

SCRIPTS = sorted(HOME.glob("*.js"))
SHEETS = sorted(HOME.glob("*.css"))
LONGEST = 320
MARKUP = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "createContextualFragment", "DOMParser", "srcdoc")
CODE = ("eval(", "new Function", "javascript:", 'setAttribute("style"', "import(")


def text(name: str) -> str:
    return (HOME / name).read_text(encoding="utf-8")


def quoted(block: str) -> list[str]:
    """The quoted words in a piece of code."""
    return re.findall(r'"([^"]+)"', block)


class Tags(HTMLParser):
    """Tags with their attributes, and the text inside scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style") and data.strip():
            self.inline.append(data)


def test_the_timeline_knows_every_type_of_record() -> None:
    listed = quoted(text("vocabulary.js").split("TYPES = [")[1])
    assert sorted([*listed, "assistant/chunk"]) == sorted(EVENTS)


def called() -> set[str]:
    """The methods that the page calls."""
    named = {name for script in SCRIPTS for name in re.findall(r'link\.call\(\s*"([a-z_]+)"', script.read_text(encoding="utf-8"))}
    return named | set(re.findall(r'^  \["([a-z]+)", "', text("actions.js").split("WAYS = [")[1].split("];")[0], re.MULTILINE))


def test_what_the_page_repeats_after_a_break_may_be_repeated() -> None:
    once = set(quoted(text("link.js").split("ONCE = new Set([")[1].split("]")[0]))
    assert {name for name in called() if not METHODS[name].repeatable} <= once
    assert not [name for name in once if METHODS[name].repeatable]


def test_every_method_that_the_page_calls_is_there() -> None:
    assert {"agents", "request", "answer", "fork", "cancel", "followup", "steer", "inject"} <= called() <= set(METHODS)


def test_the_document_has_no_script_and_no_style_of_its_own() -> None:
    page = Tags()
    page.feed(text("index.html"))
    assert page.inline == []
    for tag, attributes in page.tags:
        assert "style" not in attributes and not any(name.startswith("on") for name in attributes), tag
        for name in ("src", "href"):
            address = attributes.get(name)
            assert address is None or address.startswith(("/page/", "#")), f"{tag} loads {address}"
            if address is not None and address.startswith("/page/"):
                assert (HOME / address.removeprefix("/page/")).is_file(), address


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.name))
def test_scripts_make_no_markup_run_no_text_and_know_no_other_place(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    code = "\n".join(line for line in source.splitlines() if not line.lstrip().startswith(("//", "*", "/**")))
    assert not [word for word in (*MARKUP, *CODE) if word in code]
    assert not re.findall(r"(?:https?|wss?)://[^$]", code)
    assert source.startswith("// "), "a module opens with what it is"
    assert source.count("\n") <= LONGEST
    for module in re.findall(r'from "([^"]+)"', source):
        assert module.startswith("./") and (HOME / module).is_file(), module


@pytest.mark.parametrize("path", SHEETS, ids=lambda path: str(path.name))
def test_sheets_load_nothing(path: Path) -> None:
    assert not re.findall(r"url\(|@import|https?:", path.read_text(encoding="utf-8"))


def test_every_file_is_used() -> None:
    everything = "".join(path.read_text(encoding="utf-8") for path in (*SCRIPTS, *SHEETS, HOME / "index.html"))
    assert [path.name for path in HOME.iterdir() if f"/{path.name}" not in everything and path.name != "index.html"] == []


def test_the_dark_tokens_stand_twice_and_are_the_same() -> None:
    blocks = re.findall(r"color-scheme: dark;(.*?)\}", text("base.css"), re.DOTALL)
    assert len(blocks) == 2
    assert len({re.sub(r"\s+", " ", block).strip() for block in blocks}) == 1
