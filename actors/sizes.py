"""Acceptance of a message: its size, and its media, which become blobs in the commit of its put."""

from __future__ import annotations

from hashlib import sha256

import msgspec

from ..storage.errors import InputRefused
from ..storage.messages import Block, File, Image, Message, TextBlock
from .limits import Limits


def accepted(message: Message, limits: Limits, *, agent: str) -> tuple[Message, dict[str, bytes]]:
    """The message as the log keeps it, and the blobs that go with it (digest → bytes).

    Raises:
        InputRefused: it is larger than `Limits.message_bytes`, media apart.
    """
    blobs: dict[str, bytes] = {}
    if len(message.content) == 1 and _is_short(message.content[0], limits.message_bytes):
        return message, blobs  # as most are
    if any(isinstance(block, Image | File) and block.data is not None for block in message.content):
        message = msgspec.structs.replace(message, content=tuple(_as_blob(block, blobs) for block in message.content))
    # Characters bound bytes from both sides; only what is near the limit has to be encoded to know.
    size = sum(len(text) for block in message.content if (text := getattr(block, "text", None)) is not None)
    if size * 4 > limits.message_bytes:
        size = len(msgspec.json.encode(message))
    if size > limits.message_bytes:
        raise InputRefused(
            f"the message for {agent!r} has {size} bytes, more than Limits.message_bytes={limits.message_bytes}; "
            "send it as a File, or in parts",
            message_id=message.id,
            agent=agent,
        )
    return message, blobs


def _is_short(block: Block, limit: int) -> bool:
    return type(block) is TextBlock and type(block.text) is str and len(block.text) * 4 <= limit


def _as_blob(block: Block, blobs: dict[str, bytes]) -> Block:
    if not isinstance(block, Image | File) or block.data is None:
        return block
    digest = sha256(block.data).hexdigest()
    blobs[digest] = block.data
    return msgspec.structs.replace(block, data=None, blob=digest)
