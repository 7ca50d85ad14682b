"""The boundary: what of the inbox enters the model's view before a step, and in whose words.

Reserve, assemble, render the runtime context, ask `pre_step`, and write the claim in one append with what became of it. What
arrives while the seams run waits for the next boundary; a boundary that takes nothing writes no claim. A crash before the
append leaves the items pending, so nothing ever has to be given back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import trio

from ...storage.events import Completed, Event, InboxClaim, StepEnd, StepStart, UserMessage
from ...storage.folds.position import CONTINUE
from ...storage.messages import Message, PluginSource, TextBlock
from ..answers import Assembly, Boundary, Enter, Reject, Stopping
from ..channels.losses import section as section_of_losses
from ..content import mint_id
from ..handoff import take_over
from ..output import ANSWER, answer_text, correction_message, invalid, missing, refuse_clash, tries
from .rendering import rendered
from .respond import unsaid_answer
from .runtime_context import CONTEXT_SOURCE

if TYPE_CHECKING:
    from .turn import Turn

NO_CONTEXT = "The runtime context given before does not apply any more."


async def first_boundary(turn: Turn) -> str:
    """Take next-step and the prompt, and open step 1; `ok`, `blocked` or `empty`."""
    if turn.prompt is None and turn.taken_up:
        turn.prompt = turn.actor.inbox.reserve_prompt(turn.actor.runtime.now_ms())
    verdict = await _propose(turn, first=True)
    if isinstance(verdict, Reject):
        turn.block(verdict.why)
        return "blocked"
    if not verdict.messages:
        return "empty"
    _enter(turn, verdict, step=1)
    return "ok"


async def later_boundary(turn: Turn) -> bool:
    """After a step: close it, and open another if the model must read results or new messages. False ends the turn."""
    at = turn.position
    if at.step_open:
        turn.log.append(StepEnd(turn=turn.number, step=at.step))
    turn.batch = None
    terminal = at.terminal
    correction = check_output(turn)
    if terminal and correction is None and not _steering(turn):
        if turn.chains.has("turn_stopping"):
            await turn.chains.turn_stopping(turn.actor.context, _stopping(turn))
        if not _steering(turn):
            return False
    verdict = await _propose(turn, correction)
    if isinstance(verdict, Reject):
        turn.block(verdict.why)
        return False
    if terminal and not verdict.messages:
        return False
    _enter(turn, verdict, step=at.step + 1, answer=terminal)
    return True


def check_output(turn: Turn) -> Message | None:
    """What an agent with an output is told of a step that should have ended the turn with a value; None if nothing is wrong.

    Raises:
        ModelError: OUTPUT_INVALID, the model was told often enough.
    """
    output, at = turn.agent.typed, turn.position
    if output is None or not isinstance(turn.end_reason, Completed):
        return None
    refused = any(call.name == ANSWER and call.error is not None for call in at.calls)
    why = missing(output, at) if refused or at.terminal else None
    if why is None:
        return None
    limit = turn.agent.limits.output_retries
    if tries(at, turn.log.state.surface.entries()) + (not refused) > limit:
        raise invalid(output, why, limit)
    if not at.terminal or _steering(turn):
        return None  # it goes on anyway
    header = turn.log.state.headers.current
    return correction_message(mint_id(), output, why, by_schema=header is not None and header.output is not None)


def _steering(turn: Turn) -> bool:
    return turn.actor.inbox.steering(turn.actor.runtime.now_ms())


async def _propose(turn: Turn, correction: Message | None = None, *, first: bool = False) -> Enter | Reject:
    actor = turn.actor
    take_over(actor)
    turn.agent, turn.chains = actor.agent, actor.chains  # a definition may be replaced while a turn runs
    items = actor.inbox.reserve_boundary(first, turn.agent.limits.boundary, actor.runtime.now_ms())
    turn.claiming = tuple(item.id for item in items)
    assembly = await assemble(turn)
    messages = [item.message for item in items]
    context = _context_message(turn, assembly)
    messages.extend(message for message in (correction, context) if message is not None)
    boundary = Boundary(tuple(messages), turn.number, turn.position.step + 1)
    verdict = await turn.chains.run("pre_step", actor.context, boundary, _enter_all)
    await trio.lowlevel.checkpoint_if_cancelled()  # a plugin that cancelled its own turn has nothing more to say
    return verdict


async def _enter_all(boundary: Boundary) -> Enter | Reject:
    return Enter(boundary.messages)


async def assemble(turn: Turn) -> Assembly:
    """System prompt, tools and runtime context of the coming step."""

    async def own(assembly: Assembly) -> Assembly:
        return assembly

    agent, context = turn.agent, turn.actor.context
    sections: list[str] = []
    for section in agent.context:
        text = await rendered(section, context, f"a section of context= of agent {agent.name!r}")
        if text:
            sections.append(text)
    undelivered = section_of_losses(turn.log.state)
    if undelivered is not None:
        sections.append(undelivered)
    seed = Assembly(agent.system, agent.tools, tuple(sections))
    turn.assembly = await turn.chains.run("assemble", context, seed, own)
    refuse_clash(turn.assembly.tools, agent.typed)
    turn.system_text = None
    return turn.assembly


def _context_message(turn: Turn, assembly: Assembly) -> Message | None:
    """One message with the runtime context, if it changed since the model was last told."""
    text = "\n\n".join(assembly.context)
    last = turn.log.state.context.told
    if last is None and not text:
        return None
    if text == last or (not text and last == NO_CONTEXT):
        return None
    return Message(mint_id(), "user", (TextBlock(text or NO_CONTEXT),), PluginSource(CONTEXT_SOURCE))


def _stopping(turn: Turn) -> Stopping:
    at = turn.position
    text = answer_text(turn.agent.typed, at)
    return Stopping(turn.number, at.step, turn.end_reason, text, at.said, at.finish, at.answered_route)


def _goes_on(turn: Turn, messages: Sequence[Message]) -> bool:
    """Whether the coming step only goes on with an answer that was cut: then the route has the whole of it, later."""
    items = (turn.actor.inbox.get(id) for id in turn.claiming)
    routed = any(item is not None and item.route is not None for item in items)
    return turn.position.finish == "max-tokens" and not routed and any(m.source == CONTINUE for m in messages)


def _enter(turn: Turn, verdict: Enter, *, step: int, answer: bool = False) -> None:
    events: list[Event] = []
    if answer and not _goes_on(turn, verdict.messages):
        events.extend(unsaid_answer(turn))
    if turn.claiming:
        events.append(InboxClaim(turn=turn.number, ids=turn.claiming))
    events.append(StepStart(turn=turn.number, step=step))
    events.extend(UserMessage(message=message) for message in verdict.messages)
    turn.log.append(*events)
    turn.claiming = ()
