"""What the model reads and writes: blocks, messages, chunks, usage, requests.

All are frozen structs, tagged by `type` (blocks), `kind` (sources, chunks); they are the vocabulary of the log and of every
adapter. Rules of evolution: only optional fields are added, and a field never changes its meaning.

`gc=False` here and with events: they are values and no part of a cycle, so the garbage collector need neither count nor visit
them, of which there are more than of anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec
from msgspec import Struct

Role = Literal["user", "assistant", "tool"]
Finish = Literal["stop", "tool-calls", "max-tokens", "refusal", "content-filter", "error", "aborted"]
Meta = dict[str, Any]


# -- blocks


class TextBlock(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="text", gc=False):
    """Visible text."""

    text: str
    meta: Meta | None = None


class ReasoningBlock(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="reasoning", gc=False):
    """The model's reasoning, with the provider's signature where it gives one."""

    text: str
    signature: str | None = None
    meta: Meta | None = None


class ToolCallBlock(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool-call", gc=False):
    """A call the model asks for; `arguments` is its own text, which need not be valid JSON."""

    id: str
    name: str
    arguments: str = ""
    meta: Meta | None = None


class Image(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="image", gc=False):
    """A picture: by `url`, or by the digest of a `blob`. `data` is only for sending; acceptance turns it into a blob."""

    media_type: str
    blob: str | None = None
    url: str | None = None
    data: bytes | None = None
    meta: Meta | None = None

    @classmethod
    def from_path(cls, path: str | Path) -> Image:
        """The picture in a file; the media type is guessed from its name."""
        return cls(_guess_type(path), data=Path(path).read_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str) -> Image:
        """A picture in memory."""
        return cls(media_type, data=data)


class File(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="file", gc=False):
    """A document: by `url`, or by the digest of a `blob`. `data` is only for sending; acceptance turns it into a blob."""

    media_type: str
    blob: str | None = None
    url: str | None = None
    name: str | None = None
    data: bytes | None = None
    meta: Meta | None = None

    @classmethod
    def from_path(cls, path: str | Path) -> File:
        """The document in a file; the media type is guessed from its name."""
        return cls(_guess_type(path), name=Path(path).name, data=Path(path).read_bytes())

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str, *, name: str | None = None) -> File:
        """A document in memory."""
        return cls(media_type, name=name, data=data)


class ToolResultBlock(Struct, frozen=True, omit_defaults=True, tag_field="type", tag="tool-result", gc=False):
    """What a call gave, as the model reads it."""

    call_id: str
    content: tuple[TextBlock | Image | File, ...] = ()
    is_error: bool = False
    meta: Meta | None = None

    @property
    def text(self) -> str:
        """The visible text of the result."""
        return "".join(b.text for b in self.content if type(b) is TextBlock)


Block = TextBlock | ReasoningBlock | ToolCallBlock | ToolResultBlock | Image | File


def _guess_type(path: str | Path) -> str:
    import mimetypes

    return mimetypes.guess_type(str(path))[0] or "application/octet-stream"


# -- sources


class UserSource(Struct, frozen=True, tag_field="kind", tag="user", gc=False):
    """A person, or the program that embeds us."""


class PluginSource(Struct, frozen=True, tag_field="kind", tag="plugin", gc=False):
    """A plugin, or the runtime itself."""

    name: str


class AgentSource(Struct, frozen=True, tag_field="kind", tag="agent", gc=False):
    """Another agent."""

    id: str


class ModelSource(Struct, frozen=True, tag_field="kind", tag="model", gc=False):
    """A model."""

    provider: str
    model: str


class ToolSource(Struct, frozen=True, tag_field="kind", tag="tool", gc=False):
    """A tool call."""

    call_id: str


Source = UserSource | PluginSource | AgentSource | ModelSource | ToolSource
USER = UserSource()


# -- messages


class Message(Struct, frozen=True, omit_defaults=True, gc=False):
    """One message of the history. `id` is minted once and never reused; `source` says who wrote it."""

    id: str
    role: Role
    content: tuple[Block, ...] = ()
    source: Source = USER

    @property
    def text(self) -> str:
        """The visible text: text blocks, and that of tool results."""
        return "".join(b.text for b in self.content if type(b) is TextBlock or type(b) is ToolResultBlock)

    @property
    def calls(self) -> tuple[ToolCallBlock, ...]:
        """The calls the model asks for, in its order."""
        return tuple(b for b in self.content if type(b) is ToolCallBlock)

    @property
    def results(self) -> dict[str, str]:
        """Call id → text, for a tool's message."""
        return {b.call_id: b.text for b in self.content if type(b) is ToolResultBlock}

    def map_text(self, change: Callable[[str], str]) -> Message:
        """A copy in which every visible text went through `change`."""
        return msgspec.structs.replace(self, content=tuple(_map_block(b, change) for b in self.content))


