"""A ledger of what tool bodies really did, in a file outside the store: how a test knows that no finished call ran twice.

The log cannot be its own witness, so each body appends one line here (effect key and process) before it returns. It is
switched on by the variable `CALLBOARD_EFFECTS` and costs nothing otherwise.
"""

from __future__ import annotations

import os

VARIABLE = "CALLBOARD_EFFECTS"


def note_effect(tool: str, effect_key: str) -> None:
    """Append one line: the tool, its effect key, the process. One write, so that lines of two threads never mix."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(ledger, f"{tool}\t{effect_key}\t{os.getpid()}\n".encode())
    finally:
        os.close(ledger)
