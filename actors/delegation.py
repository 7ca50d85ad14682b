"""Delegation: a definition that looks like a tool to the model and stands for another agent.

The model sees one tool with one argument, the task; the runtime sees which definition to spawn, whether to wait, and how often
to try again. A delegation holds no state and runs nothing itself: a call of it is keyed by the call's id, so that a restart
re-attaches to the child instead of asking it twice.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ..storage.errors import ToolError, UsageError
from ..storage.folds.restarts import KEEP
from .agent import Agent
from .agent_tools import AgentTool, tool_name

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"task": {"type": "string", "description": "What to do, with all that is needed to do it."}},
    "required": ["task"],
    "additionalProperties": False,
}


class _Task(Struct, frozen=True, forbid_unknown_fields=True):
    task: str


_decoder = msgspec.json.Decoder(_Task)


class Delegate(AgentTool, frozen=True, kw_only=True):
    """A tool whose call is another agent's task. Made by `delegate`."""

    agent: Agent[Any, Any]
    """The definition of the child."""
    background: bool = False
    """Whether the call answers at once, and the child's end comes as a message."""
    restarts: tuple[int, float] | None = None
    """How often in how many seconds a failed task is put again; None: never."""

    mode = "parallel"

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the one argument, `task`."""
        return _SCHEMA

    def decode(self, arguments: str) -> dict[str, Any]:
        """`{"task": ...}` from the model's own text, as a tool decodes its arguments.

        Raises:
            ToolError: INVALID_ARGUMENTS; its text tells the model what to do next.
        """
        try:
            return {"task": _decoder.decode(arguments).task}
        except (msgspec.DecodeError, UnicodeError) as e:
            text = f"The arguments of {self.name} do not fit: {e}. Call it again with one argument, task: a text."
            raise ToolError(text, code="INVALID_ARGUMENTS") from e


def delegate(
    agent: Agent[Any, Any],
    *,
    name: str | None = None,
    description: str | None = None,
    background: bool = False,
    restarts: tuple[int, float] | None = None,
) -> Delegate:
    """A tool that gives a task to a child of this definition and answers with its text (or output).

    Args:
        agent: the child's definition.
        name: the tool's name; the agent's if None.
        description: what the model reads; a sentence with the agent's name if None.
        background: answer at once; the child's end is a message in the parent's Inbox.
        restarts: `(n, seconds)`: put the task of a child that failed (error, limit, interrupted) again, with growing pauses, at
            most n times in so many seconds; then the failure is the result.

    Raises:
        UsageError: what was given is no Agent, the name is none that a model takes, or `restarts` is not such a pair.
    """
    if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"delegate({agent!r}) needs an Agent, the definition of the child")
    chosen = tool_name(name, agent.name, made_by="delegate")
    _check_restarts(agent.name, restarts)
    text = f"Give a task to {agent.name}, an agent of its own, and read its answer." if description is None else description
    return Delegate(agent=agent, name=chosen, description=text, background=background, restarts=restarts)


def _check_restarts(name: str, restarts: Any) -> None:
    match restarts:
        case None:
            return
        case (int(n), int() | float() as seconds) if 0 <= n <= KEEP and seconds > 0:
            return
        case _:
            pair = f"no pair (n, seconds) with n up to {KEEP}, for example (3, 60)"
            raise UsageError(f"restarts={restarts!r} of delegate({name}) is {pair}")
