"""Pages that are drawn from the code are as the code is; links lead somewhere; what the README shows runs."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from callboard.actors.seams import SEAMS
from callboard.net.cli.parser import COMMANDS
from callboard.storage.events import EVENTS

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def load_generator() -> ModuleType:
    """docs/generate.py as a module; it belongs to no package."""
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


@pytest.mark.parametrize("name", sorted(GENERATOR.PAGES))
def test_c155_generated_pages_are_fresh(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == GENERATOR.PAGES[name](), "run make docs"


def test_c155_a_stale_page_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GENERATOR, "DOCS", tmp_path)
    assert GENERATOR.main(["--check"]) == 1
    assert GENERATOR.main([]) == 0
    assert GENERATOR.main(["--check"]) == 0
    (tmp_path / "states.md").write_text("a turn is what it was", encoding="utf-8")
    assert GENERATOR.stale() == ["states.md"]


@pytest.mark.parametrize("name", sorted(EVENTS))
def test_every_event_has_its_section(name: str) -> None:
    assert f"\n### `{name}`\n" in (DOCS / "events.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(SEAMS))
def test_every_seam_has_its_line(name: str) -> None:
    assert f"\n| `{name}` |" in (DOCS / "seams.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_section(name: str) -> None:
    assert f"\n## {name}\n" in (DOCS / "cli.md").read_text(encoding="utf-8")


# -- pages written by hand


def pages() -> list[Path]:
    return sorted(p.relative_to(ROOT) for p in (ROOT / "README.md", ROOT / "CHANGELOG.md", *DOCS.rglob("*.md")))


def links(text: str) -> Iterator[tuple[str, str]]:
    """File and anchor of every link that stays in the project."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            yield file, anchor


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as they are made from their words."""
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", pages(), ids=str)
def test_links_lead_somewhere(page: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for file, anchor in links(text):
        target = (ROOT / page).parent / file if file else ROOT / page
        assert target.exists(), f"{page} links to {file}, which is not there"
        if anchor:
            assert anchor in anchors(target.read_text(encoding="utf-8")), (
                f"{page} links to #{anchor}, which is not in {target.name}"
            )


def test_the_glossary_is_sorted_and_says_each_term_once() -> None:
    terms = re.findall(r"^\*\*(.+?)\*\*", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert terms == sorted(set(terms), key=str.lower)


# -- what the README shows


def readme_programs() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(readme_programs())))
def test_programs_of_the_readme_run_and_print_what_they_say(number: int, tmp_path: Path) -> None:
    program = readme_programs()[number]
    expected = re.findall(r"# prints: (.*)$", program, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert expected and done.stdout.splitlines() == expected
