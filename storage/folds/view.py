"""A view of a list that only grows: the message list of a request, shared and not copied.

A request of an agent with 5,000 messages costs what is new, because its messages are the first n of the surface's own list,
which nobody shortens or changes in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import cast, overload

from ..messages import Message


class MessageView(Sequence[Message]):
    """The first `length` messages of a list, then those of `tail`. Immutable; equal to any sequence of the same messages."""

    __slots__ = ("_items", "_length", "_tail")

    def __init__(self, items: list[Message], length: int, tail: tuple[Message, ...] = ()) -> None:
        self._items, self._length, self._tail = items, length, tail

    def __len__(self) -> int:
        return self._length + len(self._tail)

    def __iter__(self) -> Iterator[Message]:
        return chain(islice(self._items, self._length), self._tail)

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | Sequence[Message]:
        if isinstance(index, slice):
            return tuple(self)[index]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"message {index} of {len(self)}")
        return self._items[at] if at < self._length else self._tail[at - self._length]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MessageView | tuple | list):
            return NotImplemented
        return tuple(self) == tuple(cast("Sequence[Message]", other))

    def __hash__(self) -> int:
        return hash(tuple(message.id for message in self))

    def __repr__(self) -> str:
        return f"<{len(self)} messages>"
