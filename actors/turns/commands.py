"""COMMAND: a prompt that a plugin may answer itself, without the model.

A command is recorded always and shown to the model never. The claim of its message, its run and its result are written together
once the plugin has answered; a crash before that leaves the message pending, and its id lets the command act only once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ...storage.events import Event, InboxClaim
from ...storage.messages import UserSource
from ..answers import Answer, Command, Decide, LimitReached, Replace, Stop
from ..asides import command_events
from ..failures import flatten
from .surfacing import replace_event

if TYPE_CHECKING:
    from .turn import Turn


async def run_command(turn: Turn) -> bool:
    """Offer the prompt to the `command` seam; True if it was answered there."""
    if turn.taken_up and turn.position.claimed and turn.position.step == 0:
        return True  # a command whose result recovery has written
    command = slash(turn)
    if command is None:
        return False
    answer: Answer | Replace | None
    try:
        answer = await turn.chains.run("command", turn.actor.context, command, _not_mine)
    except LimitReached:
        raise
    except Exception as raised:
        error = flatten(raised)
        answer = Answer(f"The command failed: {error.message}", error=error)
    if answer is None:
        return False
    await trio.lowlevel.checkpoint_if_cancelled()
    if isinstance(answer, Replace):
        answer = Answer("Done.", answer)
    text = _text_of(answer)
    events: list[Event] = [
        InboxClaim(turn=turn.number, ids=(command.id,)),
        *command_events(turn.actor, command.message, answer, text),
    ]
    if answer.replacement is not None:
        events.append(replace_event(turn.actor, answer.replacement))
    turn.log.append(*events)
    turn.reply = text
    turn.delivery = "none" if turn.actor.route is None else "put"
    return True


def _text_of(answer: Answer) -> str:
    """What is said: nothing runs beside a turn of its own, and nothing is asked."""
    if isinstance(answer, Stop):
        return answer.say(False, 0, 0)
    return answer.say(None) if isinstance(answer, Decide) else answer.text


def slash(turn: Turn) -> Command | None:
    """The prompt, if a person wrote it and it may be a command."""
    if turn.prompt is None or not turn.chains.has("command") or not isinstance(turn.prompt.message.source, UserSource):
        return None
    command = Command(turn.prompt.message)
    return command if command.text.startswith("/") else None


async def _not_mine(command: Command) -> Answer | Replace | None:
    return None
