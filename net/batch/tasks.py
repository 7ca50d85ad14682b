"""Tasks: what a batch gives to its agents, one line of JSON each.

    {"id": "capital-1", "input": "What is the capital of Norway?", "expected": "Oslo"}

A mistake in a file of ten thousand lines is worth a precise word before anything is spent: all lines are read and checked first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from ...storage.errors import UsageError


class Task(Struct, frozen=True, kw_only=True):
    """One task. `input` is what the agent is sent; `expected` is for scorers, and the agent never sees it."""

    id: str
    input: str
    expected: Any = None
    meta: dict[str, Any] = {}
    """Whatever else the line says."""


def load_tasks(path: str | os.PathLike[str]) -> list[Task]:
    """The tasks in a file of JSON lines with `id`, `input`, perhaps `expected`, and anything else, which becomes `meta`.

    Blank lines are passed over. A line without `id` is named by its number.

    Raises:
        UsageError: the file cannot be read, or a line is no task; the text says which and why.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the tasks cannot be read from {os.fspath(path)}: {error}") from error
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    return checked([_task(line, number, os.fspath(path)) for number, line in lines], where=os.fspath(path))


def _task(line: str, number: int, path: str) -> Task:
    where = f"line {number} of {path}"
    try:
        fields: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f'{where} is no JSON object ({error}); write {{"id": "...", "input": "..."}}') from error
    id, text, expected = fields.pop("id", str(number)), fields.pop("input", None), fields.pop("expected", None)
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    if not isinstance(text, str):
        raise UsageError(f'{where} has no input; give the text for the agent as "input"')
    if not isinstance(id, str):
        raise UsageError(f"{where} has an id that is neither a text nor a whole number: {id!r}")
    return Task(id=id, input=text, expected=expected, meta=fields)


def checked(tasks: Iterable[Task], *, where: str) -> list[Task]:
    """The tasks, all different and none of them empty.

    Raises:
        UsageError: there is no task, two have one id, or one has nothing to say.
    """
    seen: dict[str, Task] = {}
    for task in tasks:
        if not task.id:
            raise UsageError(f"a task of {where} has an empty id")
        if task.id in seen:
            raise UsageError(f"two tasks of {where} have the id {task.id!r}; each needs its own")
        if not task.input.strip():
            raise UsageError(f"the input of task {task.id!r} of {where} is empty")
        seen[task.id] = task
    if not seen:
        raise UsageError(f"there is no task in {where}")
    return list(seen.values())


def agent_id(task: Task, attempt: int, again: int = 0) -> str:
    """The id of the agent that makes an attempt (from 1), as `callboard log` takes it: the task's own for the first, `ID#2` for
    the second; `~2` behind it where the first try failed for a reason that was not the task's."""
    id = task.id.replace("%", "%25").replace("#", "%23").replace("~", "%7E").replace("@", "%40")
    return f"{id}{f'#{attempt}' if attempt > 1 else ''}{f'~{again + 1}' if again else ''}"


def pick(tasks: Sequence[Task], ids: Iterable[str]) -> list[Task]:
    """The tasks with these ids.

    Raises:
        UsageError: one of them is none.
    """
    known = {task.id: task for task in tasks}
    wanted = list(ids)
    for id in wanted:
        if id not in known:
            raise UsageError(f"there is no task {id!r} among the {len(known)} of this run")
    return [known[id] for id in wanted]
