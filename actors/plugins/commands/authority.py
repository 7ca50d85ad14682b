"""Authority: who may run which command.

In a chat of one person everybody who writes is that person, so without a policy everybody may. In a group, name those who may
change the conversation; or decide for yourself, by a function that is given the context, the command's name and the sender.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection

from ....storage.errors import UsageError
from ...seams import SeamContext

CHANGING = frozenset({"/new", "/stop", "/model", "/compact", "/fork", "/undo", "/allow", "/deny"})
"""The built-in commands that change the conversation for everybody in it, or decide for them."""

Allow = Callable[[SeamContext, str, str | None], bool | Awaitable[bool]]
Authority = Allow | Collection[str] | None


def policy(authority: Authority) -> Allow:
    """The authority as a function: nothing lets everybody, names are those who may run what changes the conversation.

    Raises:
        UsageError: it is neither.
    """
    if authority is None:
        return _everybody
    if callable(authority):
        return authority
    if isinstance(authority, str) or not all(isinstance(name, str) for name in authority):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"authority={authority!r}: give a list of senders, or a function of (ctx, name, sender)")
    names = frozenset(authority)
    return lambda ctx, name, sender: name not in CHANGING or sender in names


async def allowed(allow: Allow, ctx: SeamContext, name: str) -> bool:
    """Whether whoever sent this may run the command."""
    answer = allow(ctx, name, ctx.sender)
    return bool(await answer if inspect.isawaitable(answer) else answer)


def _everybody(ctx: SeamContext, name: str, sender: str | None) -> bool:
    return True
