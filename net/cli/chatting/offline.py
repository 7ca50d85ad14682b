"""A model that needs no key and no network, so that `callboard chat` can be tried at once. It is a program, and says so.

It answers from the request alone, so the same request has the same answer: a turn that a kill interrupted goes on as it would
have. It speaks slowly, a word at a time, to be steered and stopped; it can think aloud, count, and look at the clock.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Sequence

import trio

from ....actors.models.model import Model, Prepared
from ....storage import chunks as c
from ....storage.messages import Chunk, Message, ReasoningBlock, Request, TextBlock, ToolCallBlock, UserSource

PROVIDER = "offline"
NAME = f"{PROVIDER}:parrot"
WORD_S = 0.05
"""Seconds that a word takes."""
WINDOW = 32_000
MOST = 1_000
INTRODUCTION = (
    "I am no language model but a small program, here so that you can try the chat without a key. I repeat what you say, "
    'count ("count to 20"), look at the clock ("what time is it"), and think aloud ("think about cats"). '
    "Name a real model with --model openai:NAME or --model anthropic:NAME."
)
_GREETINGS = re.compile(r"\b(hello|hi|hey|help|who are you|what are you)\b", re.IGNORECASE)
_COUNT = re.compile(r"\bcount\b\D*(\d+)", re.IGNORECASE)
_TIME = re.compile(r"\b(time|clock|date|day)\b", re.IGNORECASE)
_THINK = re.compile(r"\bthink\b(?: about)?(.*)", re.IGNORECASE | re.DOTALL)
_MIRROR = {
    "i": "you", "me": "you", "my": "your", "mine": "yours", "am": "are", "you": "I", "your": "my", "yours": "mine", "are": "am"
}  # fmt: skip


class Parrot(Model):
    """The model."""

    provider = PROVIDER

    def __init__(self, *, word_s: float = WORD_S) -> None:
        self._word_s = word_s

    def prepare(self, request: Request) -> Prepared:
        """Nothing to prepare."""
        return Prepared(request, context_window=WINDOW)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """The answer, a word at a time."""
        blocks = answer(request.messages, tools=[tool.name for tool in request.tools])
        words = 0
        for index, block in enumerate(blocks):
            if isinstance(block, ToolCallBlock):
                yield c.block_start(index, ToolCallBlock(block.id, block.name, ""))
                yield c.tool_call_delta(index, id=block.id, name=block.name, arguments=block.arguments)
            else:
                thinks = isinstance(block, ReasoningBlock)
                yield c.block_start(index, ReasoningBlock("") if thinks else TextBlock(""))
                for word in re.findall(r"\s*\S+", block.text):
                    await trio.sleep(self._word_s)
                    words += 1
                    yield c.reasoning_delta(index, word) if thinks else c.text_delta(index, word)
            yield c.block_end(index)
        yield c.usage(input=sum(len(message.text.split()) for message in request.messages), output=words)
        calls = any(isinstance(block, ToolCallBlock) for block in blocks)
        yield c.finish("tool-calls" if calls else "stop")


def answer(messages: Sequence[Message], *, tools: Sequence[str] = ()) -> list[TextBlock | ReasoningBlock | ToolCallBlock]:
    """What it says to a conversation."""
    last = messages[-1] if messages else Message("", "user")
    if last.role == "tool":
        return [TextBlock(f"The clock says: {last.text}")]
    asked = [message.text.strip() for message in _questions(messages)]
    text = asked[-1] if asked else ""
    if len(asked) > 1:
        return [TextBlock(" ".join(_say(each) for each in asked))]
    if _TIME.search(text) and "clock" in tools:
        return [TextBlock("Let me look."), ToolCallBlock(f"clock-{len(messages)}", "clock", "{}")]
    if (found := _THINK.search(text)) is not None:
        about = found[1].strip(" ?.!") or "that"
        thought = f"Somebody wants me to think about {about}. I have no idea about {about}, being a few lines of Python."
        return [ReasoningBlock(thought), TextBlock(f"I thought about {about}, and nothing came of it.")]
    return [TextBlock(_say(text))]


def _questions(messages: Sequence[Message]) -> Iterator[Message]:
    """What people said since the last answer: one message, or several that were steered in."""
    since = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1)
    yield from (m for m in messages[since + 1 :] if m.role == "user" and isinstance(m.source, UserSource))


def _say(text: str) -> str:
    if (found := _COUNT.search(text)) is not None:
        return " ".join(str(number) for number in range(1, min(int(found[1]), MOST) + 1))
    if not text or _GREETINGS.search(text):
        return INTRODUCTION
    words = [_MIRROR.get(word.lower(), word) for word in text.split()]
    return f"You say: {text} So tell me, why do you say {' '.join(words).rstrip('.!?')}?"
