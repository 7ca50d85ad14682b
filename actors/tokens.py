"""Tokens: how many a message has, by its characters alone. Pure.

Only a provider's own tokenizer knows; asking it costs a call or a large library, and differs from model to model. What has to be
decided (is there room?) needs no exact number, but one that is never far off in any script, costs nothing, and can be corrected:
`Gauge` learns from what providers report how much of this estimate a model really counts.

What counts: Latin letters and most of code come to about four characters a token; other alphabets to two; Chinese, Japanese,
Korean and the scripts of India to one; an emoji is two tokens. Pictures and files are counted flat, since their bytes are not
read as text. Reasoning is counted like text: providers that take it back count it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from ..storage.messages import (
    File,
    Header,
    Image,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
)

MESSAGE = 4
"""What a message costs beside its content: its role, and marks around it."""
CALL = 8
"""What a call or a result costs beside its texts: its id, and marks around it."""
IMAGE = 1_000
"""A picture, whatever its size: between what small and large ones cost."""
FILE = 2_000
"""A document: a few pages."""


def text_tokens(text: str) -> int:
    """How many tokens a text has, about."""
    if text.isascii():
        return (len(text) + 3) // 4
    data = text.encode("utf-8", "surrogatepass")
    plain = len(text.encode("ascii", "ignore"))
    rare = len(text.encode("utf-16-le", "surrogatepass")) // 2 - len(text)
    between = len(text) - plain - rare
    dense = (len(data) - plain - 4 * rare) - 2 * between  # of those between, the ones that take three bytes
    return round(plain / 4 + (between - dense) / 2 + dense + 2 * rare + 0.5)


def message_tokens(message: Message) -> int:
    """How many tokens a message has, about."""
    return MESSAGE + sum(map(_block, message.content))


def messages_tokens(messages: Iterable[Message]) -> int:
    """How many all of them have together."""
    return sum(map(message_tokens, messages))


def header_tokens(header: Header | None) -> int:
    """How many the system prompt, the tools and the schema of the answer have."""
    if header is None:
        return 0
    schema = 0 if header.output is None else _json(header.output)
    return text_tokens(header.system) + sum(map(_tool, header.tools)) + schema


def _block(block: object) -> int:
    match block:
        case TextBlock(text=text) | ReasoningBlock(text=text):
            return text_tokens(text)
        case ToolCallBlock(name=name, arguments=arguments):
            return CALL + text_tokens(name) + text_tokens(arguments)
        case ToolResultBlock(content=content):
            return CALL + sum(map(_block, content))
        case Image():
            return IMAGE
        case File():
            return FILE
        case _:
            return 0


def _tool(tool: ToolSpec) -> int:
    return CALL + text_tokens(tool.name) + text_tokens(tool.description) + _json(tool.schema)


def _json(value: object) -> int:
    return text_tokens(msgspec.json.encode(value).decode())
