"""The programs of docs/examples and the code on the pages of docs/ run, with scripted models, and say what they promise.

An example names a provider, as a real program does; here a script answers for it. The code blocks of a page are one program, in
their order; they await at the top level as `python -m trio` lets one do. A comment `# prints: ...` promises a line of output.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import runpy
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from callboard import System
from callboard.actors.models.registry import BUILT_IN
from callboard.actors.seams import SEAMS, Plugin
from callboard.actors.testing import Reply, ScriptedModel

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with the examples importable."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    return tmp_path


def provide(monkeypatch: pytest.MonkeyPatch, *script: Reply) -> ScriptedModel:
    """A model that answers as `openai:...` until the test ends."""
    model = ScriptedModel(script, provider="openai")
    monkeypatch.setitem(BUILT_IN, "openai", lambda: model)
    return model


def run(name: str) -> dict[str, Any]:
    """Run an example as `python docs/examples/NAME` does."""
    return runpy.run_path(str(EXAMPLES / name), run_name="__main__")


# -- programs


def test_p01_hello(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    model = provide(monkeypatch, Reply.tools(("c1", "weather", {"city": "Oslo"})), Reply.text("A hat."))
    run("p01_hello.py")
    assert capsys.readouterr().out == "A hat.\n"
    assert model.requests[1].messages[-1].results == {"c1": "sunny in Oslo"}
    assert not list(folder.iterdir()), "it runs in memory"


@pytest.mark.usefixtures("folder")
def test_p12_typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = Reply.tools(("c1", "hotels", {"city": "Bergen"}), ("c2", "hotels", {"city": "Voss"}))
    model = provide(monkeypatch, calls, Reply.output({"city": "Bergen"}), Reply.output({"city": "Bergen", "nights": 2}))
    run("p12_typed.py")
    run("p12_typed.py")
    assert capsys.readouterr().out == "2 nights in Bergen\n" * 2
    assert len(model.requests) == 3, "the second run asks no model"
    assert "required field `nights`" in model.requests[2].messages[-1].results["answer"]
    results = {k: v for m in model.requests[1].messages for k, v in m.results.items()}
    assert results == {"c1": '[{"name":"Bryggen","price":140}]', "c2": "No hotels in 'Voss'; try a bigger city nearby."}


@pytest.mark.usefixtures("folder")
async def test_p12_deps_of_another_class_are_refused_at_open() -> None:
    planner = runpy.run_path(str(EXAMPLES / "p12_typed.py"))["planner"]
    with pytest.raises(TypeError, match=r"'planner' \(tools: hotels\) expects deps of Deps, not str"):
        async with System.open(":memory:", agents=[planner], deps="a database"):
            pass


P05 = sorted(re.findall(r"^async def (test_\w+)", (EXAMPLES / "p05_tests.py").read_text(encoding="utf-8"), re.MULTILINE))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", P05)
def test_p05_tests(name: str) -> None:
    try:
        run_test(getattr(importlib.import_module("p05_tests"), name))
    finally:
        for module in ("p05_tests", "myapp"):
            sys.modules.pop(module, None)


def test_every_example_is_run() -> None:
    tests = "".join(p.read_text(encoding="utf-8") for p in Path(__file__).parent.rglob("test_*.py"))
    forgotten = [p.name for p in EXAMPLES.glob("*.py") if p.stem not in tests]
    assert not forgotten


# -- pages


def blocks(page: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every block of Python on a page."""
    text = page.read_text(encoding="utf-8")
    for block in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        yield text.count("\n", 0, block.start(1)), block[1]


def compiled(page: Path, line: int, block: str) -> CodeType:
    """The block's code, with its place on the page in tracebacks."""
    code: CodeType = compile("\n" * line + block, str(page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code


PAGES = [p for p in sorted(DOCS.glob("*.md")) if any(blocks(p))]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.name))
def test_the_code_of_a_page_runs_and_prints_what_it_says(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    namespace: dict[str, Any] = {"__name__": page.stem}
    trio.run(run_page, page, namespace)
    expected = [line for _, block in blocks(page) for line in re.findall(r"# prints: (.*)$", block, re.MULTILINE)]
    assert capsys.readouterr().out.splitlines() == expected
    for name, value in namespace.items():
        if name.startswith("test_"):
            run_test(value)


@pytest.mark.usefixtures("folder")
def test_every_seam_is_reached_on_the_page_of_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: set[str] = set()
    check_class: Any = vars(Plugin)["__init_subclass__"].__func__

    def watched(cls: type[Plugin], /, **options: Any) -> None:
        check_class(cls, **options)
        for seam in SEAMS & vars(cls).keys():
            setattr(cls, seam, watched_seam(seam, vars(cls)[seam]))

    def watched_seam(seam: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def reach(*given: Any) -> Any:
            reached.add(seam)
            return method(*given)

        return reach

    monkeypatch.setattr(Plugin, "__init_subclass__", classmethod(watched))
    trio.run(run_page, DOCS / "plugins.md", {"__name__": "plugins"})
    assert reached == SEAMS


async def run_page(page: Path, namespace: dict[str, Any]) -> None:
    """The blocks of a page in order, in one namespace."""
    for line, block in blocks(page):
        code = compiled(page, line, block)
        done = eval(code, namespace)
        if code.co_flags & inspect.CO_COROUTINE:
            await done


def run_test(function: Callable[..., Awaitable[None]]) -> None:
    """A test that a page shows, as pytest-trio would run it; the only fixture is its clock."""
    arguments = [MockClock(autojump_threshold=0) for _ in inspect.signature(function).parameters]
    trio.run(function, *arguments, clock=arguments[0] if arguments else None)
