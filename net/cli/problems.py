"""What an error says to whoever typed the command: one sentence, and an exit code that means something.

    0    the work is done
    1    the work failed: a turn ended badly, verify found problems, an input was refused
    2    the command itself cannot be: wrong words, no such agent, nothing to read
    3    another process owns the store
    4    the store cannot be read or written: a full disk, no permission, a newer format
    70   a fault of Callboard (CALLBOARD_DEBUG=1 shows where)
    130, 143    interrupted, terminated: open turns are suspended, and the same command goes on with them
    141  nobody reads the output any more

A person never sees a traceback unless CALLBOARD_DEBUG is set.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import cast

from msgspec import Struct

from ...storage.errors import CallboardError, ServiceError, StoreError, StoreInUse, UsageError

OK, FAILED, USAGE, IN_USE, STORE, FAULT = 0, 1, 2, 3, 4, 70
INTERRUPTED, PIPE_CLOSED, TERMINATED = 130, 141, 143


class Refused(UsageError):
    """The command cannot be carried out as it was typed; nothing was done. `code` is the exit code."""

    def __init__(self, message: str, *, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code


class Problem(Struct, frozen=True, omit_defaults=True):
    """An error as it leaves the command: its class, its sentence, the exit code, and the ids it knows."""

    error: str
    message: str
    exit: int
    agent: str | None = None
    turn: int | None = None
    step: int | None = None
    seq: int | None = None


def describe(error: BaseException) -> Problem:
    """What to say about the error; of a group, the first that says something to a person."""
    found = min(leaves(error), key=_rank)
    if isinstance(found, CallboardError):
        code = _code_of(found)
        return Problem(type(found).__name__, found.message, code, found.agent, found.turn, found.step, found.seq)
    if isinstance(found, KeyboardInterrupt):
        return Problem("Interrupted", "interrupted", INTERRUPTED)
    if isinstance(found, OSError):
        return Problem(type(found).__name__, _os_sentence(found), STORE)
    text = f"a fault of Callboard itself, {type(found).__name__}: {found}; CALLBOARD_DEBUG=1 shows where"
    return Problem(type(found).__name__, text, FAULT)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The error, or those in a group and its groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(inner)
    else:
        yield error


def _rank(error: BaseException) -> int:
    """Faults first, since they explain the rest; then what a person can act on; an interrupt last."""
    if isinstance(error, KeyboardInterrupt):
        return 3
    if isinstance(error, CallboardError):
        return 1
    return 2 if isinstance(error, OSError) else 0


def _code_of(error: CallboardError) -> int:
    match error:
        case Refused():
            return error.code
        case UsageError():
            return USAGE
        case StoreInUse():
            return IN_USE
        case StoreError() | ServiceError():
            return STORE
        case _:
            return FAILED


def _os_sentence(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}the disk is full; free some space and run the command again"
    return f"{where}{error.strerror or error}"
