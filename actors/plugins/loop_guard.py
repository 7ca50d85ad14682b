"""LoopGuard: a model that makes the same call again and again, and gets the same result, is told so, and then stopped.

A turn has no limit of steps of its own. The cheapest runaway is a call that changes nothing: after a few equal ones the result
carries a note for the model; if it goes on all the same, the turn ends with `limit`. Calls that never reach a body (an unknown
tool, arguments that do not fit, a denial) have no `tool_after`; they are counted at the boundary behind them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from ...storage.errors import UsageError
from ...storage.events import AssistantMessage, ToolCalled, ToolResult, TurnStart
from ...storage.messages import Block, Message, PluginSource, TextBlock, ToolCallBlock, ToolResultBlock
from ...storage.records import Record
from ..answers import Boundary, Done, Enter, LimitReached, Reject
from ..content import mint_id
from ..seams import Next, Plugin, SeamContext

_encode = msgspec.json.Encoder(order="deterministic").encode
_TYPES = {"turn/start", "assistant/message", "tool/call", "tool/result"}


class LoopGuard(Plugin):
    """Count equal calls with equal results within a turn."""

    def __init__(self, *, repeats: int = 4) -> None:
        """`repeats`: the equal call that is answered with a note; one more ends the turn.

        Raises:
            UsageError: `repeats` is less than 2: one call repeats nothing.
        """
        if not repeats >= 2:
            raise UsageError(f"LoopGuard(repeats={repeats!r}) would stop calls that repeat nothing; give 2 or more")
        self._repeats = repeats

    def __repr__(self) -> str:
        return f"LoopGuard(repeats={self._repeats})"

    async def tool_after(self, ctx: SeamContext, done: Done, next: Next[Done, Done], /) -> Done:
        """Count the call; add the note, or end the turn."""
        done = await next(done)
        counted = await self._counted(ctx)
        counted.ids.add((ctx.step, done.call.id))
        note = self._note(done.call.name, counted.count(done.call.name, done.call.arguments, done.result.content))
        if note is None:
            return done
        return Done(done.call, msgspec.structs.replace(done.result, context=(*done.result.context, note)))

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject], /) -> Enter | Reject:
        """Count what the step before has refused."""
        notes = [] if boundary.step == 1 else await self._notes_on_refused(ctx, boundary.step - 1)
        if not notes:
            return await next(boundary)
        return await next(msgspec.structs.replace(boundary, messages=(*boundary.messages, *notes)))

    async def _notes_on_refused(self, ctx: SeamContext, step: int) -> list[Message]:
        calls, results = _last_batch(await ctx.agent.messages())
        if not calls:
            return []
        counted = await self._counted(ctx)
        notes: list[Message | None] = []
        for call in calls:
            if (step, call.id) not in counted.ids and call.id in results:
                counted.ids.add((step, call.id))
                notes.append(self._note(call.name, counted.count(call.name, call.arguments, results[call.id])))
        return [note for note in notes if note is not None]

    def _note(self, tool: str, times: int) -> Message | None:
        if times > self._repeats:
            raise LimitReached("loop", f"the call {tool} was repeated {times} times with the same result")
        if times < self._repeats:
            return None
        text = f"You have called {tool} {times} times alike, with the same result. Do something else."
        return Message(mint_id(), "user", (TextBlock(text),), PluginSource("loop-guard"))

    async def _counted(self, ctx: SeamContext) -> _Counted:
        kept: _Counted | None = ctx.local.get(self)
        if kept is None or kept.turn != ctx.turn:
            kept = _Counted(ctx.turn)
            if ctx.requests > 1:  # a turn that was taken up: what it had done is in its log
                kept.recount(await ctx.records(_TYPES))
            ctx.local[self] = kept
        return kept


class _Counted:
    """How often each call of a turn was made alike, and which calls were counted."""

    def __init__(self, turn: int) -> None:
        self.turn = turn
        self.ids: set[tuple[int, str]] = set()
        """Step and call id: some providers begin their ids anew with every answer."""
        self._times: Counter[bytes] = Counter()

    def count(self, name: str, arguments: str, content: Sequence[Block]) -> int:
        """One more; how many there are."""
        key = sha256(_encode((name, _canonical(arguments), content))).digest()
        self._times[key] += 1
        return self._times[key]

    def recount(self, records: Sequence[Record]) -> None:
        """Count what the log of the turn holds."""
        calls: dict[str, tuple[str, str]] = {}
        for record in records:
            event: Any = record.event
            if isinstance(event, TurnStart):
                self._times.clear()
                self.ids.clear()
            elif isinstance(event, AssistantMessage):
                calls = {call.id: (call.name, call.arguments) for call in event.message.calls}
            elif isinstance(event, ToolCalled):
                calls[event.call_id] = event.name, event.effective or event.arguments
            elif isinstance(event, ToolResult) and event.call_id in calls:
                self.ids.add((event.step, event.call_id))
                self.count(*calls[event.call_id], event.content)


def _canonical(arguments: str) -> Any:
    """Arguments that differ in blanks or order are the same."""
    try:
        return msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments


def _last_batch(view: Sequence[Message]) -> tuple[Sequence[ToolCallBlock], dict[str, Sequence[Block]]]:
    """The calls of the last answer and what they gave."""
    results: dict[str, Sequence[Block]] = {}
    for message in reversed(view):
        if message.role != "tool":
            return (message.calls, results) if message.role == "assistant" else ((), results)
        results.update({block.call_id: block.content for block in message.content if isinstance(block, ToolResultBlock)})
    return (), results
