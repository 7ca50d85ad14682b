"""`command`: a function as a command of your own.

    @command("/karma", usage="/karma NAME")
    async def karma(ctx, args): ...

The function stays what it was, for tests to call. Whether the command takes arguments is whether the function does.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from ....storage.errors import UsageError
from ...answers import Answer, Replace
from .context import CommandContext
from .router import Spec

Said = str | Answer | Replace | None
"""What a command gives: a text, more than a text, a rewrite of the model's view, or nothing (then the answer is "Done.")."""
Handler = Callable[..., Awaitable[Said]]


class UserCommand:
    """A command: its name, and the function behind it. Made by `command`."""

    def __init__(self, function: Handler, *, name: str, usage: str | None, control: bool, about: str) -> None:
        self.function = function
        takes = _takes_arguments(function)
        self.spec = Spec(name, usage or (f"{name} ..." if takes else name), control, takes, about)
        self.__doc__ = function.__doc__

    def __repr__(self) -> str:
        return f"<command {self.spec.name}>"

    def __call__(self, *arguments: Any) -> Awaitable[Said]:
        """The plain function."""
        return self.function(*arguments)

    async def run(self, ctx: CommandContext, arguments: str) -> Said:
        """Run it as typed."""
        return await (self.function(ctx, arguments) if self.spec.takes else self.function(ctx))


def command(name: str, *, usage: str | None = None, control: bool = False) -> Callable[[Handler], UserCommand]:
    """Make an `async def f(ctx, args)`, or `f(ctx)` for one without arguments, a command: `Commands(f)` adds it.

    Args:
        name: a slash and a word, or several: "/karma", "/karma list". Case does not matter.
        usage: how to type it, for `/help`. The first line of the docstring says what it does.
        control: act at once, also beside a running turn. Such a command may not rewrite the model's view, and must be quick:
            whoever sends waits for it.

    Raises:
        UsageError: the function is not `async def`, or takes something else.
    """

    def decorate(function: Handler) -> UserCommand:
        if not inspect.iscoroutinefunction(function):
            raise UsageError(
                f"the command {name} is no `async def`: write `async def {getattr(function, '__name__', 'f')}(ctx, args)`"
            )
        about = (inspect.getdoc(function) or "").partition("\n")[0]
        return UserCommand(function, name=name, usage=usage, control=control, about=about)

    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("write @command('/name'), with the command's name")
    return decorate


def _takes_arguments(function: Handler) -> bool:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:
        return True
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in positional if p.default is p.empty]
    if not positional or len(required) > 2:
        name = getattr(function, "__name__", "a command")
        raise UsageError(f"{name} takes {len(required)} arguments; a command is called with (ctx, args), or with (ctx) alone")
    return len(positional) > 1
