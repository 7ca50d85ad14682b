"""A thousand tasks, a scorer, two models, and what the difference between them is worth."""

from __future__ import annotations

from typing import Any

import trio

from callboard import Agent
from callboard.actors import Outcome
from callboard.net.batch import Task, compare, exact, load_tasks, run_batch

solver = Agent("solver", model="openai:gpt-5", system="Answer with the number alone.")


async def score(task: Task, outcome: Outcome[Any]) -> float | dict[str, float]:
    """How good an answer is: a number, or several by name."""
    return {"exact": exact(task, outcome), "steps": outcome.steps}


async def main() -> None:
    """Run both, print both, compare. Kill it and start it again: what has finished is read, not run."""
    tasks = load_tasks("tasks.jsonl")  # {"id","input","expected"?, ...}; or [Task(id=..., input=..., expected=...)]
    a = await run_batch("runs/a", solver, tasks, model="openai:gpt-5", score=score, concurrency=50, repeat=3)
    b = await run_batch("runs/b", solver, tasks, model="anthropic:claude", score=score, concurrency=50, repeat=3)
    print(a.summary())  # n, mean ±95 %, pass@1, pass@3, tokens, cost, failures by end reason
    print(compare(a, b))  # paired by task: difference ±95 %, wins, losses, table
    for row in a.rows:  # .task .attempt .outcome .scores .agent (its log: callboard log runs/a ID)
        if row.outcome.reason.kind != "completed":
            print(row.task.id, row.outcome.reason)


if __name__ == "__main__":
    trio.run(main)
