"""What folds have in common: a table that says, for each type of record, what it does to the state.

The table is data, so that whoever composes folds (an agent's state) can make one table of theirs, and a record costs its own
handlers and no other: no fold is asked about records that it does not read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from ..events import Event, LogForked

Handler = Callable[[Any, int, int, Any], None]
"""Takes the fold, and the record's seq, its time (Unix ms) and its event."""


class Fold:
    """State that records change. A subclass has `HANDLERS`; `EVENTS`, the types that it reads, follows from them."""

    __slots__ = ()

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {}
    EVENTS: ClassVar[tuple[type[Event], ...]] = ()

    def __init_subclass__(cls) -> None:
        cls.EVENTS = tuple(cls.HANDLERS)  # pyright: ignore[reportConstantRedefinition]

    def apply(self, seq: int, time: int, event: Event) -> None:
        """Take in one record; unknown types pass by."""
        handler = self.HANDLERS.get(type(event))
        if handler is not None:
            handler(self, seq, time, event)

    def fork(self) -> None:
        """What follows is a fork's own: forget what belongs to the origin alone. A fold that says nothing else keeps all."""

    def on_fork(self, seq: int, time: int, event: LogForked) -> None:
        """The handler of `log/forked`, for folds that are used alone."""
        self.fork()
