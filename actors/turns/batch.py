"""The batch: all calls of one answer, run in the model's order as far as their modes allow.

`parallel` calls share a pool; an `exclusive` one is a barrier that waits for all before it and holds up all after. Bodies may end
in any order, results are written in the model's. What must not happen twice is decided by the log: a call that had started
before a crash runs again only if its record says `safe`.

One loop starts what may start and writes what may be written; bodies are tasks further out (`tools/bodies.py`), so that one that
ignores cancellation cannot hold the turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio
from msgspec import structs

from ...storage.errors import StoreError, UsageError
from ...storage.events import Event, InboxPut, ToolCalled, ToolResult
from ...storage.folds.position import CallState
from ...storage.messages import File, Image, Message
from ...storage.records import sound
from ..answers import CallResult, Done, LimitReached, ToolCall
from ..failures import described, said
from .approving import is_asked
from .pipeline import Slot, ask_person, decide, error_result, result_of, run_slot
from .verdicts import ABANDONED, ABORTED, ABORTED_BEFORE_DISPATCH, verdict

if TYPE_CHECKING:
    from .turn import Turn


class Batch:
    """The calls of the open step: what is started, what has ended, what is written."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.slots = [Slot(turn, call) for call in turn.position.calls if call.state != "done"]
        self.ended = trio.lowlevel.ParkingLot()
        self.limit: LimitReached | None = None
        self._started = self._written = 0

    async def run(self) -> None:
        """Until every call has its result.

        Raises:
            LimitReached: a seam or a body ended the turn; what had started has its result.
        """
        if len(self.slots) == 1:
            await self._start(self.slots[0], None)
            await self._write(self.slots[0])
        else:
            async with trio.open_nursery() as nursery:
                await self._loop(nursery)
        if self.limit is not None:
            raise self.limit

    @property
    def running(self) -> int:
        """How many bodies run."""
        return sum(not slot.over and not is_asked(slot) for slot in self.slots[: self._started])

    @property
    def only_asks(self) -> bool:
        """Whether all that is left to wait for are people's words on calls."""
        begun = self.slots[: self._started]
        left = [slot for slot in begun if not slot.over]
        writing = self._written < self._started and self.slots[self._written].over
        return bool(left) and all(is_asked(slot) for slot in left) and not writing and not self._may_start()

    @property
    def failure(self) -> BaseException | None:
        """What went wrong beside the bodies' cancellation: first what ends the process, then plain errors."""
        outcomes = [slot.outcome for slot in self.slots if slot.outcome is not None]
        fatal = next((outcome.fatal for outcome in outcomes if outcome.fatal is not None), None)
        return fatal or next((outcome.beside for outcome in outcomes if outcome.beside is not None), None)

    async def _loop(self, nursery: trio.Nursery) -> None:
        while self._written < len(self.slots):
            moved = False
            while self._written < self._started and self.slots[self._written].over:
                await self._write(self.slots[self._written])
                moved = True
            while self._may_start():
                await self._start(self.slots[self._started], nursery)
                moved = True
            if self.limit is not None and self._written == self._started:
                return
            if not moved:
                await self.ended.park()

    def _may_start(self) -> bool:
        if self._started == len(self.slots) or self.limit is not None:
            return False
        running = [slot for slot in self.slots[: self._started] if not slot.over]
        if any(slot.exclusive for slot in running):
            return False
        if self.slots[self._started].exclusive:
            return self._written == self._started
        return len(running) < self.turn.agent.limits.parallel

    async def _start(self, slot: Slot, nursery: trio.Nursery | None) -> None:
        self._started += 1
        try:
            await decide(slot)
        except LimitReached as limit:
            self.limit = limit
            slot.refuse(error_result("LIMIT", f"The turn ends here: {said(limit)}"))
        await trio.lowlevel.checkpoint_if_cancelled()
        if slot.over:
            return
        if slot.call.state == "waiting" and slot.question is None:
            self.turn.log.append(called(slot))
        if nursery is None:
            await self._body(slot)
        else:
            nursery.start_soon(self._body, slot)

    @trio.lowlevel.enable_ki_protection
    async def _body(self, slot: Slot) -> None:
        try:
            await ask_person(slot)
            if not slot.over:
                if slot.call.state == "waiting":
                    self.turn.log.append(called(slot))
                await run_slot(slot)
        except StoreError as error:
            slot.store_error = error
        self.ended.unpark_all()

    async def _write(self, slot: Slot) -> None:
        if slot.store_error is not None:
            raise slot.store_error
        await trio.lowlevel.checkpoint_if_cancelled()
        result = result_of(slot)
        if isinstance(slot.limit, LimitReached):
            self.limit = self.limit or slot.limit
        if not slot.refused:
            result = slot.result = await self._after(slot, result)
            slot.looked_at = True
        try:
            self.turn.log.append(*result_events(self.turn, slot, result), blobs=referred(slot, result))
        except _MISSHAPEN as error:
            self.turn.log.append(*result_events(self.turn, slot, unstorable(slot, error)))
        slot.written = True
        self._written += 1
        slot.raise_fatal()

    async def look_at_the_last(self) -> None:
        """Show `tool_after` what has ended and is not written: the exit writes nothing that the plugins have not seen."""
        left = [slot for slot in self.slots if slot.ended_by_itself and not (slot.written or slot.refused or slot.looked_at)]
        if not left or not self.turn.chains.has("tool_after"):
            return
        with trio.move_on_after(self.turn.agent.limits.abandon_s):
            for slot in left:
                slot.result = await self._after(slot, result_of(slot))
                slot.looked_at = True
        for slot in left:
            if not slot.looked_at:
                slot.result = error_result(
                    "ABORTED", "The call ended, but its result could not be looked at in time; it is not shown."
                )

    async def _after(self, slot: Slot, result: CallResult) -> CallResult:
        async def as_it_is(done: Done) -> Done:
            return done

        call = ToolCall(slot.call.id, slot.call.name, slot.arguments)
        try:
            done = await self.turn.chains.run("tool_after", self.turn.actor.context, Done(call, result), as_it_is)
        except LimitReached as limit:
            self.limit = self.limit or limit
            return result
        except Exception as error:
            return error_result("TOOL_ERROR", described(error))
        if done.result.error is None or result.error is not None:
            return done.result
        # Blocked: what the body had to add goes with its result, what the blocker adds stays.
        own = {id(message) for message in result.context}
        return structs.replace(done.result, context=tuple(m for m in done.result.context if id(m) not in own))


