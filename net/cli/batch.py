"""`callboard batch TASKS --agent FILE:NAME`: every task of a file by an agent of its own, scored, counted, compared."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import trio

from ...actors.agent import Agent
from ..batch import BatchRun, Comparison, Judge, Progress, Task, compare, exact, judge, load_tasks, regex, run_batch, what_if
from ..batch.rows import RESULTS, read_rows
from ..batch.scoring import Score
from .loading import Files, agent_in
from .output import Output
from .problems import FAILED, OK, Refused

EVERY_S = 10
"""Seconds between two lines of progress where nobody watches a terminal."""


class _Read:
    """A run that is read from its results."""

    def __init__(self, name: str, rows: tuple[Any, ...]) -> None:
        self.name, self.rows = name, rows


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Run the batch (or the what-if), write its results, print the summary, and the comparison if one is asked for."""
    tasks = await trio.to_thread.run_sync(load_tasks, arguments.tasks)
    files = Files()
    names, file, name = files.look(arguments.agent)
    agent = agent_in(names, file, name)
    folder = Path(arguments.out or f"runs/{Path(arguments.tasks).stem}-{agent.name}")
    score = _score(arguments.score, tasks, files)
    options: dict[str, Any] = {
        "model": arguments.model,
        "score": score,
        "concurrency": arguments.concurrency,
        "deps": names.get("deps"),
        "models": names.get("models"),
        "prices": _prices(arguments.price),
        "progress": _Told(output),
    }
    before: _Read | None
    if arguments.what_if is not None:
        run = await what_if(folder, agent, tasks, name=arguments.what_if, only=arguments.only, step=arguments.step, **options)
        before = _Read(str(folder), tuple(read_rows(folder / RESULTS, tasks)))
    else:
        run = await run_batch(folder, agent, tasks, repeat=arguments.repeat, rescore=arguments.rescore, **options)
        before = _before(arguments.compare, tasks)
    output.progress("")
    _print(run, before, output)
    return OK if all(row.outcome.ok for row in run.rows) else FAILED


def _print(run: BatchRun, before: _Read | None, output: Output) -> None:
    summary = run.summary()
    output.text(str(summary))
    found = None if before is None else _compared(before, run)
    if found is not None:
        output.text(f"\n{found}")
    output.value({"summary": summary, "comparison": found})


def _compared(before: _Read, run: BatchRun) -> Comparison:
    wanted = {row.task.id for row in run.rows}
    return compare(_Read(before.name, tuple(row for row in before.rows if row.task.id in wanted)), run)


def _before(folder: str | None, tasks: list[Task]) -> _Read | None:
    return None if folder is None else _Read(folder, tuple(read_rows(Path(folder) / RESULTS, tasks)))


class _Told:
    """Progress for people: a line that replaces itself, or one every ten seconds."""

    def __init__(self, output: Output) -> None:
        self._output, self._next = output, time.monotonic() + EVERY_S

    def __call__(self, at: Progress) -> None:
        left = f", {_span(at.left_s)} left" if at.left_s is not None and at.done < at.total else ""
        failed = f", {at.failed:,} not completed" if at.failed else ""
        text = f"{at.done:,} of {at.total:,}, {at.rate:,.1f} a second{left}{failed}, {at.tokens:,} tokens"
        if self._output.terminal:
            self._output.progress(text)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_S
            self._output.notice(text)


def _span(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


def _score(words: str | None, tasks: list[Task], files: Files) -> Score | Judge | None:
    """The scorer in `exact`, `regex`, `judge:PROVIDER:MODEL` or `FILE:NAME`; exact by default, if anything is expected at all."""
    if words is None:
        return exact if any(task.expected is not None for task in tasks) else None
    named: dict[str, Callable[..., float]] = {"exact": exact, "regex": regex}
    if words in named:
        return named[words]
    if words.startswith("judge:"):
        return judge(words.removeprefix("judge:"))
    names, file, name = files.look(words)
    found = names.get(name)
    if isinstance(found, Agent):
        return judge(agent_in(names, file, name))
    if not callable(found) and not isinstance(found, Judge):
        raise Refused(f"{words} is no scorer: give exact, regex, judge:PROVIDER:MODEL, or FILE:NAME of a function or an Agent")
    return cast("Score | Judge", found)


def _prices(words: list[str] | None) -> dict[str, tuple[float, float]] | None:
    if not words:
        return None
    prices: dict[str, tuple[float, float]] = {}
    for word in words:
        name, equals, pair = word.partition("=")
        into, slash, out = pair.partition("/")
        try:
            prices[name] = float(into), float(out)
        except ValueError:
            equals = ""
        if not (name and equals and slash):
            raise Refused(f"--price {word} is no price; write PROVIDER:MODEL=INPUT/OUTPUT, for a million tokens each")
    return prices
