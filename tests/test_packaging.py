"""The wheel holds what the tree holds: every module of the four floors, the face, `py.typed`, and the command.

A package that is missing from the list in pyproject.toml works in every editable install and is silently absent from the wheel;
only building one shows it. The builds run on a copy, with the setuptools that is installed: no network, no litter here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FLOORS = ("actors", "mailbox", "net", "storage")
PAGE = "net/page/"
"""Files of no Python: the inspector's page, which the service serves out of the package."""


def sources() -> list[str]:
    """Files of the working tree that git tracks or would track; deleted ones left out, and programs that somebody put into the
    root to try something: setuptools would take them for modules of the package."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there is no list of tracked files to compare with")
    tracked = _listed("--cached")
    new = [n for n in _listed("--others", "--exclude-standard") if "/" in n]
    return [n for n in [*tracked, *new] if (ROOT / n).is_file() and not n.startswith(".types/")]


def _listed(*which: str) -> list[str]:
    done = subprocess.run(["git", "ls-files", *which, "-z"], cwd=ROOT, check=True, capture_output=True)
    return [n for n in done.stdout.decode().split("\0") if n]


def expected() -> set[str]:
    """The wheel's own files, as they should be."""
    modules = {n for n in sources() if n.split("/")[0] in FLOORS and (n.endswith((".py", "py.typed")) or n.startswith(PAGE))}
    return {f"callboard/{n}" for n in modules | {"__init__.py", "py.typed"} | {n for n in sources() if n == "__main__.py"}}


def run_backend(call: str, folder: Path, out: Path) -> Path:
    """Call a build hook of setuptools in `folder`; the file it made in `out`."""
    code = f"import sys, setuptools.build_meta as b; print(b.{call}(sys.argv[1]), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-P", "-c", code, str(out)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out / done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A wheel built from the tree, and one built from the tree's source distribution."""
    base = tmp_path_factory.mktemp("build")
    copy = base / "tree"
    for name in sources():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    archive = run_backend("build_sdist", copy, base / "sdist")
    with tarfile.open(archive) as tar:
        tar.extractall(base / "unpacked", filter="data")
    (unpacked,) = (base / "unpacked").iterdir()
    return run_backend("build_wheel", copy, base / "direct"), run_backend("build_wheel", unpacked, base / "again")


def own(wheel: Path) -> set[str]:
    """The wheel's files, its metadata left out."""
    with zipfile.ZipFile(wheel) as z:
        return {n for n in z.namelist() if ".dist-info/" not in n}


def test_the_wheel_holds_every_tracked_module(wheels: tuple[Path, Path]) -> None:
    assert own(wheels[0]) == expected()


def test_the_wheel_from_the_source_distribution_is_the_same(wheels: tuple[Path, Path]) -> None:
    direct, again = (zipfile.ZipFile(w) for w in wheels)
    with direct, again:
        assert sorted(direct.namelist()) == sorted(again.namelist())
        assert all(direct.read(n) == again.read(n) for n in own(wheels[0]))


def test_the_wheel_brings_the_command_and_the_licence(wheels: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(wheels[0]) as z:
        names = z.namelist()
        (entries,) = (n for n in names if n.endswith("entry_points.txt"))
        assert "callboard = callboard.net.cli:main" in z.read(entries).decode()
        assert "openai = callboard.net.adapters.openai:OpenAI" in z.read(entries).decode()
        assert any(n.endswith("LICENSE") for n in names)
