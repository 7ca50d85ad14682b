"""The header and the context in force: what `request/header` and `request/context` last said.

A header that comes back is written by its digest alone, so the fold keeps the bodies it has seen, the newest `keep` of them:
a system prompt that changes with every turn must not grow the memory of an agent for ever. What the fold has forgotten is
written whole again; whoever reads a log to check it keeps them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from msgspec import Struct

from ..digest import header_line
from ..events import Event, RequestContext, RequestHeader
from ..messages import Header
from .fold import Fold, Handler

KEEP = 32
"""Distinct headers that an agent remembers."""


class Context(NamedTuple):
    """The route of the last requests, and the model's context window in tokens where it is known."""

    provider: str
    model: str
    window: int | None = None


class HeadersState(Struct, frozen=True, omit_defaults=True):
    """The fold as a snapshot keeps it; `known` is in order of use, the newest last."""

    digest: str | None = None
    known: tuple[tuple[str, Header], ...] = ()
    context: tuple[str, str, int | None] | None = None


class Headers(Fold):
    """Which header and context the next request is compared with."""

    __slots__ = ("_keep", "context", "current_digest", "known")

    def __init__(self, *, keep: int | None = KEEP) -> None:
        self.known: dict[str, Header] = {}
        """Digest → header, in order of use."""
        self.current_digest: str | None = None
        """The digest of the header in force; None before the first."""
        self.context: Context | None = None
        """The last `request/context`."""
        self._keep = keep

    @property
    def any(self) -> bool:
        """Whether the log has a header at all: the next one is `initial` if it has none."""
        return self.current_digest is not None

    @property
    def current(self) -> Header | None:
        """The header in force; None before the first, or if its body is not known here."""
        return self.known.get(self.current_digest or "")

    @property
    def current_line(self) -> bytes | None:
        """The canonical line of the header in force."""
        header = self.current
        return None if header is None else header_line(header)

    def _context(self, seq: int, time: int, event: RequestContext) -> None:
        self.context = Context(event.provider, event.model, event.context_window)

    def _header(self, seq: int, time: int, event: RequestHeader) -> None:
        self.current_digest = event.digest
        header = event.header or self.known.get(event.digest)
        if header is None:
            return
        self.known.pop(event.digest, None)
        self.known[event.digest] = header
        while self._keep is not None and len(self.known) > self._keep:
            del self.known[next(iter(self.known))]

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {RequestHeader: _header, RequestContext: _context}

    def fork(self) -> None:
        """A fork goes on with its origin's header and context."""

    def dump(self) -> HeadersState:
        """The state for a snapshot."""
        return HeadersState(self.current_digest, tuple(self.known.items()), self.context)

    @classmethod
    def load(cls, dumped: HeadersState) -> Headers:
        """The fold in a snapshot."""
        headers = cls()
        headers.current_digest, headers.known = dumped.digest, dict(dumped.known)
        headers.context = None if dumped.context is None else Context(*dumped.context)
        return headers
