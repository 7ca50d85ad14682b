"""`callboard run STATE FILE:NAME TEXT`: send a text to an agent, wait for its turn, print the answer."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import trio

from ...actors.system import System
from ...actors.values import Outcome, explain
from ...storage.errors import TurnFailed
from .loading import load_agent
from .output import Output
from .problems import FAILED, OK, Refused


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Ask and print. The same message id again waits for the same answer, also after a kill."""
    agent = load_agent(arguments.agent)
    text = await trio.to_thread.run_sync(sys.stdin.read) if arguments.text == "-" else arguments.text
    if not text.strip():
        raise Refused("there is nothing to say: TEXT is empty")
    async with System.open(arguments.state, agents=[agent], grace=0) as system:
        ref = await system.spawn(agent, id=arguments.id or agent.name)
        outcome = await ref.ask(text, message_id=arguments.message_id)
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
