"""Runtime context: what the model was last told of what changes by itself (the date, the weather, who is online).

It is no hidden string in a request: when it changes, it enters as one logged message. This fold remembers the last such message
for as long as it stands on the surface; once a compaction has taken it away, the model has to be told again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...storage.events import Event, SurfaceReplace, UserMessage
from ...storage.folds import Surface
from ...storage.folds.fold import Fold, Handler
from ...storage.messages import Message, PluginSource

CONTEXT_SOURCE = "context"
"""The name of the source of runtime context messages."""


class RuntimeContext(Fold):
    """The text of the last runtime context message that the model can see; None if there is none."""

    __slots__ = ("_doubt", "_surface", "_told")

    def __init__(self, surface: Surface, told: str | None = None) -> None:
        self._surface, self._told = surface, told
        self._doubt = False
        """Whether the message may have left the surface; it is looked for when somebody asks, since opening reads no history."""

    @property
    def told(self) -> str | None:
        """What the model was last told, if it still sees it."""
        if self._doubt:
            self._doubt = False
            messages = [message for _, message in self._surface.entries() if _is_context(message)]
            self._told = messages[-1].text if messages else None
        return self._told

    # -- the fold; the surface has each record already

    def _message(self, seq: int, time: int, event: UserMessage) -> None:
        if _is_context(event.message):
            self._told, self._doubt = event.message.text, False

    def _replace(self, seq: int, time: int, event: SurfaceReplace) -> None:
        if self._told is not None:
            self._doubt = True

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {UserMessage: _message, SurfaceReplace: _replace}

    def fork(self) -> None:
        """A fork was told what its origin was told."""


def _is_context(message: Message) -> bool:
    return isinstance(message.source, PluginSource) and message.source.name == CONTEXT_SOURCE