async def run_batch(turn: Turn) -> None:
    """Run the open calls of the step's answer."""
    turn.batch = Batch(turn)
    await turn.batch.run()


def referred(slot: Slot, result: CallResult) -> dict[str, bytes]:
    """The body's blobs that the result still refers to: a plugin may have taken them out of it."""
    named = {block.blob for block in result.content if isinstance(block, Image | File)}
    return {digest: data for digest, data in slot.blobs.items() if digest in named}


_MISSHAPEN = (UsageError, TypeError, AttributeError)
"""What comes of a result that is not shaped as its struct says: plugins and tools make them, and structs check nothing."""


def unstorable(slot: Slot, error: Exception) -> CallResult:
    """What the model reads of a result that a log cannot keep."""
    text = f"{slot.call.name} gave a result that cannot be stored: {said(error)}. The call itself may have worked."
    return error_result("INVALID_OUTPUT", text)


def called(slot: Slot) -> ToolCalled:
    """The record that says: decided, and about to run (or refused)."""
    effective = slot.arguments if slot.arguments != slot.call.arguments else None
    return ToolCalled(
        turn=slot.turn.number,
        step=slot.turn.position.step,
        call_id=slot.call.id,
        name=slot.call.name,
        arguments=slot.call.arguments,
        effective=effective,
        replay=slot.replay,
    )


