"""Sound chunks: what an adapter or a plugin yields is looked at once, before it may enter the log.

The structs of chunks check nothing when they are made, and adapters are other people's code. A wrong type would be written
without complaint, and the log it is in would never decode again; a lone surrogate would fail the commit of everything the
agent has appended; a `meta` that JSON cannot carry would fail every later request; and a number near the limit of 64 bits is
one only until something is added to it. So each chunk is shown to survive the log: cheaply for plain text, by a round trip for
the rest.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import structs

from ...storage.errors import ModelError
from ...storage.messages import BlockEnd, BlockStart, Chunk, FinishChunk, TextBlock, TextDelta, Usage, UsageChunk
from ...storage.records import refuse_deep
from ..texts import well_formed

_encode = msgspec.msgpack.Encoder().encode
_as_json = msgspec.json.Encoder(order="deterministic").encode
_MANY = 1 << 48
"""More blocks than any answer has, and more tokens."""
_MARGIN = 300
"""More than for a record: a block of the message lies deeper than its chunk."""
_WELL = frozenset({"stop", "tool-calls", "max-tokens"})
_EMPTY = TextBlock("")
_KINDS: tuple[type[Any], ...] = Chunk.__args__
_DECODERS = {kind: msgspec.msgpack.Decoder(kind) for kind in _KINDS}


def sound(chunk: Chunk) -> Chunk:
    """The chunk, if the log can keep it; with lone surrogates replaced.

    Raises:
        ModelError: BAD_CHUNK, it cannot be kept: no chunk at all, or a field of a wrong type.
    """
    if type(chunk) is TextDelta:  # most are, so there is no call in the way of these
        text, index = chunk.text, chunk.index
        if type(text) is str and text.isascii() and type(index) is int and -_MANY < index < _MANY:
            return chunk
    elif _is_plain(chunk):
        return chunk
    decoder = _DECODERS.get(type(chunk))
    if decoder is None:
        raise _bad(chunk, f"it is of type {type(chunk).__name__}")
    try:
        raw = _encode(chunk)
        _as_json(decoder.decode(raw))
        refuse_deep(raw, decoder.decode, margin=_MARGIN)
        _refuse_huge(chunk)
    except UnicodeEncodeError:
        return _repaired(chunk)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise _bad(chunk, str(error)) from error
    return chunk


def _is_plain(chunk: Chunk) -> bool:
    """Whether it is one of the few that frame most answers, holding nothing but what it must."""
    if type(chunk) is BlockEnd:
        return chunk.meta is None and _counts(chunk.index)
    if type(chunk) is FinishChunk:
        return chunk.failure is None and chunk.reason in _WELL
    if type(chunk) is UsageChunk:
        return type(chunk.usage) is Usage and all(map(_counts, structs.astuple(chunk.usage)))
    if type(chunk) is BlockStart:
        block = chunk.block
        return type(block) is TextBlock and type(block.text) is str and block == _EMPTY and _counts(chunk.index)
    return False


def _counts(number: object) -> bool:
    return type(number) is int and -_MANY < number < _MANY


def _refuse_huge(chunk: Chunk) -> None:
    numbers = structs.astuple(chunk.usage) if isinstance(chunk, UsageChunk) else (getattr(chunk, "index", 0),)
    for number in numbers:
        if not -_MANY < number < _MANY:
            raise ValueError(f"{number} counts neither blocks nor tokens")


def _repaired(chunk: Chunk) -> Chunk:
    try:
        return msgspec.convert(_mended(msgspec.to_builtins(chunk, builtin_types=(bytes,))), type(chunk))
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise _bad(chunk, str(error)) from error


def _mended(value: object) -> object:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {_mended(k): _mended(v) for k, v in cast("dict[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_mended(v) for v in cast("list[object]", value)]
    return value


def _bad(chunk: object, why: str) -> ModelError:
    shown = well_formed(repr(chunk))[:200]
    return ModelError(
        "BAD_CHUNK", f"the adapter yielded {shown}, which is no sound chunk ({why}); make it with callboard.storage.chunks"
    )
