"""Suspects: turns in which the process has ended more than once, and which may end it again.

Start-up cannot tell which of the turns that died together was to blame. The one that has got nowhere in two lives is the
likely one, so it is taken up last, when the others have ended, and alone: if it kills the process again, it takes no one's work
with it, and only its own crashes go on being counted. Turns that wait themselves, for another agent or a person, are not
waited for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ..delegation import Delegate

if TYPE_CHECKING:
    from ..actor import Actor

CRASHES = 2
"""Resumes without progress that make a turn suspect."""
LOOK_S = 0.5
"""How often a suspect looks again whether those before it have begun to wait."""


async def last_and_alone(actor: Actor) -> None:
    """Return at once, or, for a suspect about to be taken up, when no other taken-up turn runs (or the system closes, or the
    agent's log has failed: then it runs nothing, and is opened anew)."""
    if not is_suspect(actor):
        return
    actor.at_barrier()
    runtime = actor.runtime
    while not (runtime.closing or actor.log.failed) and (
        runtime.starting or any(_goes_before(other, actor) for other in runtime.registry)
    ):
        with trio.move_on_after(LOOK_S):
            await runtime.turn_over.park()


def is_suspect(actor: Actor) -> bool:
    """Whether the agent's open turn may be what ended the process; a cancelled one is only closed, and harmless."""
    at = actor.position
    if actor.left:  # no process has ended
        return False
    return at.open and at.resumes >= CRASHES and not at.suspended and at.cancel is None and not only_waits(actor)


def only_waits(actor: Actor) -> bool:
    """Whether all that the open turn had running were its children: it died with them, and gets nowhere before they do."""
    started = [call for call in actor.position.open_calls if call.state == "started"]
    return bool(started) and all(isinstance(actor.agent.toolbox.get(call.name), Delegate) for call in started)


def _goes_before(other: Actor, suspect: Actor) -> bool:
    taken_up = other.take_up if other.turn is None else other.turn.taken_up
    if other is suspect or other.status != "running" or not taken_up or other.state.approvals.open:
        return False
    if other.turn is None and is_suspect(other) and other.id > suspect.id:
        return False  # both wait: one of them has to be first
    # Whoever waits for another agent does nothing itself; the one at the end of the chain runs, or is a suspect too.
    return not suspect.runtime.graph.of(other.id)
