"""The pipeline of one call: tool_before, guards, tool_around, the body, and what its end means to the model.

Whatever goes wrong here is an error result that the model reads and may act on; only `LimitReached` and what is no `Exception`
end the turn. The call's record is on disk before a body that may not run twice begins; a `safe` body need not wait for that,
since it would be run again anyway.
"""

from __future__ import annotations

import inspect
from functools import cached_property
from typing import TYPE_CHECKING, Any

import trio

from ...mailbox.addresses import effect_key
from ...storage.errors import StoreError, ToolError, UsageError
from ...storage.events import Note, Replay
from ...storage.folds.position import CallState
from ..answers import Allow, Ask, CallResult, Deny, LimitReached, ToolCall, ToolDefinition
from ..children import run_delegation
from ..content import to_route
from ..delegation import Delegate
from ..failures import causes, described, said
from ..handoff import Handoff, hand_over
from ..output import offered
from ..ports import tool_context
from ..texts import well_formed
from ..tools.bodies import BodyOutcome, run_body
from ..tools.output import context_messages, limit_output
from .approving import asked_about, put_question, settle_question, withdraw_question
from .verdicts import ABANDONED, ABORTED, OUTCOME_UNKNOWN, TEXTS, TIMEOUT, verdict

if TYPE_CHECKING:
    from .turn import Turn


class Slot:
    """One call on its way: what was decided about it, and what its body came to."""

    def __init__(self, turn: Turn, call: CallState) -> None:
        self.turn, self.call = turn, call
        self.runs = 1 if call.state == "started" else 0
        """How often its body may have begun: from the second time on what it sends may be there already. (A plugin may run it
        again, too.)"""
        self.arguments = call.effective or call.arguments
        self.tool: Any = None
        self.args: Any = None
        self.refused = False
        self.written = False
        self.looked_at = False
        """Whether `tool_after` has had its say on the result."""
        self.result: CallResult | None = None
        self.outcome: BodyOutcome | None = None
        self.blobs: dict[str, bytes] = {}
        self.notes: tuple[Note, ...] = ()
        """What is a fact as soon as the result is one."""
        self.store_error: StoreError | None = None
        self.limit: LimitReached | None = None
        self.question: Ask | None = None
        """What a person has to decide before the body may run."""
        self.scope = trio.CancelScope()
        self.tool = next((tool for tool in _offered(turn) if tool.name == call.name), None)

    @cached_property
    def key(self) -> str:
        """The effect key: the same whenever this call runs."""
        return effect_key(self.turn.actor.id, self.turn.number, self.turn.position.step, self.call.id)

    @property
    def exclusive(self) -> bool:
        """Whether it runs alone."""
        return getattr(self.tool, "mode", "parallel") == "exclusive"

    @property
    def replay(self) -> Replay:
        """What becomes of a started body after a crash: by the log once it started, by the code before."""
        if self.call.state == "started":
            return self.call.replay  # type: ignore[return-value]
        return getattr(self.tool, "replay", "never")

    @property
    def over(self) -> bool:
        """Whether there is a result to write."""
        return self.result is not None or self.outcome is not None or self.store_error is not None

    @property
    def ended_by_itself(self) -> bool:
        """Whether the result is the call's own, and not that of a cancellation."""
        if self.result is not None:
            return True
        return self.outcome is not None and self.outcome.end in ("value", "error", "timeout") and self.outcome.fatal is None

    def refuse(self, result: CallResult) -> None:
        """The body will not run; this is what the model reads."""
        self.refused, self.result = True, result

    def raise_fatal(self) -> None:
        """Pass on what is no `Exception` (SystemExit and the like): it closes the turn and the system."""
        if self.outcome is not None and self.outcome.fatal is not None:
            raise self.outcome.fatal


def _offered(turn: Turn) -> tuple[ToolDefinition, ...]:
    return offered(turn.assembly.tools if turn.assembly is not None else (), turn.agent.typed)


def error_result(code: str, text: str, **rest: Any) -> CallResult:
    """A result that the model reads as an error."""
    return CallResult.of(well_formed(text), error=well_formed(str(code)), **rest)


