"""The small pieces that both protocols share: ids, names, arguments, pictures and files in the shape that providers take.

A history is for ever: what a provider refuses once it refuses in every later request, and the agent would never answer again. So
nothing here fails. An id or a name of the wrong letters is spelt anew, arguments that are no JSON go wrapped, and a picture or
file of a kind that the model cannot read becomes a sentence that says so.
"""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from typing import Any, cast

import msgspec

from ...storage.messages import File, Image, TextBlock, ToolResultBlock

MALFORMED = "INVALID_JSON"
"""The one argument under which a text that is no JSON object goes back to the model that wrote it."""

_WRONG = re.compile(r"[^A-Za-z0-9_-]")
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/toml", "application/javascript"})


def wire_id(id: str, *, longest: int = 64) -> str:
    """The id of a call in letters that every provider takes; two different ids stay different."""
    if id and len(id) <= longest and not _WRONG.search(id):
        return id
    return f"{_WRONG.sub('_', id)[: longest - 13]}_{sha256(id.encode('utf-8', 'replace')).hexdigest()[:12]}"


def wire_name(name: str) -> str:
    """The name of a tool as a call in the history may have it: a model can make up any."""
    return _WRONG.sub("_", name)[:64] or "unnamed"


def arguments_of(text: str) -> dict[str, Any]:
    """A call's arguments as an object; what is none goes wrapped."""
    if not text.strip():
        return {}
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return {MALFORMED: text}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {MALFORMED: text}


def as_base64(block: Image | File) -> str:
    """The block's bytes, as JSON carries them."""
    return base64.b64encode(block.data or b"").decode("ascii")


def as_data_url(block: Image | File) -> str:
    """The block's bytes as a URL that holds them."""
    return f"data:{block.media_type};base64,{as_base64(block)}"


def is_text(block: File) -> bool:
    """Whether the file is one that a model reads as text."""
    kind = block.media_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+json", "+xml"))


def file_text(block: File) -> str:
    """A text file, between marks that name it."""
    name = (block.name or "file").replace('"', "'")
    return f'<file name="{name}">\n{(block.data or b"").decode("utf-8", "replace")}\n</file>'


def unreadable(block: Image | File) -> str:
    """What a model reads in the place of what it cannot."""
    if isinstance(block, Image):
        return f"[a picture of type {block.media_type}, which this model cannot see]"
    return f"[a file{f' {block.name!r}' if block.name else ''} of type {block.media_type}, which this model cannot read]"


def shown_of(result: ToolResultBlock) -> tuple[TextBlock | Image | File, ...]:
    """What of a result the model is sent: a text that was too long for the log stands there as its preview, and the file without
    a name beside it is the whole, which is not for the model."""
    return tuple(block for block in result.content if not _is_whole_of_preview(block))


def _is_whole_of_preview(block: TextBlock | Image | File) -> bool:
    return isinstance(block, File) and block.name is None and block.media_type == "text/plain" and block.blob is not None
