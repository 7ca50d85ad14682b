"""The page of figures is written from one run that was kept: tables between its marks, and plots."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import pytest

from callboard.storage.errors import UsageError

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])


def module(name: str) -> Any:
    return importlib.import_module(f"bench.{name}")


def kept() -> Any:
    return msgspec.json.decode((DOCS / "benchmarks.json").read_bytes(), type=module("compare").Run)


def test_the_page_says_what_the_run_that_is_kept_says() -> None:
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    assert module("page").written(text, kept()) == text, "run python -m bench.page"


def test_a_page_without_its_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="the marks of 'machine' once, and has them 0 times"):
        module("page").written("# What it costs\n", kept())


def test_every_plot_of_the_page_is_there_and_small() -> None:
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    for name in module("plots").PLOTS:
        assert f"(images/{name})" in text
        assert (DOCS / "images" / name).stat().st_size < 100_000


def test_plots_are_drawn_from_the_figures_and_twice_the_same(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rounds = module("page").rounds_of(kept())
    first = [path.read_bytes() for path in module("plots").draw(rounds, tmp_path)]
    assert len(first) == 3 and all(b"<svg" in picture for picture in first)
    assert [path.read_bytes() for path in module("plots").draw(rounds, tmp_path)] == first
    assert module("plots").draw({}, tmp_path) == [], "what did not run is not drawn"


def test_without_matplotlib_the_error_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = builtins.__import__

    def missing(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if name == "matplotlib":
            raise ImportError(name)
        return there(name, globals, locals, fromlist or (), level)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(UsageError, match=r"callboard\[plots\]"):
        module("plots").draw({"turn x200": []}, tmp_path)
