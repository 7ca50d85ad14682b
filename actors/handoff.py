"""Handoff: a tool that lets another definition go on with this very log.

A delegation gives a task to another agent and reads its answer; a handoff gives away the conversation. The history stays; the
prompt, the model, the tools and the plugins are the other's, from the next boundary on: the specialist answers the person
itself, in the same turn. The fact is a note in one append with the call's result, so no crash can leave one without the other,
and whoever opens the log later opens it under that definition. Whoever knew the agent by its first one may go on spawning it by
that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ..storage.errors import ToolError, UsageError
from ..storage.events import Note
from ..storage.folds.handoffs import HANDOFF
from .agent import Agent
from .agent_tools import AgentTool, tool_name
from .answers import CallResult

if TYPE_CHECKING:
    from .actor import Actor
    from .turns.pipeline import Slot

_SCHEMA: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class Handoff(AgentTool, frozen=True, kw_only=True):
    """A tool whose call hands the log over. Made by `handoff`."""

    to: str
    """The name of the definition that goes on."""
    agent: Agent[Any, Any] | None
    """That definition, if it was given itself."""

    mode = "exclusive"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments: there are none."""
        return _SCHEMA

    def decode(self, arguments: str) -> dict[str, Any]:
        """Nothing: what a model writes beside an empty object is of no use, and does no harm.

        Raises:
            ToolError: INVALID_ARGUMENTS, it is no object at all.
        """
        try:
            msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError) as error:
            raise ToolError(f"{self.name} takes no arguments: send {{}}.", code="INVALID_ARGUMENTS") from error
        return {}


def handoff(specialist: Agent[Any, Any] | str, *, name: str | None = None, description: str | None = None) -> Handoff:
    """A tool that lets this log go on under another definition, from the next boundary on.

    Args:
        specialist: that definition; or its name, for one that the system knows by then, such as the one that hands back.
        name: the tool's name; `handoff_to_` and the definition's if None.
        description: what the model reads; a sentence with the definition's name if None.

    Raises:
        UsageError: it is neither, or the name is none that a model takes.
    """
    if not isinstance(specialist, Agent | str) or not specialist:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"handoff({specialist!r}) needs an Agent, or the name of one")
    to = specialist if isinstance(specialist, str) else specialist.name
    chosen = tool_name(name, f"handoff_to_{to}", made_by="handoff")
    text = f"Let {to} go on with this conversation. It knows all that was said." if description is None else description
    agent = None if isinstance(specialist, str) else specialist
    return Handoff(to=to, agent=agent, name=chosen, description=text)


async def hand_over(slot: Slot) -> CallResult:
    """The body of the call: what the model reads; what it does is written with that.

    Raises:
        ToolError: the system does not know the definition.
    """
    tool: Handoff = slot.tool
    runtime = slot.turn.actor.runtime
    agent = runtime.definitions.get(tool.to)
    if agent is None:
        raise ToolError(f"There is no {tool.to} here now. Go on yourself, or say so.")
    await runtime.start_plugins(agent)
    slot.notes = (Note(kind=HANDOFF, data={"to": tool.to}),)
    return CallResult.of(f"{tool.to} goes on from here.")


def take_over(actor: Actor) -> None:
    """Give an actor the definition that its log names, if a handoff has changed that."""
    name = actor.state.identity.name
    if name in (actor.agent.name, *actor.agent.formerly):
        return
    runtime = actor.runtime
    agent = runtime.definitions.get(name)
    if agent is None:
        return  # taken out of the system meanwhile: what is open goes on as it is
    runtime.definitions.take_back(actor.id)
    actor.define(agent)
    if runtime.observers.of(actor) is None:
        runtime.observers.watch(actor)
