"""A rule-based model: an answer decided from the messages alone, said as a stream of chunks like any model's.

Subclasses decide; this module speaks. Tokens are estimated at four characters each, so that spend can be shown and limited.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import trio
from msgspec import Struct

from ...actors.models.model import Model
from ...storage import chunks as c
from ...storage.messages import Chunk, Request
from .dialogue import Called, Dialogue, read_dialogue

PIECES = 8
"""An answer comes in at most so many pieces, whatever its length: enough to see it stream."""
CHARACTERS_PER_TOKEN = 4


class Call(Struct, frozen=True):
    """A call the model decides on; its id is made from the number of calls before it."""

    name: str
    arguments: dict[str, Any]


class Answer(Struct, frozen=True):
    """What the model says, and what it calls."""

    text: str
    calls: tuple[Call, ...] = ()


class RuleModel(Model):
    """A local, deterministic model. `pace` is how many seconds an answer takes, so that a person can watch."""

    provider = "rules"

    def __init__(self, *, pace: float = 0.0) -> None:
        self.pace = pace

    @abstractmethod
    def decide(self, dialogue: Dialogue) -> Answer:
        """The answer to the last question, from the dialogue alone."""

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """The answer as chunks: a block of text if there is any, one block for each call, the tokens, the finish."""
        dialogue = read_dialogue(request.messages)
        parts = list(_chunks_of(self.decide(dialogue), dialogue.calls, _length(request)))
        for part in parts:
            await trio.sleep(self.pace / len(parts))
            yield part


def _chunks_of(answer: Answer, earlier: tuple[Called, ...], read: int) -> Iterator[Chunk]:
    texts = [answer.text] if answer.text else []
    for index, text in enumerate(texts):
        yield c.block_start(index, "text")
        for piece in pieces(text):
            yield c.text_delta(index, piece)
        yield c.block_end(index)
    arguments = [msgspec.json.encode(call.arguments).decode() for call in answer.calls]
    for number, (call, text) in enumerate(zip(answer.calls, arguments, strict=True)):
        index = len(texts) + number
        yield c.block_start(index, "tool-call")
        # Ids are numbered through the whole log: children are named after them, and no two may be the same.
        yield c.tool_call_delta(index, id=f"{call.name}-{len(earlier) + number + 1}", name=call.name)
        for piece in pieces(text):
            yield c.tool_call_delta(index, arguments=piece)
        yield c.block_end(index)
    written = len(answer.text) + sum(map(len, arguments))
    yield c.usage(input=read // CHARACTERS_PER_TOKEN, output=-(-written // CHARACTERS_PER_TOKEN))
    yield c.finish("tool-calls" if answer.calls else "stop")


def pieces(text: str) -> Iterator[str]:
    """The text in at most `PIECES` pieces of equal length, the last one shorter; short texts in fewer."""
    size = max(-(-len(text) // PIECES), 16)
    return (text[start : start + size] for start in range(0, len(text), size))


def _length(request: Request) -> int:
    """How many characters the model reads: system prompt, texts and calls."""
    said = sum(len(m.text) + sum(len(call.arguments) for call in m.calls) for m in request.messages)
    return len(request.system) + said
