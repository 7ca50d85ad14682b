"""Running a batch: so many agents at a time, each asked its task once, whatever is killed in between.

    run = await run_batch("runs/a", solver, load_tasks("tasks.jsonl"), score=exact, concurrency=50, repeat=3)
    print(run.summary())

The folder is a store like any other, so `callboard log runs/a ID` shows what an attempt did. Nothing is remembered beside it
but the scores: which attempts are over, and how, is read from the logs, where the id of the one message makes it ask once. What
ended for a reason that was not the task's (a rate limit, a missing key) is tried again by the next run, by a new agent with an
empty history.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from msgspec import Struct

from ...actors.agent import Agent
from ...actors.models.model import Model
from ...actors.seams import Plugin
from ...actors.system import System
from ...actors.values import Outcome
from ...storage.errors import UsageError
from .folder import Scores, agree_on, model_name
from .rows import RESULTS, Row, infrastructure, read_rows, write_rows
from .scoring import Judge, Score, scores_of
from .spending import Prices, prices_of, spent
from .summary import Summary, summarise
from .tasks import Task, agent_id, checked, pick
from .variants import fork_before, on_model

IDLE_S = 5
"""An attempt that is over need not stay in memory."""
ASKED = "task"
"""The id of the one message of each attempt."""


class Progress(Struct, frozen=True):
    """How far a run is."""

    done: int
    total: int
    failed: int
    """Attempts that are over and did not complete."""
    tokens: int
    seconds: float
    """Since this run was started."""
    found: int
    """How many were over before that."""

    @property
    def rate(self) -> float:
        """Attempts a second."""
        return (self.done - self.found) / self.seconds if self.seconds > 0 else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds to go at this rate; None before anything is done."""
        return (self.total - self.done) / self.rate if self.rate else None


class BatchRun(Struct, frozen=True, kw_only=True):
    """A run that is over: all its rows, in the order of the input."""

    name: str
    """Its folder, and the name of the what-if if it is one."""
    agent: str
    model: str
    rows: tuple[Row, ...]

    def summary(self) -> Summary:
        """Scores with intervals, pass@k, tokens, cost, and how the others ended; `print` shows it as a table."""
        return summarise(self.name, f"{self.agent} on {self.model}", self.rows)


