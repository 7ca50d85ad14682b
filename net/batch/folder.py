"""A run's folder beside its store: what the run is of, and the scores so far.

One folder holds one agent on one model. A task that says something else than it did would be answered with what the old one got
(the first text under an id stands), so that is refused by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import msgspec
from msgspec import Struct

from ...actors.agent import Agent
from ...storage.errors import UsageError
from .tasks import Task

RUN = "run.json"
SCORES = "scores.jsonl"


class Manifest(Struct, frozen=True):
    """What a run is of: `tasks` is id → the beginning of its input's sha256."""

    agent: str
    model: str
    tasks: dict[str, str]


class _Scored(Struct, frozen=True):
    agent: str
    scores: dict[str, float]


def model_name(agent: Agent[Any, Any]) -> str:
    """The definition's model, `provider:name`."""
    model = agent.model
    if model is None or isinstance(model, str):
        return model or ""
    return f"{model.provider}:{model.name}"


def agree_on(folder: Path, agent: Agent[Any, Any], tasks: Sequence[Task]) -> None:
    """Make sure that the folder's run is the one that is meant, or begin one.

    Raises:
        UsageError: it is another; the text says what differs.
    """
    digests = {task.id: hashlib.sha256(task.input.encode("utf-8", "surrogatepass")).hexdigest()[:16] for task in tasks}
    wanted = Manifest(agent.name, model_name(agent), digests)
    path = folder / RUN
    before = _read(path)
    if before is not None:
        for what, was, now in (("agent", before.agent, wanted.agent), ("model", before.model, wanted.model)):
            if was != now:
                raise UsageError(f"{folder} holds a run with the {what} {was!r}, not {now!r}; give another folder")
        changed = [id for id, digest in digests.items() if before.tasks.get(id, digest) != digest]
        if changed:
            text = f"the input of task {changed[0]!r} is another than in the run in {folder}"
            raise UsageError(f"{text} ({len(changed)} such tasks); give another folder, or the tasks new ids")
        wanted = Manifest(wanted.agent, wanted.model, {**before.tasks, **digests})
    if wanted != before:
        folder.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(RUN + ".new")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(wanted)) + b"\n")
        beside.replace(path)


def _read(path: Path) -> Manifest | None:
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Manifest)
    except msgspec.DecodeError as error:
        raise UsageError(f"{path} is not what a run begins with ({error}); give another folder") from error


class Scores:
    """The scores of a run, so that no scorer is asked twice. Each is handed to the system at once, and not synced: a score that a
    power cut takes is asked for again."""

    def __init__(self, folder: Path, *, forget: bool = False) -> None:
        self._path, self._forget = folder / SCORES, forget
        self._known: dict[str, dict[str, float]] = {}
        self._file: BinaryIO | None = None

    def __enter__(self) -> Scores:
        if self._path.exists() and not self._forget:
            for line in self._path.read_bytes().splitlines():
                try:
                    scored = msgspec.json.decode(line, type=_Scored)
                except msgspec.DecodeError:
                    continue  # the torn last line of a run that was killed: that one is scored again
                self._known[scored.agent] = scored.scores
        self._file = self._path.open("wb" if self._forget else "ab")
        if self._file.tell():
            self._file.write(b"\n")  # behind a torn line; blank ones are passed over
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    def get(self, agent: str) -> dict[str, float] | None:
        """The scores of an attempt, if it has any yet."""
        return self._known.get(agent)

    def keep(self, agent: str, scores: dict[str, float]) -> None:
        """Remember them."""
        if scores and self._file is not None:
            self._known[agent] = scores
            self._file.write(msgspec.json.encode(_Scored(agent, scores)) + b"\n")
            self._file.flush()