def result_events(turn: Turn, slot: Slot, result: CallResult) -> list[Event]:
    """The result's record: with the call's if it was refused, and with the context of the whole batch if it is the last."""
    events: list[Event] = []
    if slot.refused and slot.call.state == "waiting":
        events.append(called(slot))
    event = _result(slot, result)
    return [*events, event, *_notes(slot, event), *context_puts(turn, [event])]


def _notes(slot: Slot, result: ToolResult) -> tuple[Event, ...]:
    """What the call brought about, unless a plugin has blocked its result."""
    return slot.notes if result.error is None else ()


def context_puts(turn: Turn, results: Sequence[Event]) -> list[Event]:
    """What all results of the batch add to the next step, if these are the last of them."""
    contexts = {event.call_id: event.context or () for event in results if isinstance(event, ToolResult)}
    if any(call.id not in contexts for call in turn.position.open_calls) or not contexts:
        return []
    messages = [message for call in turn.position.calls for message in contexts.get(call.id, call.context)]
    return [InboxPut(message=message, lane="next-step", wake=False) for message in messages]


def _result(slot: Slot, result: CallResult) -> ToolResult:
    context = tuple(_own_message(slot, number, message) for number, message in enumerate(result.context, 1))
    return ToolResult(
        turn=slot.turn.number,
        step=slot.turn.position.step,
        call_id=slot.call.id,
        content=result.content,
        error=result.error,
        concludes=bool(result.concludes) and result.error is None,
        context=context or None,
        meta=result.meta,
        sources=(slot.call.seq,) if slot.call.seq >= 0 else (),
    )


def _own_message(slot: Slot, number: int, message: Message) -> Message:
    """What a result adds to the next step, under an id that the call makes: no other message can have it."""
    if message.role != "user":
        raise UsageError(f"its context holds a message of the role {message.role!r}; only 'user' can enter a step")
    return structs.replace(message, id=f"{slot.key}#context{number}")


def closing_results(turn: Turn, *, code_started: str, code_waiting: str, finished_only: bool = False) -> list[Event]:
    """Results for all calls that have none, for the exit: a body's own where it ended by itself, else the code given."""
    if not turn.position.step_open:
        return []
    slots = {slot.call.id: slot for slot in turn.batch.slots} if turn.batch is not None else {}
    events: list[Event] = []
    for call in turn.position.open_calls:
        slot = slots.get(call.id)
        if slot is not None and slot.ended_by_itself:
            events.extend(_own_result(slot))
        elif not finished_only:
            events.append(_substitute(turn, call, slot, code_started, code_waiting))
    return events


def _own_result(slot: Slot) -> list[Event]:
    events: list[Event] = [called(slot)] if slot.refused and slot.call.state == "waiting" else []
    try:
        event = _result(slot, result_of(slot))
        sound(event)
    except _MISSHAPEN as error:
        event = _result(slot, unstorable(slot, error))
    events.extend((event, *_notes(slot, event)))
    return events


def closing_blobs(turn: Turn) -> dict[str, bytes]:
    """What the results that the exit writes refer to."""
    slots = turn.batch.slots if turn.batch is not None else ()
    return {digest: data for slot in slots if not slot.written for digest, data in slot.blobs.items()}


def _substitute(turn: Turn, call: CallState, slot: Slot | None, code_started: str, code_waiting: str) -> ToolResult:
    code = code_started if call.state == "started" else code_waiting
    if slot is not None and slot.outcome is not None:
        if not slot.outcome.started and code_started == ABORTED:
            code = ABORTED_BEFORE_DISPATCH
        elif slot.outcome.end == "abandoned":
            code = ABANDONED
    content = verdict(code).content
    return ToolResult(turn=turn.number, step=turn.position.step, call_id=call.id, content=content, error=code)