async def decide(slot: Slot) -> None:
    """Whether the body runs, and with which arguments; a slot that is refused has its result.

    Raises:
        LimitReached: a seam ended the turn.
    """
    if slot.call.state == "started":
        _take_up(slot)
    elif slot.tool is None:
        slot.refuse(_unknown(slot))
    else:
        await _judge(slot)
    if slot.refused:
        withdraw_question(slot)
    elif slot.question is not None:
        put_question(slot, slot.question)


async def _judge(slot: Slot) -> None:
    try:
        refusal = await _ask_seams(slot)
    except LimitReached:
        raise
    except Exception as error:
        # A seam that looks into arguments that do not fit trips over them: then it is the model that has to correct itself.
        refusal = _decode(slot) or error_result("TOOL_ERROR", described(error))
    refusal = refusal or _decode(slot)
    if refusal is not None:
        slot.refuse(refusal)


def _take_up(slot: Slot) -> None:
    """A call that had started before a crash: run it again only if its own record says that this is safe."""
    delegation = isinstance(slot.tool, Delegate)
    if slot.call.replay == "ask" and slot.tool is not None and not slot.turn.position.forked_calls:
        slot.question = Ask(f"The process ended while {slot.call.name} ran; whether it took effect is unknown. Run it again?")
        refusal = _decode(slot)
        if refusal is not None:
            slot.refuse(refusal)
        return
    if slot.turn.position.forked_calls or not (slot.call.replay == "safe" or delegation):
        slot.refuse(verdict(OUTCOME_UNKNOWN))
        return
    refusal = _unknown(slot) if slot.tool is None else _decode(slot)
    if refusal is not None:
        slot.refuse(refusal)


def _unknown(slot: Slot) -> CallResult:
    names = ", ".join(tool.name for tool in _offered(slot.turn))
    return error_result("UNKNOWN_TOOL", f"There is no tool {slot.call.name!r}; there are: {names or 'none'}.")


async def _ask_seams(slot: Slot) -> CallResult | None:
    turn = slot.turn
    call = ToolCall(slot.call.id, slot.call.name, slot.arguments)
    verdict = await turn.chains.run("tool_before", turn.actor.context, call, _own_verdict(slot))
    if isinstance(verdict, Deny):
        return error_result("DENIED", verdict.why)
    if isinstance(verdict, Ask):
        to_route(verdict.route)  # so that one that is none is this call's error
        slot.question = verdict
        call = call.rewritten(slot.arguments)
    call = call.rewritten(verdict.arguments)
    asked = asked_about(slot)
    if asked is not None:  # before a restart: what a person was asked about is what runs, or does not
        slot.question = slot.question or Ask(asked.question)
        call = call.rewritten(asked.effective or slot.call.arguments)
    slot.arguments = call.arguments
    reason = await turn.chains.guard(turn.actor.context, call)
    return None if reason is None else error_result("DENIED", reason)


def _own_verdict(slot: Slot) -> Any:
    """The tool's own approval is the innermost word."""

    async def verdict(call: ToolCall) -> Allow | Ask:
        slot.arguments = call.arguments  # what a plugin handed on, so that what is judged here is what runs
        approval: Any = getattr(slot.tool, "approval", None)
        question: Any = approval(slot.turn.actor.context, call) if callable(approval) else approval
        if inspect.isawaitable(question):
            question = await question
        if question is None:
            return Allow(call.arguments)
        if isinstance(question, str | Ask):
            return Ask(question) if isinstance(question, str) else question
        raise UsageError(f"approval= of {call.name} answered {question!r}; answer None, a question, or Ask(question)")

    return verdict


def _decode(slot: Slot) -> CallResult | None:
    try:
        slot.args = slot.tool.decode(slot.arguments)
    except ToolError as error:
        return error_result(error.code, said(error))
    except Exception as error:
        return error_result("INVALID_ARGUMENTS", f"The arguments do not fit {slot.call.name!r}: {said(error)}; correct them.")
    return None


