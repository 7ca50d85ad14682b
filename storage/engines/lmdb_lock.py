"""The lock of a folder: one process writes, and the file says which.

An flock goes away with its process, however that ends, so a lock is never stale. LMDB's own lock only keeps two *transactions*
apart; two systems that take turns on one agent's log would each believe their memory of it.
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from ..errors import StoreError, StoreInUse


class FolderLock:
    """The right to write to a folder, held from the constructor to `release`.

    Raises:
        StoreInUse: another process has it; its pid is in the message.
        StoreError: the lock file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        file = path / "lock"
        try:
            self._fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as e:
            raise StoreError(f"the folder {path} is not writable: {e.strerror}") from e
        try:
            self._lock()
        except OSError as e:
            pid = _pid_in(self._fd)
            os.close(self._fd)
            raise StoreInUse(
                f"{path} is in use by process {pid or 'unknown'}; stop that process, or open the store read-only", pid=pid
            ) from e
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def _lock(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # perhaps only somebody who looks, for an instant (`owner_of`)
            time.sleep(0.01)
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Let another process write; calling it again does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _pid_in(fd: int) -> int | None:
    text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else None


def owner_of(path: str | os.PathLike[str]) -> int | None:
    """The process that owns the folder now; None if none does. Only looks: the lock is asked for and given back at once."""
    try:
        fd = os.open(Path(path) / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _pid_in(fd) or -1
    finally:
        os.close(fd)
    return None
