"""The surface: the messages that the model sees, and the digest of them.

History is the fold of `user/message`, `assistant/message`, `tool/result` and `surface/replace`, and of nothing else. It is
total: whatever the log holds, every tool call is followed by exactly one result directly after its assistant message, in the
model's order; a missing one is stood in for, a second or unknown one is left out, and so is an empty message.

`arrange` says what that means, over a whole list. The class does the same one record at a time: the list of messages only
ever grows, so that a request's view of it is a length and not a copy, and the running hash goes over each message once. What
does not grow at the end (a replace, a result that comes after its step) arranges a new list; views of the old one stay.

The list is kept apart from the messages as recorded (`_seqs`, `_recorded`), which is what a replace names: `start` and `end`
are the seqs of two messages on the surface, and all between them *as they stand there* goes.

A surface out of a snapshot stays packed until somebody looks at it; what is folded in meanwhile waits beside it. Most agents are
opened to be asked how they are or to be given a message, and their history costs more than all else together.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, ClassVar

import msgspec
from msgspec import Struct

from ..digest import message_line
from ..errors import StoreError
from ..events import AssistantMessage, Event, SurfaceReplace, ToolResult, UserMessage
from ..messages import File, Image, Message, ToolResultBlock
from .fold import Fold, Handler
from .pairing import Answers, arrange, result_message, split, stand_in
from .view import MessageView

if TYPE_CHECKING:
    from _hashlib import HASH
    from collections.abc import Collection, Iterator, Mapping


class SurfaceState(Struct, frozen=True):
    """A surface as a snapshot keeps it: the messages as recorded, with their seqs."""

    seqs: tuple[int, ...] = ()
    messages: tuple[Message, ...] = ()


class _Encoded(Struct, frozen=True):
    """The same, with the messages as msgpack already."""

    seqs: tuple[int, ...]
    messages: msgspec.Raw


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(SurfaceState).decode


def _shows_media(message: Message) -> bool:
    for block in message.content:
        if isinstance(block, Image | File):
            return True
        if isinstance(block, ToolResultBlock) and any(isinstance(inner, Image | File) for inner in block.content):
            return True
    return False


class Surface(Fold):
    """The model's view, folded one record at a time."""

    __slots__ = (
        "_asking",
        "_encoded",
        "_encoded_upto",
        "_hash",
        "_hashed",
        "_late",
        "_media",
        "_open",
        "_packed",
        "_recorded",
        "_seqs",
        "_settled",
        "_waiting",
    )

    def __init__(self) -> None:
        self._seqs: list[int] = []
        self._recorded: list[Message] = []
        self._encoded = bytearray()
        """The first `_encoded_upto` of them as msgpack: a long history is not encoded again for each snapshot of it."""
        self._encoded_upto = 0
        self._settled: list[Message] = []
        self._open: Answers = {}
        self._asking: Message | None = None
        self._late: set[str] = set()
        self._hash: HASH | None = None
        self._hashed = 0
        self._media = False
        self._packed: msgspec.Raw | None = None
        """The surface of the snapshot, until somebody looks."""
        self._waiting: list[tuple[int, Event]] = []
        """What was folded in since, while it is packed."""

    def __len__(self) -> int:
        self._unpack()
        return len(self._settled) + len(self._open)

    def messages(self) -> MessageView:
        """What a request derived now holds: immutable, shared, and free of cost."""
        self._unpack()
        return MessageView(self._settled, len(self._settled), self._owed())

    def entries(self) -> tuple[tuple[int, Message], ...]:
        """The messages on the surface with the seqs that recorded them; stand-ins have none and are left out."""
        self._unpack()
        return tuple((self._seqs[at], message) for at, message in arrange(self._recorded).placed if at is not None)

    @property
    def has_media(self) -> bool:
        """Whether any message holds a picture or a file; nearly none do, and then nobody has to look at each of them again."""
        self._unpack()
        return self._media

    # -- the fold

    def _message(self, seq: int, time: int, event: UserMessage | AssistantMessage) -> None:
        if self._packed is not None:
            self._waiting.append((seq, event))
        else:
            self._add(seq, event.message)

    def _result(self, seq: int, time: int, event: ToolResult) -> None:
        if self._packed is not None:
            self._waiting.append((seq, event))
        else:
            self._add(seq, result_message(seq, event))

    def dump(self) -> SurfaceState:
        """The state for a snapshot."""
        self._unpack()
        return SurfaceState(tuple(self._seqs), tuple(self._recorded))

    @classmethod
    def load(cls, dumped: SurfaceState) -> Surface:
        """The surface in a snapshot."""
        surface = cls()
        surface._seqs, surface._recorded = list(dumped.seqs), list(dumped.messages)
        surface._arrange()
        return surface

    def pack(self) -> msgspec.Raw:
        """The state for a snapshot, as msgpack."""
        if self._packed is not None and not self._waiting:
            return self._packed
        self._unpack()
        for message in self._recorded[self._encoded_upto :]:
            self._encoded += _encode(message)
        self._encoded_upto = len(self._recorded)
        return msgspec.Raw(_encode(_Encoded(tuple(self._seqs), msgspec.Raw(_array_head(self._encoded_upto) + self._encoded))))

    @classmethod
    def packed(cls, dumped: msgspec.Raw) -> Surface:
        """The surface in a snapshot, not looked at yet."""
        surface = cls()
        surface._packed = dumped
        return surface

    @property
    def is_packed(self) -> bool:
        """Whether nobody has looked at it since it came out of a snapshot."""
        return self._packed is not None

    def _unpack(self) -> None:
        if self._packed is None:
            return
        try:
            dumped = _decode(self._packed)
        except msgspec.DecodeError as error:
            raise StoreError(f"the history in a snapshot cannot be read: {error}; a backup has what was there") from error
        self._packed, waiting, self._waiting = None, self._waiting, []
        self._seqs, self._recorded = list(dumped.seqs), list(dumped.messages)
        self._arrange()
        for seq, event in waiting:
            self.apply(seq, 0, event)

    def fork(self) -> None:
        """A fork sees what its origin saw."""

    def _add(self, seq: int, message: Message) -> None:
        self._seqs.append(seq)
        self._recorded.append(message)
        self._media = self._media or _shows_media(message)
        part = split(message)
        late = False
        for call, result in part.results:
            late |= self._answer(call, result)
        if late:
            self._arrange()
        elif part.shown is not None:
            self._settle()
            self._settled.append(part.shown)
            if part.calls:
                self._asking, self._open = part.shown, dict.fromkeys(part.calls)
                self._late.difference_update(part.calls)

    def _answer(self, call: str, result: Message) -> bool:
        """Give a result to the open calls; True if it belongs to a call that has a stand-in by now."""
        if call in self._open:
            if self._open[call] is None:
                self._open[call] = result
            if None not in self._open.values():
                self._settle()
            return False
        return call in self._late

    def _settle(self) -> None:
        """The results of the open calls take their places, missing ones by stand-ins."""
        if not self._open:
            return
        self._settled.extend(self._owed())
        self._late.update(call for call, result in self._open.items() if result is None)
        self._open = {}

    def _owed(self) -> tuple[Message, ...]:
        asking = self._asking
        if asking is None or not self._open:
            return ()
        return tuple(result or stand_in(asking, call) for call, result in self._open.items())

    def _arrange(self) -> None:
        """Begin a new list; who holds a view of the old one keeps it."""
        done = arrange(self._recorded)
        self._settled = [message for _, message in done.placed[: done.settled]]
        self._open, self._asking, self._late = done.open, done.asking, done.late
        self._hash = None
        self._hashed = 0
        self._media = any(map(_shows_media, self._recorded))

    # -- replacing

    def ends_of(self, seqs: Collection[int]) -> tuple[int, int] | str:
        """The seqs that a `surface/replace` of exactly these messages names, or why there is no such one. They are the first and
        the last as recorded: results stand in the order of their calls, and one that a person had to allow comes late."""
        wanted = set(seqs)
        places = [place for place, seq in enumerate(self._seqs) if seq in wanted]
        if not places:
            return "the range holds no message of the surface"
        first, last = places[0], places[-1]
        between = {seq for seq, _ in self.entries()}.intersection(self._seqs[first : last + 1]) - wanted
        if between:
            return f"seq {min(between)} was recorded among them and stands elsewhere; move the range"
        return self._seqs[first], self._seqs[last]

    def check_replace(self, start: int, end: int) -> str | None:
        """Why a `surface/replace` over these two seqs would be refused; None if it may be written."""
        self._unpack()
        found = self._range(start, end)
        if isinstance(found, str):
            return found
        inside = range(found[0], found[1] + 1)
        done = arrange(self._recorded)
        waits = done.pairs[-1][0] if done.open else None
        for asking, answer in done.pairs:
            whole = asking != waits if answer is None else (asking in inside) == (answer in inside)
            if not whole and (asking in inside or answer in inside):
                return (
                    f"seqs {start} to {end} would separate the call in seq {self._seqs[asking]} from its result; move the range"
                )
        return None

    def _range(self, start: int, end: int) -> tuple[int, int] | str:
        """The places of two seqs, or why they are no range."""
        on_surface = {seq for seq, _ in self.entries()}
        for seq in (start, end):
            if seq not in on_surface:
                return f"seq {seq} is not on the surface; take start and end from the entries that are"
        first, last = self._seqs.index(start), self._seqs.index(end)
        if first > last:
            return f"seq {start} stands after seq {end}; give the range in the order of the surface"
        return first, last

    def _replace(self, seq: int, time: int, event: SurfaceReplace) -> None:
        """Total: a range that is none changes nothing; half a pair is repaired like any other."""
        if self._packed is not None:
            self._waiting.append((seq, event))
            return
        found = self._range(event.start, event.end)
        if isinstance(found, str):
            return
        first, last = found
        self._seqs[first : last + 1] = [] if event.message is None else [seq]
        self._recorded[first : last + 1] = [] if event.message is None else [event.message]
        self._encoded, self._encoded_upto = bytearray(), 0
        self._arrange()

    HANDLERS: ClassVar[Mapping[type[Event], Handler]] = {
        UserMessage: _message,
        AssistantMessage: _message,
        ToolResult: _result,
        SurfaceReplace: _replace,
    }

    # -- the digest

    def digest(self, header_line: bytes) -> str:
        """The digest of a request with these messages and the header in `header_line` (`storage.digest.header_line`)."""
        self._unpack()
        final = self._running().copy()
        for line in map(message_line, self._owed()):
            final.update(line)
        final.update(header_line)
        return final.hexdigest()

    def _running(self) -> HASH:
        # Made on first use: a hash takes more memory than all else of an idle agent.
        running = self._hash or hashlib.sha256()
        for line in self._new_lines():
            running.update(line)
        self._hash = running
        return running

    def _new_lines(self) -> Iterator[bytes]:
        while self._hashed < len(self._settled):
            yield message_line(self._settled[self._hashed])
            self._hashed += 1


def _array_head(length: int) -> bytes:
    """How an array of so many values begins in msgpack."""
    if length < 1 << 4:
        return bytes([0x90 | length])
    return b"\xdc" + length.to_bytes(2, "big") if length < 1 << 16 else b"\xdd" + length.to_bytes(4, "big")