async def ask_person(slot: Slot) -> None:
    """Wait for a person's word on the call; a slot that may not run has its result then."""
    if slot.question is None:
        return
    refusal = await settle_question(slot, slot.question)
    if refusal is not None and slot.call.state == "started" and refusal.error is not None:
        refusal = error_result(OUTCOME_UNKNOWN, f"{TEXTS[OUTCOME_UNKNOWN]} {refusal.text}")
    if refusal is not None:
        slot.refuse(refusal)


async def run_slot(slot: Slot) -> None:
    """Run the body to an outcome; never raises what the body did.

    Raises:
        CommitFailed: the call's record did not reach the disk, so the body was not begun.
    """
    turn = slot.turn
    if slot.replay != "safe":
        turn.actor.at_barrier()
        try:
            await turn.log.commit()
        except trio.Cancelled:
            slot.outcome = BodyOutcome("aborted", caller_cancelled=True, started=False)
            raise
    limits = turn.agent.limits
    timeout = slot.tool.timeout if slot.tool.timeout is not None else limits.tool_timeout
    slot.outcome = await run_body(
        turn.actor.runtime.bodies_nursery,
        lambda: _around(slot),
        name=f"{slot.call.name} of {turn.actor.id} ({slot.call.id})",
        scope=slot.scope,
        timeout=None if isinstance(slot.tool, Delegate) else timeout,
        abandon_s=limits.abandon_s,
        on_stray=lambda late: _late(slot, late),
        strays=turn.actor.runtime.strays,
        abandon_at=lambda: min(turn.deadline, trio.current_time() + limits.abandon_s),
        context=turn.actor.runtime.fresh_context(turn.actor.id),
    )


async def _around(slot: Slot) -> CallResult:
    call = ToolCall(slot.call.id, slot.call.name, slot.arguments)

    async def body(call: ToolCall) -> CallResult:
        if isinstance(slot.tool, Delegate):
            return await run_delegation(slot)
        if isinstance(slot.tool, Handoff):
            return await hand_over(slot)
        if call.arguments != slot.arguments:  # a plugin handed on other arguments
            slot.args = slot.tool.decode(call.arguments)
        slot.runs += 1
        call_context = tool_context(slot)
        call_context.enter()
        output = slot.tool.encode(await slot.tool.run(call_context, slot.args))
        context = context_messages(output.context, call_id=slot.call.id, effect_key=slot.key)
        content, blobs = limit_output(output.content, slot.turn.agent.limits.output_bytes)
        slot.blobs.update(blobs)
        return CallResult(content, None, output.concludes, context, output.meta)

    return await slot.turn.chains.run("tool_around", slot.turn.actor.context, call, body)


def result_of(slot: Slot) -> CallResult:
    """What the model reads of the call's end."""
    if slot.result is not None:
        return slot.result
    outcome = slot.outcome
    assert outcome is not None, "a slot is over when it has an outcome"
    if outcome.fatal is not None:
        return error_result("TOOL_ERROR", f"The tool ended the process ({type(outcome.fatal).__name__}).")
    if outcome.end == "value":
        result: CallResult = outcome.value
        return result
    if outcome.end == "error" and outcome.error is not None:
        return _raised(slot, outcome.error)
    if outcome.end == "timeout":
        return verdict(TIMEOUT)
    return verdict(ABANDONED if outcome.end == "abandoned" else ABORTED)


def _raised(slot: Slot, error: Exception) -> CallResult:
    if isinstance(error, LimitReached):
        slot.limit = error
        return error_result("LIMIT", f"The turn ends here: {said(error)}")
    if isinstance(error, ToolError):
        return error_result(error.code, said(error))
    result = error_result("TOOL_ERROR", described(error))
    return CallResult(result.content, result.error, meta={"causes": causes(error)})


def _late(slot: Slot, late: BodyOutcome) -> None:
    """A body that was given up has ended after all: a fact for the log, nothing for the model."""
    actor = slot.turn.actor
    data = {"call_id": slot.call.id, "tool": slot.call.name, "end": late.end}
    if late.error is not None:
        data["error"] = causes(late.error)
    actor.runtime.note_late(actor.id, "stray-ended", data)
