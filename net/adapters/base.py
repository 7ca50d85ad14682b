"""What adapters over HTTP have in common: where they lead, what is known of their models, and their own settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import urlsplit

from ...actors.models.model import Model
from ...storage.errors import ModelError, UsageError
from ...storage.messages import Request
from .connection import Connection


class HttpModel(Model):
    """An adapter that speaks one protocol to one base URL."""

    _connection: Connection
    _windows: Mapping[str, int]
    _reserved: frozenset[str] = frozenset()

    async def aclose(self) -> None:
        """Give up the sockets; the adapter may be used again, by another system."""
        await self._connection.aclose()

    def _extra(self, request: Request) -> Mapping[str, Any]:
        """The settings that the agent has for this adapter alone: they go into the body as they are.

        Raises:
            ModelError: BAD_REQUEST, they are no mapping, or set what the adapter itself sets.
        """
        extra: Any = (request.settings.extra or {}).get(self.provider, {})
        if not isinstance(extra, Mapping):
            raise ModelError("BAD_REQUEST", f"settings[{self.provider!r}] is {extra!r}; give a mapping of request fields")
        found = cast("Mapping[str, Any]", extra)
        if taken := sorted(self._reserved & found.keys()):
            raise ModelError(
                "BAD_REQUEST", f"settings[{self.provider!r}] sets {taken[0]!r}, which the adapter sets itself; leave it out"
            )
        return found


def checked_url(url: str | None) -> str | None:
    """The base URL; None where none was said.

    Raises:
        UsageError: it is no address of a server.
    """
    if not url or not url.strip():
        return None
    try:
        parts = urlsplit(url.strip())
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        sound = False
    if not sound:
        raise UsageError(f"the base URL {url!r} is no address of a server; write it like 'http://127.0.0.1:8080/v1'")
    return url.strip()


def is_of(url: str | None, *domains: str) -> bool:
    """Whether the URL leads to one of these domains, or nowhere else than to the provider's own."""
    host = urlsplit(url).hostname or "" if url else domains[0]
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def key_name(provider: str) -> str:
    """Where the environment has the key of a provider: under its own name, so that no server is sent the key of another."""
    return f"{re.sub(r'[^A-Z0-9]', '_', provider.upper())}_API_KEY"


def merged(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body with the agent's own fields over it; None takes a field out."""
    whole = {**body, **extra}
    return {name: value for name, value in whole.items() if value is not None}


def longest_prefix(table: Mapping[str, Any], name: str) -> Any:
    """What a table by the beginnings of names knows of a name; None if nothing."""
    fitting = [start for start in table if name == start or name.startswith(start)]
    return table[max(fitting, key=len)] if fitting else None
