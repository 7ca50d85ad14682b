"""Frozen values: settings that adapters add are nested dictionaries, and a request must not change once it is logged.

A struct is frozen by itself; what hangs below it is not. A plugin that changed a nested value in place would change the request
behind the log's back, and the definition of the agent with it. So these dictionaries refuse, and say how to do it.
"""

from __future__ import annotations

from typing import Any, NoReturn, cast

import msgspec

from ..storage.messages import Settings


class FrozenDict(dict[str, Any]):
    """A dictionary that cannot be changed; copies of it are plain ones."""

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        named = f" at {args[0]!r}" if args and isinstance(args[0], str) else ""
        raise TypeError(f"Settings.extra is frozen{named}; hand on settings with a changed copy: {{**extra, ...}}")

    __setitem__ = __delitem__ = __ior__ = _refuse  # pyright: ignore
    clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore

    def copy(self) -> dict[str, Any]:
        """A plain dictionary with the same values."""
        return dict(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


def frozen_settings(settings: Settings) -> Settings:
    """The same settings, `extra` frozen all the way down."""
    if settings.extra is None or type(settings.extra) is FrozenDict:
        return settings
    return msgspec.structs.replace(settings, extra=_frozen(settings.extra))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return FrozenDict({key: _frozen(inner) for key, inner in cast("dict[str, Any]", value).items()})
    if isinstance(value, list | tuple):
        return tuple(map(_frozen, cast("list[Any]", value)))
    return value
