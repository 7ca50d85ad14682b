"""The house: four floors, arrows that point down, names that are chosen, pins that agree.

These tests read the tree itself: a new floor, an arrow up, a forgotten name or a stale pin fails here and not at a user's.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import callboard

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("storage", "mailbox", "actors", "net")
"""From the ground up: each may import those before it."""

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def modules() -> list[Path]:
    """Every module of the four floors, as a path below the root."""
    return sorted(p.relative_to(ROOT) for floor in FLOORS for p in (ROOT / floor).rglob("*.py"))


def dotted(path: Path) -> str:
    """The module's import name."""
    parts = path.with_suffix("").parts
    return ".".join(("callboard", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def packages() -> list[str]:
    """Every package, the face included."""
    return ["callboard", *(dotted(p) for p in modules() if p.name == "__init__.py")]


# -- one package, imported once


def test_the_package_is_imported_once() -> None:
    faces = [n for n, m in sys.modules.items() if getattr(m, "__file__", None) == callboard.__file__]
    assert faces == ["callboard"]


def test_the_package_is_this_checkout() -> None:
    assert Path(str(callboard.__file__)).resolve().parent == ROOT


def test_mailbox_of_the_standard_library_is_its_own() -> None:
    standard = importlib.import_module("mailbox")
    assert Path(str(standard.__file__)).resolve().parent == Path(sysconfig.get_path("stdlib")).resolve()


# -- arrows point down


def imported(source: str, module: Path) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import in a module's text, relative ones resolved."""
    package = ("callboard", *module.parent.parts)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            whole = ".".join((*base, *(node.module or "").split("."))).rstrip(".")
            yield from ((node.lineno, f"{whole}.{alias.name}") for alias in node.names)


def arrows_up(source: str, module: Path) -> list[str]:
    """The imports that point to a floor above the module's own, or to the face, which stands on all of them."""
    own = FLOORS.index(module.parts[0])
    allowed = FLOORS[: own + 1]
    bad: list[str] = []
    for line, name in imported(source, module):
        parts = name.split(".")
        if parts[0] in FLOORS:
            bad.append(f"{module}:{line}: {name} is not imported as part of callboard")
        if parts[0] == "callboard" and len(parts) > 1 and parts[1] not in allowed:
            bad.append(f"{module}:{line}: {name} is above {module.parts[0]}")
        if name == "callboard":
            bad.append(f"{module}:{line}: the face is above every floor")
    return bad


def test_imports_point_down_only() -> None:
    bad = [b for m in modules() for b in arrows_up((ROOT / m).read_text(encoding="utf-8"), m)]
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("storage/log.py", "from ..mailbox import Inbox"),
        ("storage/events/base.py", "from ...actors.turn import Turn"),
        ("storage/log.py", "from .. import net"),
        ("mailbox/inbox.py", "import callboard.actors"),
        ("actors/turn.py", "def f() -> None:\n    from ..net.cli import main"),
        ("actors/turn.py", "import storage"),
        ("actors/turn.py", "from callboard import Agent"),
    ],
)
def test_an_arrow_up_is_seen(module: str, source: str) -> None:
    assert arrows_up(source, Path(module))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("net/cli.py", "from ..storage.errors import StoreInUse"),
        ("storage/events/around.py", "from ..messages import Block"),
        ("mailbox/__init__.py", "from .inbox import Inbox\nfrom ..storage import Record"),
        ("actors/turn.py", "import trio\nfrom msgspec import Struct"),
        ("actors/turn.py", "from .. import storage\nfrom . import plugins"),
    ],
)
def test_an_arrow_down_is_allowed(module: str, source: str) -> None:
    assert arrows_up(source, Path(module)) == []


# -- the loop knows no policy

MAY_NAME_POLICIES = {"actors/policies.py", "actors/__init__.py"}
"""Where an agent that names no plugins gets the default ones, and the package's face."""


def policies_named(source: str, module: Path) -> list[str]:
    """The imports that reach into actors/plugins/, from a module of actors/ that has to run without."""
    if module.parts[:2] == ("actors", "plugins") or str(module) in MAY_NAME_POLICIES:
        return []
    named = (f"{module}:{line}: {name}" for line, name in imported(source, module))
    return [line for line in named if ": callboard.actors.plugins" in line]