async def run_batch(
    folder: str | os.PathLike[str],
    agent: Agent[Any, Any],
    tasks: Iterable[Task],
    *,
    model: str | Model | None = None,
    score: Score | Judge | None = None,
    concurrency: int = 20,
    repeat: int = 1,
    rescore: bool = False,
    models: Mapping[str, Model] | None = None,
    deps: Any = None,
    plugins: Sequence[Plugin] = (),
    prices: Mapping[str, tuple[float, float]] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> BatchRun:
    """Run every task `repeat` times, each by an agent of its own; start it again after a kill and it goes on.

    The results are in `FOLDER/results.jsonl` when it returns.

    Args:
        folder: where everything is kept; one folder, one agent, one model.
        agent: the definition.
        tasks: what to do; more may be added later, and `repeat` raised.
        model: in place of the definition's own.
        score: how good an answer is.
        concurrency: attempts at a time.
        repeat: attempts at each task.
        rescore: ask the scorer again about attempts it has scored.
        models, deps, plugins: as for `System.open`.
        prices: "provider:model" or "provider" → (input, output) for a million tokens.
        progress: told after each attempt.

    Raises:
        UsageError: the tasks or options make no sense, the folder holds another run, or the scorer failed.
        StoreInUse: another process runs in the folder.
    """
    plan = checked(tasks, where="this batch")
    _check(concurrency=concurrency, repeat=repeat)
    who = agent if model is None else agent.replace(model=model)
    path = Path(folder)
    await trio.to_thread.run_sync(agree_on, path, who, plan)
    run = _Run(path, who, score, prices_of(prices), RESULTS, rescore=rescore, progress=progress)
    attempts = [(task, n) for task in plan for n in range(1, repeat + 1)]
    async with run.opened(models=models, deps=deps, plugins=plugins):
        rows = await run.all_of(attempts, concurrency, run.attempt)
    return await run.finished(rows, str(path))


async def what_if(
    folder: str | os.PathLike[str],
    agent: Agent[Any, Any],
    tasks: Iterable[Task],
    *,
    name: str,
    only: Iterable[str] | None = None,
    step: int | None = None,
    model: str | Model | None = None,
    score: Score | Judge | None = None,
    concurrency: int = 20,
    models: Mapping[str, Model] | None = None,
    deps: Any = None,
    plugins: Sequence[Plugin] = (),
    prices: Mapping[str, tuple[float, float]] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> BatchRun:
    """Run attempts of a finished run again under another model or definition, from the start or from a step; `compare` the two.

    Each is a fork of its attempt (`ID@NAME`), so what comes before the point is shared and not run again. The results are in
    `FOLDER/what-if-NAME.jsonl`.

    Args:
        folder: the run.
        agent: the definition to run under; with `model`, on that one.
        tasks: those of the run.
        name: of this what-if; the same name again goes on with it.
        only: ids of tasks; None for all.
        step: go on before this step of the turn instead of at its start.
        model, score, concurrency, models, deps, plugins, prices, progress: as for `run_batch`.

    Raises:
        UsageError: there are no results, or an attempt has no such step.
    """
    _check(concurrency=concurrency, repeat=1)
    if not name or not all(c.isalnum() or c in "-_." for c in name):
        raise UsageError(f"{name!r} cannot name a what-if: use letters, digits, '-', '_' and '.'")
    path, plan = Path(folder), checked(tasks, where="this batch")
    before = await trio.to_thread.run_sync(read_rows, path / RESULTS, plan)
    wanted = plan if only is None else pick(plan, only)
    chosen = {task.id for task in wanted}
    rows_before = {(row.task.id, row.attempt): row for row in before if row.task.id in chosen}
    who = on_model(agent, model, step)
    run = _Run(path, who, score, prices_of(prices), f"what-if-{name}.jsonl", rescore=False, progress=progress)

    async def attempt(task: Task, number: int) -> Row:
        source = rows_before[task.id, number].agent
        fork = await fork_before(run.system, source, f"{source}@{name}", who, step)
        return await run.row(task, number, await fork.outcome(turn=1))

    attempts = [(row.task, row.attempt) for row in rows_before.values()]
    async with run.opened(models=models, deps=deps, plugins=plugins):
        rows = await run.all_of(attempts, concurrency, attempt)
    return await run.finished(rows, f"{path} what-if {name}")


def _check(*, concurrency: int, repeat: int) -> None:
    for name, value in (("concurrency", concurrency), ("repeat", repeat)):
        if value < 1:
            raise UsageError(f"{name}={value} would do nothing; 1 is the least")


class _Run:
    """One run while it goes on."""

    def __init__(
        self,
        folder: Path,
        agent: Agent[Any, Any],
        score: Score | Judge | None,
        prices: Prices,
        results: str,
        *,
        rescore: bool,
        progress: Callable[[Progress], None] | None,
    ) -> None:
        self._folder, self._agent, self._score, self._prices, self._results = folder, agent, score, prices, results
        self._scores = Scores(folder, forget=rescore)
        self._progress = progress
        self._started = time.monotonic()
        self._total = self._done = self._failed = self._tokens = self._found = 0
        self.system: System

    @asynccontextmanager
    async def opened(self, *, models: Any, deps: Any, plugins: Sequence[Plugin]) -> AsyncGenerator[None]:
        """The run's system, for the length of a block. A call that needs a person is refused: nobody is there."""
        agents = [self._agent, *([self._score.agent] if isinstance(self._score, Judge) else [])]
        async with System.open(
            self._folder, agents=agents, models=models, deps=deps, plugins=plugins, grace=0, idle_after=IDLE_S
        ) as self.system:
            self.system.refuse_questions()
            with self._scores:
                yield

    async def all_of(
        self, attempts: Sequence[tuple[Task, int]], concurrency: int, attempt: Callable[[Task, int], Any]
    ) -> list[Row]:
        """The rows of all attempts, in their order; so many at a time."""
        rows: dict[tuple[str, int], Row] = {}
        failed: list[Exception] = []
        self._total = len(attempts)
        todo = iter(attempts)

        async def worker() -> None:
            try:
                for task, number in todo:
                    row = await attempt(task, number)
                    rows[task.id, number] = row
                    self._tell(row)
            except Exception as error:  # the others are cut, what they have done is kept, and this one is what went wrong
                failed.append(error)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            for _ in range(min(concurrency, len(attempts))):
                nursery.start_soon(worker)
        if failed:
            raise failed[0]
        return [rows[task.id, number] for task, number in attempts]

    async def attempt(self, task: Task, number: int) -> Row:
        """One attempt: read if it is over, gone on with if it is not, run if it was never begun."""
        again = 0
        while True:
            id = agent_id(task, number, again)
            head = await self.system.store.head(id)
            over = head is not None and head.summary.turn > 0 and not head.summary.open
            ref = await self.system.spawn(self._agent, id=id, labels={"task": task.id, "attempt": str(number)})
            outcome = await ref.ask(task.input, message_id=ASKED)
            if not (over and infrastructure(outcome.reason)):
                self._found += over
                return await self.row(task, number, outcome)
            again += 1

    async def row(self, task: Task, number: int, outcome: Outcome[Any]) -> Row:
        """The row of an attempt that is over: scored, counted, priced."""
        usage, cost = await spent(self.system, outcome.agent, self._prices)
        scores = self._scores.get(outcome.agent)
        if scores is None and not infrastructure(outcome.reason):
            scores = await scores_of(self._score, self.system, task, outcome)
            self._scores.keep(outcome.agent, scores)
        return Row(task=task, attempt=number, outcome=outcome, scores=scores or {}, usage=usage, cost=cost)

    def _tell(self, row: Row) -> None:
        self._done += 1
        self._failed += not row.outcome.ok
        self._tokens += row.usage.total
        if self._progress is not None:
            seconds = time.monotonic() - self._started
            self._progress(Progress(self._done, self._total, self._failed, self._tokens, seconds, self._found))

    async def finished(self, rows: Sequence[Row], name: str) -> BatchRun:
        """Write the results."""
        await trio.to_thread.run_sync(write_rows, self._folder / self._results, rows)
        return BatchRun(name=name, agent=self._agent.name, model=model_name(self._agent) or "no model", rows=tuple(rows))
