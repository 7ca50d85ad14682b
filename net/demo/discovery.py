"""Which files of a folder the demo reads, and why it does not read the others.

Read are text files in order of their paths. In a git work tree git itself says what is ignored; elsewhere only hidden names
are left out. A file is text if its first 8 KiB are UTF-8 without a NUL, which is what people mean by it; symbolic links are
not followed, so nothing outside the folder is ever read. Whatever is left out by more than its name is listed with the reason.
"""

from __future__ import annotations

import codecs
import os
import stat
import subprocess
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

SNIFF_BYTES = 8192
MAX_BYTES = 4 * 1024 * 1024
"""A file beyond this is listed, not read: every tool looks at whole files."""
DEFAULT_LIMIT = 400
MOST_FILES = 10_000
"""How many files a run reads if nobody says otherwise, and how many it can be asked for."""
STATE_NAME = "callboard-state"
_GIT_SECONDS = 30


class Found(Struct, frozen=True):
    """A file to read: its path within the folder, with `/`, and its size in bytes."""

    path: str
    bytes: int


class Skipped(Struct, frozen=True):
    """A file that is not read, and why."""

    path: str
    why: str


class Listing(Struct, frozen=True):
    """A folder as the demo sees it; `git` says whether git decided what is ignored."""

    files: tuple[Found, ...]
    skipped: tuple[Skipped, ...]
    git: bool = False


def discover(folder: Path, *, leave_out: Collection[Path] = (), limit: int | None = None) -> Listing:
    """The text files under `folder`, sorted by path, at most `limit` of them.

    `leave_out` names files and folders that are the demo's own (its state, its report).

    Raises:
        OSError: the folder itself cannot be read.
    """
    os.listdir(folder)  # a folder that cannot be read is an error, not an empty listing
    own = {Path(os.path.abspath(p)) for p in leave_out}
    from_git = _git_paths(folder)
    paths = from_git if from_git is not None else _walked_paths(folder, own)
    files: list[Found] = []
    skipped: list[Skipped] = []
    for path in sorted(p for p in paths if not _is_left_out(folder, p, own)):
        # Beyond the limit no file is opened: a folder may hold a hundred thousand.
        entry = _beyond(path, limit) if limit is not None and len(files) >= limit else _look_at(folder, path)
        if isinstance(entry, Found):
            files.append(entry)
        elif entry is not None:
            skipped.append(entry)
    return Listing(tuple(files), tuple(skipped), from_git is not None)


def _is_left_out(folder: Path, path: str, own: Collection[Path]) -> bool:
    parts = path.split("/")
    if any(part.startswith(".") for part in parts) or STATE_NAME in parts[:-1]:
        return True
    whole = Path(os.path.abspath(folder / path))
    return whole in own or any(parent in own for parent in whole.parents)


def _walked_paths(folder: Path, own: Collection[Path]) -> list[str]:
    found: list[str] = []
    for base, folders, names in os.walk(folder):
        # Pruned here, not only filtered later: hidden folders and the state may be huge.
        folders[:] = sorted(d for d in folders if not d.startswith(".") and Path(os.path.abspath(Path(base, d))) not in own)
        links = [d for d in folders if Path(base, d).is_symlink()]
        found += [Path(base, n).relative_to(folder).as_posix() for n in [*names, *links]]
    return found


def _git_paths(folder: Path) -> list[str] | None:
    """What git knows or would add; None where there is no git, no work tree, or the folder itself is ignored."""
    if _git(folder, "rev-parse", "--is-inside-work-tree") is None or _git(folder, "check-ignore", "-q", ".") is not None:
        return None
    listed = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is None:
        return None
    return sorted({os.fsdecode(name) for name in listed.split(b"\0") if name})


def _git(folder: Path, *command: str) -> bytes | None:
    """What git prints, or None if it is missing or refuses.

    The file-system monitor is switched off, since its setting is a program that the repository under inspection chooses;
    variables that point git at another repository are left out.
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", "-c", "core.fsmonitor=false", "-C", str(folder), *command],
            capture_output=True,
            timeout=_GIT_SECONDS,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _beyond(path: str, limit: int) -> Skipped:
    return Skipped(_shown(path), f"beyond the limit of {limit:,} files")


def _shown(path: str) -> str:
    """The path as text, with what is not UTF-8 in it escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


def _look_at(folder: Path, path: str) -> Found | Skipped | None:
    """The file as one to read, or the reason against it; None for one that is gone (git still lists it)."""
    if _shown(path) != path:
        return Skipped(_shown(path), "its name is not UTF-8")
    try:
        status = (folder / path).lstat()
        why = _reason_against(status) or _reason_in(folder / path)
    except FileNotFoundError:
        return None
    except OSError as e:
        return Skipped(path, f"cannot be read ({e.strerror})")
    return Skipped(path, why) if why else Found(path, status.st_size)


def _reason_against(status: os.stat_result) -> str | None:
    if stat.S_ISLNK(status.st_mode):
        return "a symbolic link"
    if not stat.S_ISREG(status.st_mode):
        return "a folder of its own (a submodule)" if stat.S_ISDIR(status.st_mode) else "not a regular file"
    if status.st_size > MAX_BYTES:
        return f"too big ({status.st_size:,} bytes; the limit is {MAX_BYTES:,})"
    return None


def _reason_in(path: Path) -> str | None:
    with path.open("rb") as file:
        return None if is_text(file.read(SNIFF_BYTES)) else "binary"


def is_text(head: bytes) -> bool:
    """Whether the beginning of a file looks like text: UTF-8, no NUL. A character cut at the end is no fault."""
    if b"\0" in head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=len(head) < SNIFF_BYTES)
    except UnicodeDecodeError:
        return False
    return True


def reasons(skipped: Iterable[Skipped]) -> Iterator[tuple[str, int]]:
    """Why files were skipped, in short, and how many each: for one line to a person."""
    counts: dict[str, int] = {}
    for entry in skipped:
        short = entry.why.split(" (")[0]
        counts[short] = counts.get(short, 0) + 1
    yield from sorted(counts.items())
