"""A ToolContext for testing a tool alone: no system, no store, no model.

What the tool sends, notes and replies is kept in lists, in order; what it asks is answered from a table. The tool itself is
called as the plain function it still is: `await lookup(tool_context(deps=FakeDb()), "Oslo")`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import trio
from msgspec import Struct

from ...storage.errors import UsageError
from ...storage.events.base import Route
from ..content import to_route
from ..tools.context import Content, LoopRunner, ToolContext


class Sent(Struct, frozen=True):
    """A message the tool sent or asked; stands for the Receipt as well."""

    to: str
    content: Content
    message_id: str
    seq: int = 0


class Replied(Struct, frozen=True):
    """An answer the tool gave to a route itself; `route` None is that of the turn."""

    content: Content
    route: Route | None
    delivery: str


class Noted(Struct, frozen=True):
    """A note the tool wrote."""

    kind: str
    data: Any


class Handle(Struct, frozen=True):
    """Stands for an AgentRef: it has the id, and nothing behind it."""

    id: str


class RecordingPort:
    """The runtime's side of a ToolContext, reduced to lists."""

    def __init__(
        self, answers: Mapping[str, Any] | Callable[[str, Content], Any], now: datetime | None, loop: LoopRunner | None
    ) -> None:
        self.loop = loop
        self.sent: list[Sent] = []
        self.asked: list[Sent] = []
        self.replies: list[Replied] = []
        self.notes: list[Noted] = []
        self.progress_texts: list[str] = []
        self.spawned: list[Handle] = []
        self._answers, self._now = answers, now

    def now(self) -> datetime:
        """The time the test gave, or the real one."""
        return self._now or datetime.now(UTC)

    def note(self, kind: str, data: Any) -> None:
        """Keep it."""
        self.notes.append(Noted(kind, data))

    def progress(self, text: str) -> None:
        """Keep it."""
        self.progress_texts.append(text)

    async def send(self, to: str, content: Content, message_id: str, *, minted: bool) -> Any:
        """Keep it; the record doubles as the Receipt."""
        await trio.lowlevel.checkpoint()
        self.sent.append(Sent(to, content, message_id))
        return self.sent[-1]

    async def ask(self, to: str, content: Content, message_id: str, timeout: float | None, *, minted: bool) -> Any:
        """Keep it, and answer from the table."""
        await trio.lowlevel.checkpoint()
        self.asked.append(Sent(to, content, message_id))
        if callable(self._answers):
            return self._answers(to, content)
        if to not in self._answers:
            raise UsageError(f"the tool asks {to!r}, and the test has no answer: tool_context(answers={{{to!r}: ...}})")
        return self._answers[to]

    async def reply(self, content: Content, route: Mapping[str, Any] | Route | None, delivery: str) -> Any:
        """Keep it."""
        await trio.lowlevel.checkpoint()
        self.replies.append(Replied(content, to_route(route), delivery))

    async def spawn(self, agent: Any, id: str) -> Any:
        """A handle with that id."""
        await trio.lowlevel.checkpoint()
        self.spawned.append(Handle(id))
        return self.spawned[-1]


class RecordingContext(ToolContext[Any]):
    """A ToolContext whose `recorded` port holds all that the tool did through it."""

    recorded: RecordingPort

    def __init__(self, port: RecordingPort, **fields: Any) -> None:
        super().__init__(port, **fields)
        self.recorded = port


def tool_context(
    deps: Any = None,
    labels: Mapping[str, str] | None = None,
    *,
    answers: Mapping[str, Any] | Callable[[str, Content], Any] | None = None,
    now: datetime | None = None,
    loop: LoopRunner | None = None,
    **fields: Any,
) -> RecordingContext:
    """A context for calling a tool in a test.

    Args:
        deps: what the tool finds as `ctx.deps`.
        labels: the agent's labels.
        answers: agent id → what `ctx.ask` returns (an Outcome, or whatever the tool reads of it), or a function.
        now: the wall clock.
        loop: runs what a `loop="asyncio"` tool calls.
        fields: any other attribute: `agent` (an id will do), `turn`, `step`, `call_id`, `effect_key`, `route`, `sender`, `scope`.
    """
    known: dict[str, Any] = {"agent": "agent", "turn": 1, "step": 1, "call_id": "c1"} | fields
    if isinstance(known["agent"], str):
        known["agent"] = Handle(known["agent"])
    known.setdefault("effect_key", f"{known['agent'].id}/{known['turn']}/{known['step']}/{known['call_id']}")
    return RecordingContext(RecordingPort(answers or {}, now, loop), deps=deps, labels=labels, **known)
