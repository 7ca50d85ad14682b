"""Permissions: which tools may run at once, which never, and which only when a person says so.

Rules are names of tools with `*` and `?`. Denial beats a question, a question beats permission, and `default` is for tools that
no rule names. The question itself is durable: it outlives a restart, can be answered once, and expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Literal

from ...storage.errors import UsageError
from ..answers import Allow, Ask, Deny, ToolCall, Verdict
from ..checks import closest
from ..seams import Next, Plugin, SeamContext

Default = Literal["allow", "deny", "ask"]
_WORDS = ("allow", "deny", "ask")
SHOWN = 300
"""Characters of the arguments that a question shows."""


class Permissions(Plugin):
    """Allow, deny or ask, by the tool's name."""

    def __init__(
        self,
        *,
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        ask: Sequence[str] = (),
        default: Default = "allow",
        expires_s: float | None = None,
    ) -> None:
        """Set the rules; `expires_s` is how long a question waits, in seconds (None: for ever).

        Raises:
            UsageError: a rule is one text instead of a list, the default is none there is, or the time is negative.
        """
        for name, rules in (("allow", allow), ("deny", deny), ("ask", ask)):
            if isinstance(rules, str):
                raise UsageError(f"Permissions({name}={rules!r}) is one text; give a list: {name}=[{rules!r}]")
        if default not in _WORDS:
            raise UsageError(f"Permissions(default={default!r}) is none of allow, deny, ask{closest(str(default), _WORDS)}")
        if expires_s is not None and not expires_s >= 0:
            raise UsageError(f"Permissions(expires_s={expires_s!r}) is negative; None lets a question wait for ever")
        self._allow, self._deny, self._ask = tuple(allow), tuple(deny), tuple(ask)
        self._default: Default = default
        self._expires_s = expires_s

    def __repr__(self) -> str:
        return f"Permissions(allow={self._allow}, deny={self._deny}, ask={self._ask}, default={self._default!r})"

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict], /) -> Verdict:
        """Apply the first rule that names the tool; what is allowed here may still be refused further in."""
        word = self._word(call.name)
        if word == "deny":
            return Deny(f"The tool {call.name} is not permitted here.")
        verdict = await next(call)
        if word == "ask" and isinstance(verdict, Allow):
            arguments = call.rewritten(verdict.arguments).arguments
            shown = arguments if len(arguments) <= SHOWN else arguments[:SHOWN] + "…"
            return Ask(f"May {ctx.id} call {call.name} with {shown or 'no arguments'}?", self._expires_s, arguments)
        return verdict

    def _word(self, tool: str) -> Default:
        if _named(tool, self._deny):
            return "deny"
        if _named(tool, self._ask):
            return "ask"
        return "allow" if _named(tool, self._allow) else self._default


def _named(tool: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(tool, pattern) for pattern in patterns)
