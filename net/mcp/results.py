"""What a server answered to a call, as the model reads it.

Text stays text, pictures stay pictures; sounds and other bytes become files; a resource is its text under its address. Structured
content is shown only where there is no other: servers send it in addition, for programs. An answer that says of itself that it is
an error is one. Pure: the SDK's objects in, a `ToolOutput` or a `ToolError` out.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from ...actors.texts import well_formed
from ...actors.tools.output import ResultBlock, ToolOutput
from ...storage.errors import ToolError
from ...storage.messages import File, Image, TextBlock

MCP_ERROR = "MCP_ERROR"
LONGEST_ERROR = 16_384
"""Characters of an error that the model reads."""
_BYTES = "application/octet-stream"


def to_output(result: Any, *, tool: str) -> ToolOutput:
    """The result of a call.

    Raises:
        ToolError: the server says that the call failed, or sent what cannot be read.
    """
    blocks: list[ResultBlock] = [_block(item, tool) for item in result.content]
    structured = result.structured_content
    if not blocks and structured is not None:
        blocks = [TextBlock(well_formed(msgspec.json.encode(structured).decode()))]
    if result.is_error:
        raise ToolError(error_text(tool, blocks), code=MCP_ERROR)
    return ToolOutput(blocks or "")


def error_text(tool: str, blocks: list[ResultBlock]) -> str:
    """The text of a failed call, within its limit."""
    text = "\n".join(block.text for block in blocks if isinstance(block, TextBlock)).strip()
    return shortened(text) or f"{tool} failed, and its server did not say why."


def shortened(text: str) -> str:
    """A text of the server's as an error may hold it."""
    text = well_formed(text)
    return text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]} [{len(text) - LONGEST_ERROR} characters left out]"


def _block(item: Any, tool: str) -> ResultBlock:
    match item.type:
        case "text":
            return TextBlock(well_formed(item.text))
        case "image":
            return Image(item.mime_type, data=_bytes(item.data, tool))
        case "audio":
            return File(item.mime_type, data=_bytes(item.data, tool))
        case "resource_link":
            about = ": ".join(part for part in (item.title or item.name, item.description) if part)
            return TextBlock(well_formed(f"{item.uri} ({about})"))
        case "resource":
            return _resource(item.resource, tool)
        case other:
            return TextBlock(f"[{tool} sent a block of the type {other!r}, which is not known here]")


def _resource(resource: Any, tool: str) -> ResultBlock:
    text = getattr(resource, "text", None)
    if text is not None:
        return TextBlock(well_formed(f"{resource.uri}\n{text}"))
    name = well_formed(str(resource.uri))
    return File(resource.mime_type or _BYTES, name=name, data=_bytes(resource.blob, tool))


def _bytes(data: str, tool: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ToolError(
            f"{tool} sent bytes that are not base64: {error}. The call itself may have worked.", code=MCP_ERROR
        ) from error