def test_removing_every_plugin_leaves_the_bare_machine() -> None:
    loop = [m for m in modules() if m.parts[0] in ("storage", "mailbox", "actors")]
    bad = [b for m in loop for b in policies_named((ROOT / m).read_text(encoding="utf-8"), m)]
    assert not bad, "the loop knows no policy:\n" + "\n".join(bad)


@pytest.mark.parametrize(
    ("module", "source", "count"),
    [
        ("actors/turn.py", "from .plugins import Retry", 1),
        ("actors/turn.py", "from . import plugins", 1),
        ("actors/tools/tool.py", "def f() -> None:\n    from ..plugins.retry import Retry", 1),
        ("actors/policies.py", "from .plugins.defaults import default_plugins", 0),
        ("actors/plugins/budget.py", "from .ledger import Ledger", 0),
        ("actors/turn.py", "from .seams import Plugin", 0),
    ],
)
def test_a_policy_in_the_loop_is_seen(module: str, source: str, count: int) -> None:
    assert len(policies_named(source, Path(module))) == count


# -- names are chosen


def own_names(package: ModuleType) -> set[str]:
    """What a package's `__init__` binds by name: neither its submodules nor what it needs for itself."""
    source = Path(str(package.__file__)).read_text(encoding="utf-8")
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__" and node.level:
            found.update(a.asname or a.name for a in node.names)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found.update(t.id for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
    return {n for n in found if not n.startswith("_")}


def as_ruff_sorts(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order of ruff's RUF022."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("name", packages())
def test_all_is_sorted_and_is_what_is_there(name: str) -> None:
    package = importlib.import_module(name)
    names = list(getattr(package, "__all__", []))
    assert names == sorted(names, key=as_ruff_sorts), f"sort __all__ of {name}: constants, classes, functions"
    assert len(names) == len(set(names)), f"{name} names something twice"
    there = own_names(package)
    assert not (there - set(names)), f"{name} binds names that its __all__ does not list: {sorted(there - set(names))}"
    missing = [n for n in names if not hasattr(package, n)]
    assert not missing, f"__all__ of {name} lists names that are not there: {missing}"


@pytest.mark.parametrize("name", packages())
def test_a_package_with_names_opens_with_a_map(name: str) -> None:
    package = importlib.import_module(name)
    if getattr(package, "__all__", []):
        assert len((package.__doc__ or "").strip()) > 40, f"{name}/__init__.py starts with a short map of what is inside"


# -- pins agree


def pins(lines: list[str]) -> dict[str, str]:
    """Normalised name → version of `name==version` lines."""
    found: dict[str, str] = {}
    for line in lines:
        name, version = line.split("==")
        found[normal(name)] = version
    return found


def normal(requirement: str) -> str:
    """A requirement's name as package indexes compare it."""
    name = re.split(r"[<>=!~;\[ ]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def constraint_lines() -> list[str]:
    return (ROOT / "constraints.txt").read_text(encoding="utf-8").split()


def test_both_lists_of_pins_agree() -> None:
    assert PROJECT["tool"]["uv"]["constraint-dependencies"] == constraint_lines()


def test_every_dependency_is_pinned() -> None:
    project = PROJECT["project"]
    wanted = [*project["dependencies"]]
    for some in (*project["optional-dependencies"].values(), *PROJECT["dependency-groups"].values()):
        wanted += some
    assert {normal(w) for w in wanted} <= set(pins(constraint_lines()))


def test_no_address_is_written_beside_the_pins() -> None:
    text = (ROOT / "constraints.txt").read_text(encoding="utf-8") + (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "://" not in text


# -- what type checkers and the wheel see


def test_the_checkers_view_links_every_floor() -> None:
    view = ROOT / ".types" / "callboard"
    for name in (*FLOORS, "__init__.py", "py.typed"):
        assert (view / name).resolve() == ROOT / name


def test_every_package_is_listed_for_the_wheel() -> None:
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == sorted(packages())


def test_the_list_of_packages_is_sorted() -> None:
    listed: list[str] = PROJECT["tool"]["setuptools"]["packages"]
    assert listed == sorted(listed)
