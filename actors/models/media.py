"""Pictures and files on their way to a model: the log names them by digest, an adapter is given their bytes.

A request is what the log can rebuild, so its messages hold digests, and so do its digest and every plugin's view. Only at the end
of the `stream` chain, where the adapter takes over, does `data` stand beside `blob`. The bytes are read before the stream is
opened: an adapter's generator stays the one thing that the reader of the stream has to close.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from ...storage.messages import Block, Chunk, File, Image, Message, Request, ToolResultBlock

Streams = Callable[[Request], AsyncIterator[Chunk]]
AnyBlock = TypeVar("AnyBlock", bound=Block)


async def with_media(request: Request, streams: Streams, read: Callable[[str], Awaitable[bytes]]) -> Streams:
    """The adapter's `stream`, given the bytes of this request's media; as it is if there are none.

    Raises:
        StoreError: the store has lost one of them.
    """
    named = {block.blob for message in request.messages for block in _media(message.content) if block.blob is not None}
    if not named:
        return streams
    blobs = {digest: await read(digest) for digest in sorted(named)}

    def stream(sent: Request) -> AsyncIterator[Chunk]:
        return streams(msgspec.structs.replace(sent, messages=[filled(message, blobs) for message in sent.messages]))

    return stream


def filled(message: Message, blobs: Mapping[str, bytes]) -> Message:
    """The message with the bytes of its media; the same one if it has none."""
    if next(_media(message.content), None) is None:
        return message
    return msgspec.structs.replace(message, content=tuple(_filled(block, blobs) for block in message.content))


def _media(content: Sequence[Block]) -> Iterator[Image | File]:
    for block in content:
        if isinstance(block, Image | File):
            yield block
        elif isinstance(block, ToolResultBlock):
            yield from (inner for inner in block.content if isinstance(inner, Image | File))


def _filled(block: AnyBlock, blobs: Mapping[str, bytes]) -> AnyBlock:
    match block:
        case Image() | File():
            data = blobs.get(block.blob or "")
            return block if data is None else msgspec.structs.replace(block, data=data)
        case ToolResultBlock():
            return msgspec.structs.replace(block, content=tuple(_filled(inner, blobs) for inner in block.content))
        case _:
            return block
