"""Content of a message: whatever a caller may send, brought into the one form the log keeps.

A send takes a text, blocks or a whole message; a route is a mapping or a `Route`. Both are checked here, at the edge, so that
nothing behind it meets a half-formed message and an error reaches the caller instead of a turn.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ..mailbox.addresses import LONGEST
from ..storage.errors import InputRefused, UsageError
from ..storage.events import Route
from ..storage.messages import (
    USER,
    Block,
    File,
    Image,
    Message,
    ReasoningBlock,
    Source,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

Content = str | Sequence[Block] | Message
"""What can be sent."""

_BLOCKS = (TextBlock, ReasoningBlock, ToolCallBlock, ToolResultBlock, Image, File)
_SENDABLE = (TextBlock, Image, File)
_ROUTE_KEYS = ("channel", "chat", "thread", "message")


class _Minter:
    """Ids that no other process makes: a random prefix and a counter, which costs a tenth of random bytes for each."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._prefix = os.urandom(8).hex()
        self._count = itertools.count()

    def mint(self) -> str:
        return f"{self._prefix}-{next(self._count):x}"


_minter = _Minter()
# A forked process would go on with its parent's prefix and counter.
os.register_at_fork(after_in_child=_minter.renew)


def mint_id() -> str:
    """A fresh id, unique over processes and restarts."""
    return _minter.mint()


def to_message(content: Content, *, id: str | None = None, source: Source = USER) -> Message:
    """The message that this content stands for, under `id` (or a minted one; a whole message keeps its own).

    Raises:
        InputRefused: the content is empty.
        UsageError: it is of a type that cannot be sent; the text says what can.
    """
    if id is not None and not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"message_id={_shown(id)} is no text; give a text, or none to have one minted")
    if isinstance(content, str):
        blocks: tuple[Block, ...] = (TextBlock("".join((content,))),)  # of a subclass: the plain text it holds
    elif isinstance(content, Message):
        return _take_message(content, id, source)
    else:
        blocks = _to_blocks(content)
    _refuse_empty(blocks, id)
    return Message(mint_id() if id is None else id, "user", blocks, source)


def _take_message(message: Message, id: str | None, source: Source) -> Message:
    if message.role != "user":
        raise UsageError(f"a message of the role {message.role!r} cannot be sent; send its text, or a Message with role 'user'")
    if not isinstance(message.content, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"the content of the message is {_shown(message.content)}; give blocks")
    for block in message.content:
        _check_block(block)
    _refuse_empty(message.content, id)
    chosen = id if id is not None else message.id or mint_id()
    return Message(chosen, "user", message.content, message.source if source is USER else source)


def _to_blocks(content: Any) -> tuple[Block, ...]:
    if isinstance(content, _BLOCKS):
        raise UsageError(f"content is one {type(content).__name__}; give a list: [{type(content).__name__}(...)]")
    blocks: Sequence[Any] = content
    if isinstance(content, bytes | Mapping) or not isinstance(content, Sequence):
        raise UsageError(f"content is {_shown(blocks)}; give a text, a list of blocks, or a Message")
    for block in blocks:
        if isinstance(block, str):
            raise UsageError(f"content holds the text {_shown(block)}; write TextBlock(text), or send one text alone")
        if not isinstance(block, _SENDABLE):
            raise UsageError(f"content holds {_shown(block)}; only TextBlock, Image and File can be sent")
        _check_block(block)
    return tuple(blocks)


def _check_block(block: Any) -> None:
    """That a block holds what its struct says, as far as something here looks at it; the log looks at the rest."""
    kind, text, data = type(block).__name__, getattr(block, "text", ""), getattr(block, "data", None)
    if not isinstance(text, str):
        raise UsageError(f"the text of a {kind} is {_shown(text)}; give a text")
    if data is not None and not isinstance(data, bytes):
        raise UsageError(f"the data of a {kind} is {_shown(data)}; give bytes")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _refuse_empty(blocks: Sequence[Block], id: str | None) -> None:
    if any(not isinstance(block, TextBlock) or block.text.strip() for block in blocks):
        return
    raise InputRefused("the message is empty; send some text or a file", message_id=id)


# -- pictures

NO_IMAGE = "[a picture, which this model cannot see]"
"""What a model that sees no pictures reads in the place of one."""


def without_images(messages: Sequence[Message]) -> Sequence[Message]:
    """The messages with a fixed text in the place of each picture, also in results. The log, and so the digest, keep it."""
    return [_without_image(m) if any(map(_shows_picture, m.content)) else m for m in messages]


def _shows_picture(block: Block) -> bool:
    return type(block) is Image or (type(block) is ToolResultBlock and any(type(b) is Image for b in block.content))


def _without_image(message: Message) -> Message:
    return msgspec.structs.replace(message, content=tuple(map(_as_text, message.content)))


def _as_text(block: Block) -> Block:
    if type(block) is ToolResultBlock:
        content = tuple(TextBlock(NO_IMAGE) if type(b) is Image else b for b in block.content)
        return msgspec.structs.replace(block, content=content)
    return TextBlock(NO_IMAGE) if type(block) is Image else block


# -- routes


def to_route(route: Mapping[str, Any] | Route | None) -> Route | None:
    """The route in a mapping; numbers (chat and message ids of many services) become texts.

    Raises:
        UsageError: a key or a value cannot be part of a route: each may have as many bytes as an agent's id, since it names a
            place in lanes, listings and logs, and is told again with every reply.
    """
    if route is None or isinstance(route, Route):
        return route
    if not isinstance(route, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"route is {_shown(route)}; give a mapping: {{'channel': ..., 'chat': ...}}")
    for key, value in route.items():
        if key not in _ROUTE_KEYS:
            raise UsageError(f"a route has no {key!r}; it has {', '.join(_ROUTE_KEYS)}")
        if not (value is None or isinstance(value, str | int)) or isinstance(value, bool):
            raise UsageError(f"{key!r} of the route is {_shown(value)}; give a text")
        text = str(value)
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > LONGEST:
            raise UsageError(f"{key!r} of a route may have {LONGEST} bytes of UTF-8; this one has {size:,}: {text[:40]!r}...")
    return Route(**{key: str(value) for key, value in route.items() if value is not None})


def route_map(route: Route) -> dict[str, str]:
    """The route as channels read it: a mapping of what there is."""
    fields: dict[str, str | None] = msgspec.structs.asdict(route)
    return {key: value for key, value in fields.items() if value is not None}
