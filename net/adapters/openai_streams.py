"""From the events of a streamed chat completion to chunks. Pure: feed it events, and it yields what they mean.

The protocol is OpenAI's, the servers are many, so what they get wrong is known here: calls whose pieces have no index, or all the
same; ids that come again with every piece, or never; finish words of other protocols; usage in an event of its own, after the
finish, or not at all. So the finish is held back until the end of the stream. What is unknown fails by name and is not guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from ...storage import chunks as c
from ...storage.errors import ModelError
from ...storage.messages import Chunk, Failure, Finish, Usage, UsageChunk
from .failures import from_event
from .reading import EMPTY, Fields, count, fields, fields_of, items, text
from .sse import Event

FINISHES: dict[str, Finish] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "model_length"), "max-tokens"),
    **dict.fromkeys(("tool_calls", "function_call", "tool_use"), "tool-calls"),
    **dict.fromkeys(("content_filter", "safety", "recitation"), "content-filter"),
    "refusal": "refusal",
}
_FAULTS = frozenset({"error", "insufficient_system_resource", "abort", "cancelled", "network_error"})
"""Finish words with which a server says that it could not go on."""


class _Call:
    """A call while its pieces come: the index of its block, and what of it is known."""

    __slots__ = ("id", "index", "name")

    def __init__(self, index: int) -> None:
        self.index, self.id, self.name = index, "", ""


class ChatReader:
    """The state of one stream. Text and reasoning close when something else begins; calls are open until the end, because
    pieces of parallel ones may come in turns."""

    def __init__(self) -> None:
        self._next = 0
        self._open: tuple[Literal["text", "reasoning"], int] | None = None
        self._calls: dict[int, _Call] = {}
        self._in_order: list[_Call] = []
        self._usage: Usage | None = None
        self._finish = ""
        self._refused = False
        self.done = False

    def ends(self, event: Event) -> bool:
        """Whether this is the last event of its stream."""
        return event.data == "[DONE]"

    def feed(self, event: Event) -> Iterator[Chunk]:
        """The chunks in an event.

        Raises:
            ModelError: the event is an error of the provider's, or nothing that this protocol knows.
        """
        if self.ends(event):
            self.done = True
            return
        found = fields_of(event)
        if found.get("error"):
            raise from_event(found["error"])
        if (usage := found.get("usage")) is not None:
            self._usage = usage_of(fields(usage))
        for choice in map(fields, items(found.get("choices"))):
            if choice.get("index", 0) in (0, None):
                yield from self._choice(choice)

    def _choice(self, choice: Fields) -> Iterator[Chunk]:
        delta = fields(choice.get("delta"))
        content = delta.get("content")
        if thought := text(delta.get("reasoning_content")) or text(delta.get("reasoning")):
            yield from self._show("reasoning", thought)
        if isinstance(content, str):
            yield from self._show("text", content)
        elif content:
            yield from self._parts(items(content))
        if refusal := text(delta.get("refusal")):
            self._refused = True
            yield from self._show("text", refusal)
        for piece in map(fields, items(delta.get("tool_calls"))):
            yield from self._piece(piece)
        self._finish = text(choice.get("finish_reason")) or self._finish

    def _parts(self, parts: list[Any]) -> Iterator[Chunk]:
        """Content in parts, as Mistral sends it."""
        for part in map(fields, parts):
            if part.get("type") == "thinking":
                yield from self._show("reasoning", "".join(text(fields(p).get("text")) for p in items(part.get("thinking"))))
            else:
                yield from self._show("text", text(part.get("text")))

    def _show(self, kind: Literal["text", "reasoning"], shown: str) -> Iterator[Chunk]:
        if not shown:
            return
        if self._open is None or self._open[0] != kind:
            yield from self._close()
            self._open = kind, self._new_index()
            yield c.block_start(self._open[1], kind)
        make = c.text_delta if kind == "text" else c.reasoning_delta
        yield make(self._open[1], shown)

    def _close(self) -> Iterator[Chunk]:
        if self._open is not None:
            yield c.block_end(self._open[1])
            self._open = None

    def _new_index(self) -> int:
        self._next += 1
        return self._next - 1

    # -- calls

    def _piece(self, piece: Fields) -> Iterator[Chunk]:
        function = fields(piece.get("function"))
        id, name = text(piece.get("id")), text(function.get("name"))
        call = self._call_of(piece.get("index"), id, name)
        if call is None:
            yield from self._close()
            call = _Call(self._new_index())
            place = piece.get("index")
            self._calls[place if type(place) is int else -1] = call
            self._in_order.append(call)
            yield c.block_start(call.index, "tool-call")
        new_id, new_name = (id if not call.id else ""), (name if not call.name else "")
        call.id, call.name = call.id or id, call.name or name
        arguments = _arguments(function.get("arguments"))
        if new_id or new_name or arguments:
            yield c.tool_call_delta(call.index, id=new_id or None, name=new_name or None, arguments=arguments)

    def _call_of(self, place: Any, id: str, name: str) -> _Call | None:
        """The call that a piece goes on; None if it begins one."""
        call = self._calls.get(place if type(place) is int else -1)
        if call is None:
            return None
        begins = (name and id and id != call.id) or (name and call.name and type(place) is not int)
        return None if begins else call

    # -- the end

    def end(self) -> Iterator[Chunk]:
        """What is left when the stream is over.

        Raises:
            ModelError: TRANSPORT, it was cut; BAD_RESPONSE, it ended with a word that is unknown.
        """
        if not self._finish and not self.done:
            raise ModelError("TRANSPORT", "the provider's stream ended in the middle of the answer")
        finish = self._finish_word()
        yield from self._close()
        for call in self._in_order:
            if not call.id:
                yield c.tool_call_delta(call.index, id=f"call_{call.index}")
            yield c.block_end(call.index)
        if self._usage is not None:
            yield UsageChunk(self._usage)
        if isinstance(finish, Failure):
            yield c.finish("error", failure=finish)
        elif self._next == 0 and finish in ("stop", "tool-calls"):
            yield c.finish("error", failure=EMPTY)
        else:
            yield c.finish(finish)

    def _finish_word(self) -> Finish | Failure:
        word = self._finish.lower()
        if self._refused:
            return "refusal"
        if not word:
            return "tool-calls" if self._in_order else "stop"
        if word in _FAULTS:
            return Failure("SERVER", f"the provider could not go on: it finished with {self._finish!r}")
        if word not in FINISHES:
            raise ModelError("BAD_RESPONSE", f"the model finished with {self._finish!r}, which this adapter does not know")
        return FINISHES[word]


def usage_of(usage: Fields) -> Usage:
    """OpenAI's counts, in which the cached are part of the prompt and the reasoned of the completion, as disjoint ones."""
    prompt, completion = count(usage.get("prompt_tokens")), count(usage.get("completion_tokens"))
    read_of, wrote_of = fields(usage.get("prompt_tokens_details")), fields(usage.get("completion_tokens_details"))
    cached = min(count(read_of.get("cached_tokens")) or count(usage.get("prompt_cache_hit_tokens")), prompt)
    written = min(count(read_of.get("cache_write_tokens")), prompt - cached)
    reasoning = count(wrote_of.get("reasoning_tokens"))
    # Some count reasoning beside the completion and not in it: their total says so.
    beside = reasoning and count(usage.get("total_tokens")) == prompt + completion + reasoning
    output = completion if beside else max(completion - reasoning, 0)
    return Usage(prompt - cached - written, output, cached, written, reasoning if beside else min(reasoning, completion))


def _arguments(value: Any) -> str:
    """A piece of arguments: the text of it, or what a server sent decoded."""
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value).decode()