def _map_block(block: Block, change: Callable[[str], str]) -> Block:
    if type(block) is TextBlock:
        return msgspec.structs.replace(block, text=change(block.text))
    if type(block) is ToolResultBlock:
        inner = tuple(msgspec.structs.replace(b, text=change(b.text)) if type(b) is TextBlock else b for b in block.content)
        return msgspec.structs.replace(block, content=inner)
    return block


# -- usage, failures


class Usage(Struct, frozen=True, omit_defaults=True, gc=False):
    """Tokens, in disjoint counts: cached input is not in `input`, reasoning is not in `output`."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """All tokens."""
        return self.input + self.output + self.cache_read + self.cache_write + self.reasoning

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input + other.input,
            self.output + other.output,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
        )


NO_USAGE = Usage()


class Failure(Struct, frozen=True, omit_defaults=True, gc=False):
    """How something failed, as the log keeps it: a code for programs, a sentence for people, never a traceback."""

    code: str
    message: str = ""
    status: int | None = None
    retry_after_s: float | None = None
    request_id: str | None = None


# -- chunks


class BlockStart(Struct, frozen=True, tag_field="kind", tag="block-start", gc=False):
    """Block `index` begins; `block` is its empty shape."""

    index: int
    block: Block


class TextDelta(Struct, frozen=True, tag_field="kind", tag="text-delta", gc=False):
    """More visible text of block `index`."""

    index: int
    text: str


class ReasoningDelta(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="reasoning-delta", gc=False):
    """More reasoning of block `index`; `signature` comes with the last."""

    index: int
    text: str
    signature: str | None = None


class ToolCallDelta(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="tool-call-delta", gc=False):
    """A piece of a call: id and name once, arguments in as many pieces as it takes."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class BlockEnd(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="block-end", gc=False):
    """Block `index` is whole; `meta` is what the provider wants back with it."""

    index: int
    meta: Meta | None = None


class UsageChunk(Struct, frozen=True, tag_field="kind", tag="usage", gc=False):
    """Usage so far; the last one of a stream counts."""

    usage: Usage


class FinishChunk(Struct, frozen=True, omit_defaults=True, tag_field="kind", tag="finish", gc=False):
    """The stream is over; `failure` says why if `reason` is `error` or `aborted`."""

    reason: Finish
    failure: Failure | None = None


Chunk = BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageChunk | FinishChunk


# -- requests


class Settings(Struct, frozen=True, omit_defaults=True, gc=False):
    """How to sample. None means the adapter's default. `extra`: what an adapter adds, by provider."""

    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None
    effort: str | None = None
    extra: dict[str, Any] | None = None


class ToolSpec(Struct, frozen=True, gc=False):
    """A tool as the model sees it; `schema` is the JSON schema of its arguments."""

    name: str
    description: str
    schema: dict[str, Any]


class Header(Struct, frozen=True, omit_defaults=True, gc=False):
    """All of a request but its messages. `defaulted` names the settings that the adapter filled in; `output` is the JSON schema
    of the answer, for providers that answer by one."""

    provider: str
    model: str
    settings: Settings = Settings()
    defaulted: tuple[str, ...] = ()
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    output: dict[str, Any] | None = None


class Request(Struct, frozen=True, omit_defaults=True, gc=False):
    """One model call, frozen. `output` is the JSON schema that the answer has to fit; an adapter sees it only in `prepare`,
    unless it says there that it honours it. `agent`, `turn`, `step`, `attempt` mark a request of the loop; they are not part
    of its digest."""

    provider: str
    model: str
    settings: Settings = Settings()
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    messages: Sequence[Message] = ()
    agent: str = ""
    turn: int = 0
    step: int = 0
    attempt: int = 0
    output: dict[str, Any] | None = None


def _refuse_change(value: Struct, field: str, _: object) -> NoReturn:
    of = f"{type(value).__name__}.{field}"
    raise AttributeError(f"{of} is frozen; hand on a changed copy: msgspec.structs.replace(..., {field}=...)")


for _handled in (Settings, Request):
    # Plugins handle these two: the error names the field. In the class body msgspec would put its own over it.
    setattr(_handled, "__setattr__", _refuse_change)  # noqa: B010


Labels = Mapping[str, str]
