"""Which files the demo reads: git's word where there is git, hidden names elsewhere, and a reason for each one left out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from callboard.net.demo import discovery
from callboard.net.demo.discovery import discover, is_text


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def git(folder: Path, *command: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *identity, "-C", str(folder), *command], check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The temporary folder may lie in somebody's work tree; git must not look above it.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    found = tmp_path / "notes"
    found.mkdir()
    return found


def test_text_files_in_order_of_their_paths(folder: Path) -> None:
    write(folder, {"b.txt": "b\n", "a/z.md": "# z\n", "a.txt": "", ".hidden": "x", ".dir/x": "x", "a/.git-keep": ""})
    listing = discover(folder)
    assert [(f.path, f.bytes) for f in listing.files] == [("a.txt", 0), ("a/z.md", 4), ("b.txt", 2)]
    assert listing.skipped == ()


def test_its_own_state_and_report_are_no_part_of_the_folder(folder: Path) -> None:
    write(folder, {"a.txt": "a", "report.md": "r", "sub/report.md": "r", "callboard-state/data.mdb": "d", "mine/data": "d"})
    listing = discover(folder, leave_out=(folder / "report.md", folder / "mine"))
    assert [f.path for f in listing.files] == ["a.txt", "sub/report.md"]


def test_what_is_left_out_is_listed_with_its_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MAX_BYTES", 100)
    write(folder, {"a.bin": b"\0\1", "b.latin": "é".encode("latin-1"), "c.txt": "x" * 101, "d.txt": "ok", "e.txt": "ok"})
    (folder / "link").symlink_to("d.txt")
    (folder / "out").symlink_to("/")
    os.mkfifo(folder / "pipe")
    assert [(s.path, s.why) for s in discover(folder, limit=1).skipped[3:]] == [
        (name, "beyond the limit of 1 files") for name in ("e.txt", "link", "out", "pipe")
    ]
    listing = discover(folder)
    assert [f.path for f in listing.files] == ["d.txt", "e.txt"]
    assert [(s.path, s.why.split(" (")[0]) for s in listing.skipped] == [
        ("a.bin", "binary"),
        ("b.latin", "binary"),
        ("c.txt", "too big"),
        ("link", "a symbolic link"),
        ("out", "a symbolic link"),
        ("pipe", "not a regular file"),
    ]


def test_an_unreadable_file_is_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, {"a.txt": "a", "b.txt": "b"})
    real = Path.open

    def refuse(self: Path, *args: object, **rest: object) -> object:
        if self.name == "a.txt":
            raise PermissionError(13, "Permission denied")
        return real(self, *args, **rest)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", refuse)
    listing = discover(folder)
    assert [(s.path, s.why) for s in listing.skipped] == [("a.txt", "cannot be read (Permission denied)")]


def test_a_name_that_is_not_utf8_is_listed_escaped(folder: Path) -> None:
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("x")
    assert [(s.path, s.why) for s in discover(folder).skipped] == [("caf\\udce9.txt", "its name is not UTF-8")]


def test_git_says_what_is_ignored(folder: Path) -> None:
    write(
        folder,
        {".gitignore": "*.log\nbuild/\n", "a.txt": "a", "b.log": "b", "build/c.txt": "c", "gone.txt": "g", "forced.log": "f"},
    )
    git(folder, "init", "-q")
    git(folder, "add", "-f", "a.txt", "gone.txt", "forced.log")
    (folder / "gone.txt").unlink()
    (folder / "new.txt").write_text("n")
    listing = discover(folder)
    assert listing.git
    assert [f.path for f in listing.files] == ["a.txt", "forced.log", "new.txt"]
    assert [f.path for f in discover(folder / "build").files] == ["c.txt"], "an ignored folder that is asked for is read"


def test_without_git_hidden_names_alone_are_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, {".gitignore": "*.log\n", "b.log": "b"})
    git(folder, "init", "-q")
    monkeypatch.setenv("PATH", "/nowhere")
    listing = discover(folder)
    assert ([f.path for f in listing.files], listing.git) == (["b.log"], False)


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        (tmp_path / "f").write_text("")
        discover(tmp_path / "f")
    with pytest.raises(FileNotFoundError):
        discover(tmp_path / "none")


def test_a_character_cut_at_the_end_of_the_sniffed_head_is_text() -> None:
    head = b"x" * (discovery.SNIFF_BYTES - 1) + "é".encode()[:1]
    assert is_text(head)
    assert not is_text(head[-10:]), "at the end of the file it is no character"
    assert is_text(b"")
