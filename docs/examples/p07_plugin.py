"""Two plugins of a house: a budget for each customer over all agents of that customer, and secrets that reach no log."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import trio

from callboard import Agent, Plugin, System, tool
from callboard.actors import Answer, Boundary, Done, Enter, Next, Reject, SeamContext
from callboard.actors.plugins import Redact
from callboard.storage import Message, Record, Request
from callboard.storage.events import TurnEnd
from callboard.storage.messages import BlockEnd, Chunk, FinishChunk, ReasoningDelta, TextDelta, ToolCallDelta

IBAN = r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"


class CustomerBudget(Plugin):
    """Tokens per customer over all agents of the customer. (The box has it: Budget(label="customer", ...).)"""

    def __init__(self, tokens: int) -> None:
        self.tokens, self.spent = tokens, dict[str, int]()

    async def on_start(self, system: System) -> None:
        """Begin with what the index knows of each agent: the turns that have ended."""
        async for a in system.agents(prefix=""):
            self._add(a.labels.get("customer", ""), a.usage.total)

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject], /) -> Enter | Reject:
        """No step for a customer who has spent everything."""
        if self.spent.get(ctx.labels["customer"], 0) >= self.tokens:
            return Reject("customer budget spent")
        return await next(boundary)

    async def on_event(self, ctx: SeamContext, record: Record, /) -> None:
        """After the commit: a turn ends once, and what ended before the start is in the index."""
        if isinstance(record.event, TurnEnd):
            self._add(ctx.labels["customer"], record.event.usage.total)

    def _add(self, customer: str, tokens: int) -> None:
        self.spent[customer] = self.spent.get(customer, 0) + tokens


def mask(text: str) -> str:
    """The text without what looks like a key."""
    return re.sub(r"sk-\w{20,}", "[key]", text)


class Mask(Plugin):
    """Keys are taken out wherever they come from: a person, the model, a tool."""

    async def accept(
        self, ctx: SeamContext, message: Message, next: Next[Message, Message | Reject | Answer], /
    ) -> Message | Reject | Answer:
        """Before the message is logged."""
        return await next(message.map_text(mask))

    async def stream(
        self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]], /
    ) -> AsyncIterator[Chunk]:
        """Before the chunks are logged; a key may straddle two of them."""
        async for chunk in hold_back(next(request), mask, window=64):
            yield chunk

    async def tool_after(self, ctx: SeamContext, done: Done, next: Next[Done, Done], /) -> Done:
        """Before the result is logged."""
        return await next(done.map_text(mask))


# -- holding back

Delta = TextDelta | ReasoningDelta | ToolCallDelta


class hold_back:
    """The chunks with `change` over their whole text: of each block the last `window` characters wait for what follows.

    So whatever `change` looks for has to be recognisable by its first `window` characters. What has begun is held to its end.
    """

    def __init__(self, chunks: AsyncIterator[Chunk], change: Callable[[str], str], *, window: int) -> None:
        self._chunks, self._change, self._window = chunks, change, window
        self._held: dict[tuple[type[Delta], int], str] = {}
        self._ready: deque[Chunk] = deque()

    def __aiter__(self) -> hold_back:
        return self

    async def __anext__(self) -> Chunk:
        while not self._ready:
            chunk = await anext(self._chunks, None)
            self._ready.extend(self._release() if chunk is None else self._take(chunk))
            if chunk is None and not self._ready:
                raise StopAsyncIteration
        return self._ready.popleft()

    def _take(self, chunk: Chunk) -> Iterator[Chunk]:
        if isinstance(chunk, Delta):
            key = type(chunk), chunk.index
            text = self._held.get(key, "") + (chunk.arguments if isinstance(chunk, ToolCallDelta) else chunk.text)
            cut = self._cut(text)
            self._held[key] = text[cut:]
            yield _with_text(chunk, self._change(text[:cut]))
            return
        if isinstance(chunk, BlockEnd):
            yield from self._release(chunk.index)
        elif isinstance(chunk, FinishChunk):
            yield from self._release()
        yield chunk

    def _release(self, index: int | None = None) -> Iterator[Chunk]:
        """All that is held of a block, or of every block."""
        for kind, at in [key for key in self._held if index in (None, key[1])]:
            if text := self._held.pop((kind, at)):
                yield _with_text(kind(at) if kind is ToolCallDelta else kind(at, ""), self._change(text))

    def _cut(self, text: str) -> int:
        """How much may go: never into the middle of something that changes."""
        cut, whole = max(0, len(text) - self._window), self._change(text)
        while cut and self._change(text[:cut]) + self._change(text[cut:]) != whole:
            cut -= 1
        return cut


def _with_text(chunk: Delta, text: str) -> Chunk:
    if isinstance(chunk, ToolCallDelta):
        return ToolCallDelta(chunk.index, chunk.id, chunk.name, text)
    return TextDelta(chunk.index, text) if isinstance(chunk, TextDelta) else ReasoningDelta(chunk.index, text, chunk.signature)


# -- the program


@tool(replay="safe")
async def read_config(path: str) -> str:
    """Read a configuration file."""
    return f"{path}: key = sk-{'a1' * 12}"


desk: Agent[Any, str] = Agent("desk", model="openai:gpt-5", tools=[read_config])


async def main() -> None:
    """Two desks of one customer share a budget; what either reads is free of keys and accounts."""
    plugins = [CustomerBudget(2_000_000), Redact([IBAN]), Mask()]
    async with System.open("state", agents=[desk], plugins=plugins) as system:
        for id in ("acme/desk-1", "acme/desk-2"):
            ref = await system.spawn(desk, id=id, labels={"customer": "acme"})  # children and forks inherit the labels
            print(await ref.ask("Pay DE44 5001 0517 5407 3249 31 with the key in app.toml"))


if __name__ == "__main__":
    trio.run(main)
