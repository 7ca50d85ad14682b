"""Choices: facts of which only the newest counts, such as the model that somebody chose for an agent.

A plugin writes one as a `note` of kind `choice/NAME`. To find the newest of them a plugin would have to read every note of a log,
at each turn; this fold has it at hand, also after a restart. A fork goes on with what its origin had chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct

from ..events import Event, Note
from .fold import Fold, Handler

PREFIX = "choice/"
"""How the kind of such a note begins."""


class ChoicesState(Struct, frozen=True, omit_defaults=True):
    """The fold as a snapshot keeps it."""

    chosen: tuple[tuple[str, Any], ...] = ()


class Choices(Fold):
    """The newest choice of each name."""

    __slots__ = ("_chosen",)

    def __init__(self) -> None:
        self._chosen: dict[str, Any] = {}

    def get(self, name: str) -> Any:
        """What was chosen last; None if nothing was, or the choice was taken back (by a None)."""
        return self._chosen.get(name)

    def _note(self, seq: int, time: int, event: Note) -> None:
        if not event.kind.startswith(PREFIX):
            return
        name = event.kind.removeprefix(PREFIX)
        if event.data is None:
            self._chosen.pop(name, None)
        else:
            self._chosen[name] = event.data

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {Note: _note}

    def fork(self) -> None:
        """A fork keeps them."""

    def dump(self) -> ChoicesState:
        """The state for a snapshot."""
        return ChoicesState(tuple(self._chosen.items()))

    @classmethod
    def load(cls, dumped: ChoicesState) -> Choices:
        """The fold in a snapshot."""
        fold = cls()
        fold._chosen = dict(dumped.chosen)
        return fold
