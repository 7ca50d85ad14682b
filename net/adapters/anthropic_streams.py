"""From the events of Anthropic's streamed messages to chunks. Pure: feed it events, and it yields what they mean.

The protocol names its blocks, so each becomes the block of the same index. What the loop has no word for is kept whole in `meta`
and goes back with the history, because the provider asks for it: thoughts that it has blacked out, and the calls and results of
tools that run at the provider. Kinds of events and deltas that are unknown are passed over, as the protocol says they may come.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ...storage import chunks as c
from ...storage.errors import ModelError
from ...storage.messages import BlockStart, Chunk, Finish, ReasoningBlock, TextBlock, ToolCallBlock, Usage, UsageChunk
from .anthropic_requests import META
from .failures import from_event
from .reading import EMPTY, Fields, count, fields, fields_of, items, text
from .sse import Event

FINISHES: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool-calls",
    "max_tokens": "max-tokens",
    "model_context_window_exceeded": "max-tokens",
    "pause_turn": "max-tokens",  # cut in the middle, to be asked on
    "refusal": "refusal",
}


class MessageReader:
    """The state of one stream."""

    def __init__(self) -> None:
        self._kinds: dict[int, str] = {}
        self._shown: set[int] = set()
        self._foreign: dict[int, Fields] = {}
        self._inputs: dict[int, list[str]] = {}
        self._citations: dict[int, list[Any]] = {}
        self._counts: Fields = {}
        self._finish = ""

    def ends(self, event: Event) -> bool:
        """Whether this is the last event of its stream."""
        return event.name == "message_stop"

    def feed(self, event: Event) -> Iterator[Chunk]:
        """The chunks in an event.

        Raises:
            ModelError: the event is an error of the provider's, or no event of this protocol.
        """
        found = fields_of(event)
        index = count(found.get("index"))
        match found.get("type"):
            case "content_block_delta":
                yield from self._delta(index, fields(found.get("delta")))
            case "content_block_start":
                yield from self._start(index, fields(found.get("content_block")))
            case "content_block_stop":
                yield from self._stop(index)
            case "message_start":
                yield self._used(fields(fields(found.get("message")).get("usage")))
            case "message_delta":
                self._finish = text(fields(found.get("delta")).get("stop_reason")) or self._finish
                self._used(fields(found.get("usage")))
            case "error":
                raise from_event(found.get("error"))
            case _:
                pass  # ping, message_stop, and what is to come

    def _used(self, usage: Fields) -> UsageChunk:
        # Those at the end are totals, and name only what has changed.
        self._counts |= {name: value for name, value in usage.items() if value is not None}
        return UsageChunk(usage_of(self._counts))

    def _start(self, index: int, block: Fields) -> Iterator[Chunk]:
        if index in self._kinds:
            raise ModelError("BAD_RESPONSE", f"the provider began block {index} twice")
        kind = self._kinds[index] = text(block.get("type"))
        match kind:
            case "text":
                yield c.block_start(index, "text")
                yield from self._delta(index, {"type": "text_delta", "text": block.get("text")})
            case "thinking":
                yield c.block_start(index, "reasoning")
                yield from self._delta(index, {"type": "thinking_delta", "thinking": block.get("thinking")})
            case "redacted_thinking":
                self._shown.add(index)
                yield BlockStart(index, ReasoningBlock("", meta={META: {"redacted": text(block.get("data"))}}))
            case "tool_use":
                self._shown.add(index)
                yield c.block_start(index, ToolCallBlock(text(block.get("id")), text(block.get("name"))))
                if given := fields(block.get("input")):
                    yield c.tool_call_delta(index, arguments=msgspec.json.encode(given).decode())
            case _:
                self._foreign[index] = block

    def _delta(self, index: int, delta: Fields) -> Iterator[Chunk]:
        kind = self._kinds.get(index)
        match delta.get("type"):
            case "text_delta" if kind == "text" and (piece := text(delta.get("text"))):
                self._shown.add(index)
                yield c.text_delta(index, piece)
            case "thinking_delta" if kind == "thinking" and (piece := text(delta.get("thinking"))):
                self._shown.add(index)
                yield c.reasoning_delta(index, piece)
            case "signature_delta" if kind == "thinking":
                yield c.reasoning_delta(index, "", signature=text(delta.get("signature")))
            case "input_json_delta" if kind == "tool_use":
                if piece := text(delta.get("partial_json")):
                    yield c.tool_call_delta(index, arguments=piece)
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(text(delta.get("partial_json")))
            case "citations_delta":
                self._citations.setdefault(index, []).append(delta.get("citation"))
            case _:
                pass

    def _stop(self, index: int) -> Iterator[Chunk]:
        if index not in self._kinds:
            return
        if index in self._foreign:
            yield from self._kept(index)
        cited = items(self._citations.pop(index, None))
        yield c.block_end(index, meta={META: {"citations": cited}} if cited else None)
        del self._kinds[index]

    def _kept(self, index: int) -> Iterator[Chunk]:
        block = self._foreign.pop(index)
        if pieces := "".join(self._inputs.pop(index, [])):
            try:
                block = {**block, "input": msgspec.json.decode(pieces)}
            except msgspec.DecodeError as error:
                raise ModelError("BAD_RESPONSE", f"the provider's own call of {block.get('name')!r} is no JSON") from error
        self._shown.add(index)
        yield BlockStart(index, TextBlock("", meta={META: {"block": block}}))

    def end(self) -> Iterator[Chunk]:
        """What is left when the stream is over.

        Raises:
            ModelError: TRANSPORT, it was cut; BAD_RESPONSE, it ended with a word that is unknown.
        """
        if not self._finish:
            raise ModelError("TRANSPORT", "the provider's stream ended in the middle of the answer")
        if self._finish not in FINISHES:
            raise ModelError("BAD_RESPONSE", f"the model finished with {self._finish!r}, which this adapter does not know")
        finish = FINISHES[self._finish]
        for index in list(self._kinds):
            yield from self._stop(index)
        if self._counts:
            yield UsageChunk(usage_of(self._counts))
        if not self._shown and finish in ("stop", "tool-calls"):
            yield c.finish("error", failure=EMPTY)
        else:
            yield c.finish(finish)


def usage_of(usage: Fields) -> Usage:
    """Anthropic's counts, in which thinking is part of the output and the cache beside the input, as disjoint ones."""
    output = count(usage.get("output_tokens"))
    details = fields(usage.get("output_tokens_details"))
    thinking = min(count(details.get("thinking_tokens")) or count(details.get("reasoning_tokens")), output)
    return Usage(
        count(usage.get("input_tokens")),
        output - thinking,
        count(usage.get("cache_read_input_tokens")),
        count(usage.get("cache_creation_input_tokens")),
        thinking,
    )
