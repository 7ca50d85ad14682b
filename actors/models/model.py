"""What a model adapter is: `Model`, the base of all adapters, and `Prepared`, what it makes of a request before dispatch.

An adapter is two functions. `prepare` is pure and fails early: it refuses what the model cannot do and names the settings
that it fills in, so that the log can say which were chosen and which were defaults. `stream` yields chunks. The loop owns
everything else: deadlines, retries, the log. So an adapter never retries and never catches a cancellation.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import msgspec
from msgspec import Struct

from ...storage.errors import UsageError
from ...storage.messages import Chunk, Request, Settings


class RetryPolicy(Struct, frozen=True, gc=False):
    """How a provider wants failed calls tried again: `tries` in all, the first wait and the longest one, in seconds."""

    tries: int = 5
    first_s: float = 0.5
    max_s: float = 10.0


class Prepared(Struct, frozen=True, gc=False):
    """A request an adapter has looked at, and what it knows about the model.

    `defaults` fills settings that nobody set (by the names of `Settings`); `context_window` in tokens, None if unknown;
    `retry` the provider's own policy; `images` and `schema`: whether the model sees pictures and answers by a JSON schema.
    """

    request: Request
    defaults: Mapping[str, Any] = {}
    context_window: int | None = None
    retry: RetryPolicy | None = None
    images: bool = True
    schema: bool = False


class Model(ABC):
    """A whole adapter: subclass it, set `provider`, write `stream`.

    One instance serves many agents at once, so it keeps nothing of a request. `name` is the model it is bound to, or None
    for an adapter of many; `named` binds it.
    """

    provider: str
    name: str | None = None

    def prepare(self, request: Request) -> Prepared:
        """Validate the request and say what is known of the model. Pure and synchronous; called before anything is logged.

        Raises:
            ModelError: the model cannot answer such a request; the turn ends without a retry.
        """
        return Prepared(request)

    @abstractmethod
    def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Yield the answer's chunks: write it as an async generator.

        The runtime closes it in the task that reads it. No cancel scope or nursery may be open across a `yield`: under trio
        that corrupts the reader's scopes. Failures are raised as `ModelError`.
        """

    def named(self, name: str) -> Self:
        """A shallow copy bound to one model; it shares the connections of the original."""
        bound = copy.copy(self)
        bound.name = name
        return bound

    async def aclose(self) -> None:  # noqa: B027 - most adapters have nothing to close
        """Give up connections. Called once, when the system that uses the adapter closes; by default there are none."""

    def __repr__(self) -> str:
        provider = getattr(self, "provider", "?")
        return f"<{type(self).__name__} {provider}:{self.name}>" if self.name else f"<{type(self).__name__} {provider}>"


_SETTINGS = Settings.__struct_fields__


def apply_defaults(settings: Settings, defaults: Mapping[str, Any]) -> tuple[Settings, tuple[str, ...]]:
    """The settings with the adapter's defaults in the places that nobody set, and the names of those places.

    The names let a later request take the defaults out again: they belong to the model that filled them, not to the agent.
    """
    if not defaults:
        return settings, ()
    if unknown := [name for name in defaults if name not in _SETTINGS]:
        raise UsageError(
            f"the adapter's defaults name {unknown[0]!r}, which is no setting; use {', '.join(_SETTINGS)} "
            "(what is the adapter's own goes under 'extra')"
        )
    try:
        # Checked here: a value of a wrong type would be written to the log and never be readable again.
        filled = msgspec.convert(dict(defaults), Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"the adapter's defaults do not fit the settings: {error}") from error
    names = tuple(n for n in _SETTINGS if getattr(settings, n) is None and getattr(filled, n) is not None)
    return msgspec.structs.replace(settings, **{n: getattr(filled, n) for n in names}), names
