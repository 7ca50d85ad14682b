"""The rules of the house that a machine can hold: short modules, short functions, words on everything public, no swallowed error.

Each rule is a function of a module's tree, tried on a bad example first, so that a rule that can no longer fail is seen.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("storage", "mailbox", "actors", "net")
LONGEST_MODULE = 400
LONGEST_FUNCTION = 60

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Rule = Callable[[str, Path], Iterator[str]]


def files(*folders: str) -> list[Path]:
    return sorted(p.relative_to(ROOT) for folder in folders for p in (ROOT / folder).rglob("*.py"))


def short_modules(source: str, path: Path) -> Iterator[str]:
    """A module over 400 lines says in its docstring why it is one module."""
    lines = source.count("\n")
    if lines > LONGEST_MODULE and "one module" not in (ast.get_docstring(ast.parse(source)) or ""):
        yield f"{path}: {lines} lines; split it, or say in its docstring why it is one module"


def short_functions(source: str, path: Path) -> Iterator[str]:
    """No function over 60 lines, its docstring not counted."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= (node.body[0].end_lineno or 0) - node.body[0].lineno + 1
            if lines > LONGEST_FUNCTION:
                yield f"{path}:{node.lineno}: {node.name} has {lines} lines"


def module_docstrings(source: str, path: Path) -> Iterator[str]:
    """A module that holds anything says first what it is."""
    tree = ast.parse(source)
    if tree.body and ast.get_docstring(tree) is None:
        yield f"{path}: the first line of a module says what it is"


def public_docstrings(source: str, path: Path) -> Iterator[str]:
    """Every public class and function, and every public method that is not an override of one, has a docstring."""
    for owner, node in public(ast.parse(source)):
        if ast.get_docstring(node) is None and not excused(owner, node):
            yield f"{path}:{node.lineno}: {node.name} is public and has no docstring"


def public(tree: ast.Module) -> Iterator[tuple[ast.ClassDef | None, Definition]]:
    """Public definitions of a module and of its public classes, with the class they are in."""
    for node in tree.body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield None, node
            if isinstance(node, ast.ClassDef):
                yield from ((node, n) for n in node.body if isinstance(n, Definition) and not n.name.startswith("_"))


def excused(owner: ast.ClassDef | None, node: Definition) -> bool:
    """Methods of a subclass take their meaning from the base; so do overloads, setters, and the members of a protocol's twin."""
    decorators = {ast.unparse(d).split(".")[-1] for d in node.decorator_list}
    return bool(decorators & {"overload", "setter", "override"}) or (owner is not None and bool(owner.bases))


def no_swallowed_errors(source: str, path: Path) -> Iterator[str]:
    """`except Exception: pass`, in any spelling, hides what went wrong."""
    wide = {"Exception", "BaseException"}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ExceptHandler):
            caught = {"Exception"} if node.type is None else {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)}
            if caught & wide and all(nothing(n) for n in node.body):
                yield f"{path}:{node.lineno}: an exception is swallowed"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            yield from (f"{path}:{node.lineno}: an exception is swallowed" for a in node.args if ast.unparse(a) in wide)


def nothing(node: ast.stmt) -> bool:
    """Whether a statement does nothing."""
    return isinstance(node, ast.Pass | ast.Continue) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def no_print(source: str, path: Path) -> Iterator[str]:
    """Only `net/` talks to people."""
    for node in ast.walk(ast.parse(source)):
        if path.parts[0] != "net" and isinstance(node, ast.Call) and ast.unparse(node.func) == "print":
            yield f"{path}:{node.lineno}: print belongs to net/"


def nothing_unfinished(source: str, path: Path) -> Iterator[str]:
    """What is not done is not in the tree: it is in an issue."""
    for number, line in enumerate(source.splitlines(), 1):
        if any(mark in line for mark in UNFINISHED):
            yield f"{path}:{number}: {line.strip()}"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.exc is not None and "NotImplementedError" in ast.unparse(node.exc):
            yield f"{path}:{node.lineno}: a method that is not implemented"


UNFINISHED = tuple("# " + mark for mark in ("TODO", "FIXME", "XXX", "HACK"))

CODE: list[Rule] = [short_modules, short_functions, module_docstrings, no_swallowed_errors, nothing_unfinished]
FLOOR: list[Rule] = [public_docstrings, no_print]


@pytest.mark.parametrize("rule", CODE)
def test_all_code(rule: Rule) -> None:
    check(rule, files(*FLOORS, "tests", "bench", "docs"))


@pytest.mark.parametrize("rule", FLOOR)
def test_the_floors(rule: Rule) -> None:
    check(rule, files(*FLOORS))


def check(rule: Rule, paths: list[Path]) -> None:
    bad = [line for p in paths for line in rule((ROOT / p).read_text(encoding="utf-8"), p)]
    assert not bad, "\n".join([(rule.__doc__ or "").strip(), *bad])


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (short_modules, '"""Long."""\n' + "x = 1\n" * 401),
        (short_functions, "def f() -> None:\n" + "    x = 1\n" * 61),
        (module_docstrings, "x = 1\n"),
        (public_docstrings, "def f() -> None:\n    x = 1\n"),
        (public_docstrings, 'class C:\n    """A class."""\n    def f(self) -> None:\n        x = 1\n'),
        (no_swallowed_errors, "try:\n    f()\nexcept Exception:\n    pass\n"),
        (no_swallowed_errors, "try:\n    f()\nexcept (ValueError, BaseException):\n    ...\n"),
        (no_swallowed_errors, "with contextlib.suppress(Exception):\n    f()\n"),
        (no_print, "print('hello')\n"),
        (nothing_unfinished, "x = 1  # TO" + "DO: two\n"),
        (nothing_unfinished, "def f() -> None:\n    raise NotImplementedError\n"),
    ],
)
def test_a_broken_rule_is_seen(rule: Rule, source: str) -> None:
    assert list(rule(source, Path("storage/example.py")))


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (short_modules, '"""Long, and one module because the table is read as a whole."""\n' + "x = 1\n" * 401),
        (public_docstrings, "def _f() -> None:\n    x = 1\n"),
        (no_swallowed_errors, "try:\n    f()\nexcept KeyError:\n    pass\n"),
        (no_swallowed_errors, "try:\n    f()\nexcept Exception as e:\n    report(e)\n"),
    ],
)
def test_what_is_allowed_passes(rule: Rule, source: str) -> None:
    assert list(rule(source, Path("storage/example.py"))) == []
