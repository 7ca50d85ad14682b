"""Commands that answer what the agent asks a person: `/allow` and `/deny`.

Only where the one who writes is the one who may decide: `Commands(decisions=True)`, with an `authority` in a group. The word is
in the append of the command's own records, so a command that comes twice never answers a second question.
"""

from __future__ import annotations

from collections.abc import Callable

from ...answers import Decide
from .context import CommandContext
from .declared import command


@command("/allow", control=True)
async def allow(ctx: CommandContext) -> Decide:
    """Let the call run that waits for your word."""
    return Decide("", verdict="allow", say=_saying("Allowed"))


@command("/deny", usage="/deny [WHY]", control=True)
async def deny(ctx: CommandContext, args: str) -> Decide:
    """Refuse the call that waits for your word, and say why."""
    return Decide("", verdict="deny", why=args or None, say=_saying("Refused"))


def _saying(word: str) -> Callable[[str | None], str]:
    return lambda question: "Nothing waits for your word." if question is None else f"{word}: {question}"


DECISIONS = [allow, deny]
