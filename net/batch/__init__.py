"""Batches: a thousand tasks for one agent, scored, counted and compared.

Each task is an agent of its own in one store, so a run that is killed goes on where it was, and what has finished is not run
again.

* `tasks`: what is to be done, from JSON lines or from code;
* `scoring`: how good an answer is: exact, regex, a function, or a judge that is an agent itself;
* `running`: `run_batch`, and `what_if`, which runs finished tasks again from a point under another definition;
* `rows`: one attempt's result, and the file they are kept in;
* `statistics`, `summary`, `comparing`: means with intervals, pass@k, and two runs task by task. All three are pure.
"""

from .comparing import Comparison, compare
from .rows import Row
from .running import BatchRun, Progress, run_batch, what_if
from .scoring import Judge, Verdict, exact, judge, regex
from .summary import Summary
from .tasks import Task, load_tasks

__all__ = [
    "BatchRun",
    "Comparison",
    "Judge",
    "Progress",
    "Row",
    "Summary",
    "Task",
    "Verdict",
    "compare",
    "exact",
    "judge",
    "load_tasks",
    "regex",
    "run_batch",
    "what_if",
]
