"""What a tool gives back, as the log keeps it and the model reads it.

Text and blocks stay as they are; anything else becomes JSON. A big result does not travel with every later request: beyond a
limit it is kept once, as a blob under its digest, and the model reads its beginning, its end and the reference. A result that
cannot be stored is an error that the model reads, never a turn that fails when its log is written.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import msgspec
from msgspec import Struct

from ...storage.errors import ToolError
from ...storage.messages import File, Image, Message, TextBlock, ToolSource
from ..failures import described

INVALID_OUTPUT = "INVALID_OUTPUT"
CEILING = 256 * 1024 * 1024
"""No result may be larger (bytes), blob or not."""
HEAD, TAIL = 4096, 2048
"""How much of a big text (bytes) the model reads."""

ResultBlock = TextBlock | Image | File
ResultContent = tuple[ResultBlock, ...]
Blobs = dict[str, bytes]
"""Digest (sha256, hex) → bytes."""


class ToolOutput(Struct, frozen=True):
    """A result with more to say than its content.

    `concludes` ends the turn after this step. `context` (texts or messages) enters the next step beside the results. `meta` is
    kept in the log and never shown to the model.
    """

    content: Any = ""
    concludes: bool = False
    context: Sequence[str | Message] = ()
    meta: dict[str, Any] | None = None


def to_content(value: Any, *, tool: str = "the tool") -> ResultContent:
    """A tool's value as blocks.

    Raises:
        ToolError: INVALID_OUTPUT, if it cannot be encoded or is larger than `CEILING`.
    """
    if isinstance(value, str):
        blocks: Sequence[Any] = (TextBlock("".join((value,))),)  # of a subclass: the plain text it holds
    elif isinstance(value, ResultBlock):
        blocks = (value,)
    elif isinstance(value, list | tuple) and any(isinstance(item, ResultBlock) for item in cast("list[Any]", value)):
        blocks = [TextBlock(item) if isinstance(item, str) else item for item in cast("list[Any]", value)]
    else:
        blocks = (TextBlock(_to_json(value, tool)),)
    for block in blocks:
        _check_block(block, tool)
    _check_size(sum(_length(block) for block in blocks), tool)
    return tuple(blocks)


def check_value(value: Any, content: ResultContent, declared: msgspec.json.Decoder[Any], *, tool: str) -> None:
    """Whether a value is what the tool's signature says it returns: its JSON must decode as that type.

    Raises:
        ToolError: INVALID_OUTPUT.
    """
    if isinstance(value, str) and declared.type is str:
        return
    (block,) = cast("tuple[TextBlock]", content)
    try:
        declared.decode(_to_json(value, tool) if isinstance(value, str) else block.text)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _invalid(tool, f"returned something else than its signature says: {error}") from error


def limit_output(content: ResultContent, limit: int) -> tuple[ResultContent, Blobs]:
    """Move what does not belong into a log out of the content: data of files, and text of more than `limit` bytes in all.

    The text becomes one preview, where its first block was, followed by a reference to the whole.
    """
    blobs: Blobs = {}
    kept = [_without_data(block, blobs) for block in content]
    texts = [block.text for block in kept if isinstance(block, TextBlock)]
    if not texts or not _longer_than(texts, limit):
        return tuple(kept), blobs
    data = "\n".join(texts).encode()
    digest = _put(data, blobs)
    first = next(index for index, block in enumerate(kept) if isinstance(block, TextBlock))
    big = (TextBlock(_preview(data, digest, limit)), File("text/plain", blob=digest))
    rest = tuple(block for block in kept[first:] if not isinstance(block, TextBlock))
    return (*kept[:first], *big, *rest), blobs


def context_messages(context: Sequence[str | Message], *, call_id: str, effect_key: str) -> tuple[Message, ...]:
    """A tool's context as messages; ids follow from the call, so that they are the same when its body runs again."""
    return tuple(
        Message(f"{effect_key}#context{number}", "user", (TextBlock(item),), ToolSource(call_id))
        if isinstance(item, str)
        else item
        for number, item in enumerate(context, 1)
    )


# -- encoding


def _to_json(value: Any, tool: str) -> str:
    if isinstance(value, bytes | bytearray | memoryview):
        raise _invalid(tool, "returned bytes; return text, or File.from_bytes(data, media_type)")
    try:
        return msgspec.json.encode(value, enc_hook=_encode_other).decode()
    except Exception as error:  # whatever an object does when it is looked at, the model must get a result
        raise _invalid(tool, f"returned a {type(value).__name__} that JSON cannot carry: {described(error)}") from error


def _encode_other(value: Any) -> Any:
    """What databases and file systems hand out, and msgspec does not know."""
    if isinstance(value, Mapping):
        return dict(cast("Any", value))
    if isinstance(value, os.PathLike):
        return os.fspath(cast("os.PathLike[str]", value))
    raise TypeError(f"objects of type {type(value).__name__} are not supported")


def _check_block(block: Any, tool: str) -> None:
    if not isinstance(block, ResultBlock):
        raise _invalid(tool, f"returned a {type(block).__name__} among its blocks; results hold text, images and files")
    if isinstance(block, TextBlock) and not block.text.isascii() and len(block.text) <= CEILING:
        try:
            block.text.encode()
        except UnicodeError as error:
            raise _invalid(tool, "returned text that is not Unicode; decode bytes with errors='replace'") from error


def _check_size(size: int, tool: str) -> None:
    if size > CEILING:
        raise _invalid(tool, f"returned {size} bytes, more than {CEILING}; return a part, or a reference to a file")


def _length(block: Any) -> int:
    """Bytes of a file, characters of a text: exact enough for a ceiling, and free."""
    return len(block.text) if isinstance(block, TextBlock) else len(block.data or b"")


def _invalid(tool: str, what: str) -> ToolError:
    return ToolError(f"{tool} {what}. The call itself may have worked: do not repeat it blindly.", code=INVALID_OUTPUT)


# -- limiting


def _longer_than(texts: Sequence[str], limit: int) -> bool:
    """Whether the texts have more than `limit` bytes; encodes only where the number of characters does not decide."""
    characters = sum(map(len, texts))
    if characters > limit or characters * 4 <= limit:
        return characters > limit
    return sum(len(text.encode()) for text in texts) > limit


def _without_data(block: ResultBlock, blobs: Blobs) -> ResultBlock:
    if isinstance(block, TextBlock) or block.data is None:
        return block
    return msgspec.structs.replace(block, data=None, blob=_put(block.data, blobs))


def _put(data: bytes, blobs: Blobs) -> str:
    digest = sha256(data).hexdigest()
    blobs[digest] = data
    return digest


def _preview(data: bytes, digest: str, limit: int) -> str:
    """Head and tail, cut between characters, within `limit` bytes; between them what is missing and where it is."""
    head, tail = min(HEAD, limit * 2 // 3), min(TAIL, limit // 3)
    start = data[:head].decode(errors="ignore")
    end = data[len(data) - tail :].decode(errors="ignore")
    left_out = len(data) - len(start.encode()) - len(end.encode())
    note = f"[{left_out} of {len(data)} bytes left out here; the whole text is blob {digest}]"
    return "\n".join(part for part in (start, note, end) if part)
