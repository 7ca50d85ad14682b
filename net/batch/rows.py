"""Rows: one attempt's result each, in the order of the input; and the file that keeps them.

`results.jsonl` holds what was found out and nothing that depends on the day: no times, no speed. So a run that was killed ten
times leaves the same file as one that was not, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ...actors.values import Outcome
from ...storage.errors import TRANSIENT_CODES, UsageError
from ...storage.events import EndReason, Errored, Interrupted
from ...storage.messages import NO_USAGE, Usage
from .tasks import Task

RESULTS = "results.jsonl"
_NOT_ITS_OWN = TRANSIENT_CODES | {"AUTH", "NO_ADAPTER", "NOT_FOUND", "QUOTA"}
"""Errors that say something about the day or the set-up, and nothing about the task."""


class Row(Struct, frozen=True, kw_only=True):
    """One attempt at one task."""

    task: Task
    attempt: int
    outcome: Outcome[Any]
    scores: dict[str, float] = {}
    usage: Usage = NO_USAGE
    """Of the agent and of all below it."""
    cost: float | None = None
    """By the prices of the run; None without any."""

    @property
    def agent(self) -> str:
        """The agent's id: `callboard log RUN ID` shows all it did."""
        return self.outcome.agent

    @property
    def stands(self) -> bool:
        """Whether it counts; what failed for a reason that is not the task's is run again."""
        return not infrastructure(self.outcome.reason)


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A row as it stands in the file."""

    task: str
    attempt: int
    agent: str
    ok: bool
    reason: EndReason
    text: str
    output: Any = None
    scores: dict[str, float] = {}
    steps: int
    usage: Usage
    cost: float | None = None


def infrastructure(reason: EndReason) -> bool:
    """Whether an end says nothing about the task: a rate limit, a missing key, a crash."""
    return isinstance(reason, Interrupted) or (isinstance(reason, Errored) and reason.error.code in _NOT_ITS_OWN)


def line_of(row: Row) -> Line:
    """The row as it is written."""
    outcome = row.outcome
    return Line(
        task=row.task.id,
        attempt=row.attempt,
        agent=row.agent,
        ok=outcome.ok,
        reason=outcome.reason,
        text=outcome.text,
        output=msgspec.to_builtins(outcome.output),
        scores=row.scores,
        steps=outcome.steps,
        usage=row.usage,
        cost=row.cost,
    )


def row_of(line: Line, tasks: Mapping[str, Task]) -> Row:
    """The row in a line. A task that is not known any more is one with its id alone."""
    task = tasks.get(line.task) or Task(id=line.task, input="")
    outcome: Outcome[Any] = Outcome(
        agent=line.agent, turn=1, reason=line.reason, text=line.text, usage=line.usage, output=line.output, steps=line.steps
    )
    return Row(task=task, attempt=line.attempt, outcome=outcome, scores=line.scores, usage=line.usage, cost=line.cost)


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write all rows, whole or not at all: beside the file, synced, then in its place."""
    beside = path.with_name(path.name + ".new")
    with beside.open("wb") as file:
        for row in rows:
            file.write(msgspec.json.encode(line_of(row)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def read_rows(path: Path, tasks: Iterable[Task] = ()) -> list[Row]:
    """The rows in a file.

    Raises:
        UsageError: there is no such file, or a line of it is no row.
    """
    known = {task.id: task for task in tasks}
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"there are no results in {path.parent}: run the batch to its end first") from error
    try:
        return [row_of(msgspec.json.decode(line, type=Line), known) for line in lines]
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is no file of results: {error}") from error
