"""Scores: how good an answer is, as a number from 0 to 1, or several by name.

A scorer is `(task, outcome) -> float | dict[str, float]`, sync or async. It is called once for each attempt that is over, also
for one that ended badly: what a half answer is worth is the scorer's to say. `judge` lets an agent say it, in the same store,
under an id of its own: what it said is a fact in a log like any other, and is not paid for twice.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeGuard

import msgspec
from msgspec import Struct

from ...actors.agent import Agent
from ...actors.models.model import Model
from ...actors.system import System
from ...actors.values import Outcome
from ...storage.errors import TurnFailed, UsageError
from .tasks import Task

Given = float | Mapping[str, float]
Score = Callable[[Task, Outcome[Any]], Given | Awaitable[Given]]
MAIN = "score"
"""The name of a score that a scorer gives as a bare number."""


def exact(task: Task, outcome: Outcome[Any]) -> float:
    """1 if the answer is what was expected, blanks around it aside; else 0. A typed answer is compared as a value."""
    if not outcome.ok:
        return 0.0
    if outcome.output is not None and not isinstance(task.expected, str):
        return float(msgspec.to_builtins(outcome.output) == task.expected)
    return float(outcome.text.strip() == str(task.expected).strip())


def regex(task: Task, outcome: Outcome[Any]) -> float:
    """1 if the regular expression in `expected` is found in the answer; else 0.

    Raises:
        UsageError: it is no regular expression.
    """
    try:
        return float(outcome.ok and re.search(str(task.expected), outcome.text) is not None)
    except re.error as error:
        raise UsageError(f"expected of task {task.id!r} is no regular expression: {error}") from error


class Verdict(Struct, frozen=True):
    """What a judge answers."""

    score: float
    """From 0 (wrong) to 1 (right)."""
    why: str = ""


RUBRIC = "You grade answers. Give a score from 0 (wrong or useless) to 1 (fully right), and one sentence why."


class Judge:
    """A scorer that asks an agent. Make it with `judge`."""

    def __init__(self, agent: Agent[Any, Any]) -> None:
        self.agent = agent

    def __repr__(self) -> str:
        return f"judge({self.agent.name!r})"

    async def score(self, system: System, task: Task, outcome: Outcome[Any]) -> Mapping[str, float]:
        """The judge's score, asked for once: its agent is `JUDGED/judge`, and keeps what it said.

        Raises:
            TurnFailed: the judge ended badly.
        """
        ref = await system.spawn(self.agent, id=f"{outcome.agent}/judge", labels={"judge": self.agent.name})
        verdict = (await ref.ask(question(task, outcome), message_id="judge")).result()
        value = getattr(verdict, "score", None)
        if value is None:
            text = f"the judge {self.agent.name!r} gave no score: its output= needs a number `score`"
            raise UsageError(text, agent=ref.id)
        return {"judge": float(value)}


def judge(by: Agent[Any, Any] | str | Model, *, rubric: str = RUBRIC) -> Judge:
    """A scorer that lets an agent judge: a definition whose output has a `score`, or a model that grades by `rubric`."""
    if isinstance(by, Agent):
        return Judge(by)
    return Judge(Agent("judge", model=by, system=rubric, output=Verdict))


def question(task: Task, outcome: Outcome[Any]) -> str:
    """What a judge is asked about an attempt."""
    parts = [f"The task:\n{task.input}"]
    if task.expected is not None:
        expected = task.expected if isinstance(task.expected, str) else msgspec.json.encode(task.expected).decode()
        parts.append(f"What was expected:\n{expected}")
    parts.append(f"The answer:\n{outcome.text}")
    if not outcome.ok:
        parts.append(f"(It is not whole: the turn ended with {outcome.reason.kind}.)")
    return "\n\n".join(parts)


async def scores_of(score: Score | Judge | None, system: System, task: Task, outcome: Outcome[Any]) -> dict[str, float]:
    """What the scorer says, by name; nothing if there is none.

    Raises:
        UsageError: it failed, or gave something else than numbers.
    """
    if score is None:
        return {}
    try:
        if isinstance(score, Judge):
            given: Any = await score.score(system, task, outcome)
        else:
            given = score(task, outcome)
            given = await given if inspect.isawaitable(given) else given
    except TurnFailed:
        raise
    except Exception as error:
        raise _failed(task, f"{type(error).__name__}: {error}") from error
    named: dict[Any, Any] = dict(given) if _is_named(given) else {MAIN: given}
    for name, value in named.items():
        if not isinstance(name, str) or not isinstance(value, int | float) or not math.isfinite(value):
            raise _failed(task, f"it gave {name!r}: {value!r}; a score is a number, or numbers by name")
    return {name: float(value) for name, value in named.items()}


def _is_named(given: object) -> TypeGuard[Mapping[Any, Any]]:
    return isinstance(given, Mapping)


def _failed(task: Task, why: str) -> UsageError:
    return UsageError(f"the scorer failed on task {task.id!r}: {why}. Mend it and run the batch again: no answer is lost")
