"""`callboard run STATE FILE:NAME TEXT`: send a text to an agent, wait for its turn, print the answer."""

from __future__ import annotations

import argparse
import sys
from secrets import token_hex
from typing import Any

import trio

from ...actors.seams import Plugin, SeamContext
from ...actors.system import System
from ...actors.values import Outcome, explain
from ...storage.errors import TurnFailed
from ...storage.events import ApprovalAsked
from ...storage.records import Record
from .loading import load_agent
from .output import Output
from .problems import FAILED, OK, Refused


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Ask and print. The same message id again waits for the same answer, also after a kill."""
    agent, deps, models = load_agent(arguments.agent)
    if arguments.model is not None:
        agent = agent.replace(model=arguments.model)
    text = await trio.to_thread.run_sync(sys.stdin.read) if arguments.text == "-" else arguments.text
    if not text.strip():
        raise Refused("there is nothing to say: TEXT is empty")
    message_id = arguments.message_id or token_hex(8)
    # Without the id the same words would be a second message, which asks the same question anew.
    again = "run it again" if arguments.message_id else f"run it again with --message-id {message_id}"
    questions = Questions(arguments.state, again, output)
    opening = System.open(arguments.state, agents=[agent], deps=deps, models=models, plugins=[questions], grace=0)
    async with opening as system:
        ref = await system.spawn(agent, id=arguments.id or agent.name)
        outcome = await ref.ask(text, message_id=message_id)
    output.text(outcome.text)
    output.value(_value(outcome))
    if outcome.ok:
        return OK
    if not output.json:
        # In JSON the outcome says it all; a person has seen only what text there was.
        raise TurnFailed(
            f"turn {outcome.turn} of {outcome.agent!r} {explain(outcome.reason)}; "
            f"`callboard log {arguments.state} {outcome.agent}` shows what happened",
            outcome=outcome,
            agent=outcome.agent,
            turn=outcome.turn,
        )
    return FAILED


class Questions(Plugin):
    """Says that a call waits for a person: the command would look as if it hung."""

    def __init__(self, state: str, again: str, output: Output) -> None:
        self._state, self._again, self._output = state, again, output

    async def on_event(self, ctx: SeamContext, record: Record, /) -> None:
        """Tell the person in front of the terminal what to do."""
        if isinstance(record.event, ApprovalAsked):
            self._output.notice(
                f"{ctx.id} waits for a person's word: {record.event.question} To give it, end this command, then "
                f"`callboard answer {self._state} '{record.event.id}' allow --by NAME` (or deny), and {self._again}."
            )


def _value(outcome: Outcome[Any]) -> dict[str, Any]:
    return {
        "agent": outcome.agent,
        "turn": outcome.turn,
        "ok": outcome.ok,
        "reason": outcome.reason,
        "text": outcome.text,
        "output": outcome.output,
        "steps": outcome.steps,
        "usage": outcome.usage,
        "message_id": outcome.message_id,
        "seq": outcome.seq,
    }
