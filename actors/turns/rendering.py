"""Rendering: texts that a definition gives as functions of the context, sync or async, by the name of where they stand."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import cast

from ...storage.errors import CallboardError, UsageError
from ..seams import SeamContext

Render = Callable[[SeamContext], "str | Awaitable[str | None] | None"]


async def rendered(render: Render, context: SeamContext, where: str) -> str | None:
    """What the function gives; its throw, or something that is no text, is an error that names `where`.

    Raises:
        UsageError: the function failed; what it raised is the cause.
    """
    try:
        text = render(context)
        text = await text if inspect.isawaitable(text) else text
    except CallboardError:
        raise
    except Exception as error:
        raise UsageError(f"{where} failed", agent=context.id) from error
    if text is not None and not isinstance(cast("object", text), str):
        raise UsageError(f"{where} gave a {type(text).__name__}; return text", agent=context.id)
    return text
