"""Where a conversation stands, for whoever comes back to it: its newest texts, and whether a turn is open.

A log may be long and the end of it is what matters, so it is read backwards, in growing pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....actors.ref import AgentRef
from ....storage import events as e
from ....storage.messages import UserSource
from ....storage.records import Record
from .transcript import Piece

NEAR = 256
"""Records that are read first."""


async def where_it_stands(ref: AgentRef[Any]) -> tuple[int, bool]:
    """The seq behind which to follow, and whether a turn is open: then that is the record before its beginning."""
    last = ref.source().last()

    def ends(found: list[Record]) -> bool:
        return bool(found)

    turns = await _backwards(ref, last, {"turn/start", "turn/end"}, ends)
    if turns and isinstance(turns[-1].event, e.TurnStart):
        return turns[-1].seq - 1, True
    return last, False


async def recent(ref: AgentRef[Any], upto: int, most: int) -> list[Piece]:
    """The newest `most` texts up to a seq that the conversation still holds."""
    types = {"user/message", "assistant/message", "surface/replace"}

    def ends(found: list[Record]) -> bool:
        return len(_said(found)) >= most

    said = _said(await _backwards(ref, upto, types, ends))
    return said[len(said) - most :] if most < len(said) else said


async def _backwards(ref: AgentRef[Any], last: int, types: set[str], ends: Callable[[list[Record]], bool]) -> list[Record]:
    """The records of these types up to `last`, as far back as is needed for `ends`."""
    width, found = NEAR, list[Record]()
    after = last
    while after > -1 and not ends(found):
        after = max(last - width, -1)
        found = [record async for record in ref.read(after, last, types)]
        width *= 8
    return found


def _said(records: list[Record]) -> list[Piece]:
    """What was said, less what was forgotten or taken back."""
    kept: list[tuple[int, Piece]] = []
    for record in records:
        match record.event:
            case e.UserMessage(message=message) if isinstance(message.source, UserSource):
                _keep(kept, record.seq, Piece("message", message.text))
            case e.AssistantMessage(message=message):
                _keep(kept, record.seq, Piece("text", message.text))
            case e.SurfaceReplace(start=start, end=end, message=None):
                kept = [(seq, piece) for seq, piece in kept if not start <= seq <= end]
            case _:
                pass
    return [piece for _, piece in kept]


def _keep(kept: list[tuple[int, Piece]], seq: int, piece: Piece) -> None:
    if piece.text.strip():
        kept.append((seq, piece))
