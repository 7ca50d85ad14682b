"""Tools whose body is the runtime's own: what a delegation and a handoff have in common.

To the model they are tools like any other; there is no function behind them, the call itself says what the runtime does. Nothing
such a call does is outside of the log, so it is always safe to run again, and no deadline of a body counts for it.
"""

from __future__ import annotations

import re
from typing import ClassVar

from msgspec import Struct

from ..storage.errors import UsageError
from ..storage.events.dialogue import Replay

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class AgentTool(Struct, frozen=True, eq=False, kw_only=True, repr_omit_defaults=True):
    """A tool that stands for another agent."""

    name: str
    """The tool's name."""
    description: str
    """What the model reads about it."""

    replay: ClassVar[Replay] = "safe"
    timeout: ClassVar[None] = None
    approval: ClassVar[None] = None


def tool_name(given: str | None, default: str, *, made_by: str) -> str:
    """The name that was given, or the default.

    Raises:
        UsageError: providers refuse it; `made_by` is the function that takes another as `name=`.
    """
    name = default if given is None else given
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a tool cannot be named {name!r}: letters, digits, _ and - only, 64 at most; write {made_by}(..., name='other')"
        )
    return name
