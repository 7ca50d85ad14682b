"""Adapters that installed packages offer: entry points of the group `callboard.models`, provider → a subclass of Model.

The loop stands below the adapters and must not import them, and Callboard's own are found the same way as anybody's:

    [project.entry-points."callboard.models"]
    acme = "acme_callboard:Acme"

A package is imported when a model of its provider is first asked for; client libraries are slow to import.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ...storage.errors import UsageError
from .model import Model

GROUP = "callboard.models"
SHIPPED = ("anthropic", "openai")
"""Providers whose adapters Callboard itself brings: without their entry points the installation is not that of this code."""


def installed(provider: str) -> Callable[[], Model] | None:
    """What makes the adapter that an installed package offers for this provider; None if none does.

    The maker raises UsageError if the package cannot be used; the error says whose it is.
    """
    offers = _offers().get(provider)
    return functools.partial(_make, provider, offers) if offers else None


def offered() -> tuple[str, ...]:
    """The providers for which installed packages offer adapters."""
    return tuple(sorted(_offers()))


@functools.cache
def _offers() -> dict[str, tuple[EntryPoint, ...]]:
    # Read once: a route that a plugin owns is looked up for every request, and a look at all packages takes milliseconds.
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        if entry not in found.get(entry.name, ()):
            found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def _make(provider: str, offers: tuple[EntryPoint, ...]) -> Model:
    entry = offers[0]
    if len(offers) > 1:
        packages = " and ".join(_package(offer) for offer in offers)
        raise UsageError(
            f"{packages} both offer an adapter for {provider!r}; pass one to System.open: models={{{provider!r}: ...}}"
        )
    try:
        made: Any = entry.load()()
    except UsageError:
        raise  # it says itself what is missing
    except Exception as error:
        what = f"{entry.value} of {_package(entry)}"
        raise UsageError(f"the adapter for {provider!r}, {what}, cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(made, Model) or made.provider != provider:
        raise UsageError(f"{entry.value} of {_package(entry)} offers an adapter for {provider!r} and makes {made!r}")
    return made


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name}" if entry.dist is not None else "a package without a name"
