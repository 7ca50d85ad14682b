"""The parts of a batch that compute: tasks, scorers, statistics, summary and comparison. No system, no disk but the task file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors import Outcome
from callboard.net.batch import BatchRun, Row, Task, compare, exact, load_tasks, regex
from callboard.net.batch.rows import infrastructure, line_of, row_of
from callboard.net.batch.statistics import mean_of, pass_at, t_quantile
from callboard.net.batch.tasks import agent_id
from callboard.storage import Usage, UsageError
from callboard.storage.events import Completed, Errored, Interrupted, Limited
from callboard.storage.messages import Failure


def outcome(text: str = "", *, reason: Any = None, output: Any = None, agent: str = "t") -> Outcome[Any]:
    return Outcome(agent=agent, turn=1, reason=reason or Completed(), text=text, output=output, steps=2)


def row(task: str, attempt: int = 1, score: float | None = None, *, reason: Any = None) -> Row:
    scores = {} if score is None else {"score": score}
    of = Task(id=task, input="?")
    done = outcome(reason=reason, agent=agent_id(of, attempt))
    return Row(task=of, attempt=attempt, outcome=done, scores=scores, usage=Usage(10, 5))


def run(*rows: Row, name: str = "runs/a") -> BatchRun:
    return BatchRun(name=name, agent="solver", model="m:1", rows=rows)


# -- tasks


def test_tasks_are_read_with_what_else_they_say(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"id": "a", "input": "one", "expected": 1, "level": "easy"}\n\n{"input": "two"}\n{"id": 7, "input": "x"}\n')
    assert load_tasks(file) == [
        Task(id="a", input="one", expected=1, meta={"level": "easy"}),
        Task(id="3", input="two"),
        Task(id="7", input="x"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no task in"),
        ("{", "line 1"),
        ("[1]", "line 1"),
        ('{"id": "a"}', "no input"),
        ('{"id": "a", "input": 3}', "no input"),
        ('{"id": true, "input": "x"}', "neither a text"),
        ('{"id": "", "input": "x"}', "empty id"),
        ('{"id": "a", "input": "  "}', "input of task 'a'"),
        ('{"id": "a", "input": "x"}\n{"id": "a", "input": "y"}', "two tasks"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(text)
    with pytest.raises(UsageError, match=says):
        load_tasks(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_tasks(tmp_path / "nothing.jsonl")


@given(st.sets(st.text("ab#~%@2", min_size=1, max_size=5), max_size=8))
def test_no_two_attempts_share_an_agent(ids: set[str]) -> None:
    made = [agent_id(Task(id=id, input="x"), n, again) for id in ids for n in (1, 2, 22) for again in (0, 1)]
    assert len(set(made)) == len(made)


# -- scorers


def test_exact_compares_texts_without_the_blanks_around() -> None:
    task = Task(id="t", input="?", expected=" Oslo\n")
    assert exact(task, outcome("Oslo ")) == 1
    assert exact(task, outcome("oslo")) == 0
    assert exact(task, outcome("Oslo", reason=Limited("steps"))) == 0


def test_exact_compares_values_of_typed_answers() -> None:
    task = Task(id="t", input="?", expected={"city": "Oslo"})
    assert exact(task, outcome('{"city":"Oslo"}', output={"city": "Oslo"})) == 1
    assert exact(task, outcome('{"city":"Bergen"}', output={"city": "Bergen"})) == 0


def test_regex_searches_the_answer() -> None:
    assert regex(Task(id="t", input="?", expected=r"\b4\d\b"), outcome("it is 42.")) == 1
    assert regex(Task(id="t", input="?", expected="^4"), outcome("it is 42.")) == 0
    with pytest.raises(UsageError, match="no regular expression"):
        regex(Task(id="t", input="?", expected="("), outcome("x"))


# -- statistics


@pytest.mark.parametrize(
    ("freedom", "value"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (5, 2.5706), (10, 2.2281), (1000, 1.9623)]
)
def test_the_quantiles_of_student(freedom: int, value: float) -> None:
    assert t_quantile(freedom) == pytest.approx(value, abs=4e-3)


def test_a_mean_says_how_sure_it_is() -> None:
    assert mean_of([]) is None
    one = mean_of([0.5])
    assert one is not None and (one.mean, one.half) == (0.5, None)
    three = mean_of([0.0, 1.0, 2.0])
    assert three is not None and three.half == pytest.approx(4.3027 / 3**0.5, abs=1e-3)


@given(st.integers(1, 12), st.data())
def test_pass_at_k_is_the_share_of_samples_with_a_pass(attempts: int, data: st.DataObject) -> None:
    from itertools import combinations

    passed, k = data.draw(st.integers(0, attempts)), data.draw(st.integers(1, attempts))
    samples = list(combinations([n < passed for n in range(attempts)], k))
    assert pass_at(k, attempts, passed) == pytest.approx(sum(map(any, samples)) / len(samples))


# -- summary


def test_a_summary_counts_scores_over_tasks_and_ends_by_reason() -> None:
    rows = [row("a", 1, 1.0), row("a", 2, 0.0), row("b", 1, 1.0), row("b", 2, reason=Limited("steps"))]
    summary = run(*rows).summary()
    (score,) = summary.scores
    assert (summary.tasks, summary.attempts, summary.completed, summary.ends) == (2, 4, 3, {"limit steps": 1})
    assert score.mean.mean == 0.5 and score.passes == {1: 0.5, 2: 1.0}
    assert (summary.usage.total, summary.cost, summary.to_run_again) == (60, None, 0)
    text = str(summary)
    assert "4 attempts at 2 tasks, 3 completed" in text and "pass@2 1.000" in text and "limit steps 1" in text


def test_what_failed_for_the_days_reasons_counts_in_no_score() -> None:
    failed = Errored(Failure("RATE_LIMIT", "slow down"))
    summary = run(row("a", 1, 1.0), row("b", 1, reason=failed)).summary()
    assert summary.scores[0].mean.mean == 1.0
    assert summary.to_run_again == 1 and "run the batch again" in str(summary)
    assert "the first of them: slow down" in str(summary)
    assert infrastructure(Interrupted()) and not infrastructure(Errored(Failure("OUTPUT_INVALID", "")))


def test_rows_survive_their_file() -> None:
    before = row("a", 2, 0.25, reason=Errored(Failure("SERVER", "down", status=503)))
    assert line_of(row_of(line_of(before), {"a": before.task})) == line_of(before)


# -- comparison


def test_runs_are_compared_task_by_task() -> None:
    first = run(row("a", 1, 0.0), row("b", 1, 1.0), row("c", 1, 1.0), row("d", 1, 1.0))
    second = run(row("a", 1, 1.0), row("b", 1, 1.0), row("c", 1, 0.0), row("c", 2, 1.0), row("e", 1, 1.0), name="runs/b")
    found = compare(first, second)
    assert (found.wins, found.losses, found.ties, found.only_first, found.only_second) == (1, 1, 1, 1, 1)
    assert found.difference.mean == pytest.approx((1 + 0 - 0.5) / 3)
    text = str(found)
    assert "better at 1, worse at 1, the same at 1" in text and "may well be chance" in text and "runs/b" in text


def test_a_sure_difference_is_not_called_chance() -> None:
    first = run(*(row(str(n), 1, 0.0) for n in range(30)))
    second = run(*(row(str(n), 1, float(n != 3)) for n in range(30)))
    found = compare(first, second)
    assert "chance" not in str(found) and found.difference.half is not None
    assert "… 9 more in between" in str(found)


def test_runs_without_anything_in_common_are_refused() -> None:
    with pytest.raises(UsageError, match="no score"):
        compare(run(row("a", 1)), run(row("a", 1, 1.0)))
    with pytest.raises(UsageError, match="no task in common"):
        compare(run(row("a", 1, 1.0)), run(row("b", 1, 1.0)))
