"""Batches that run: each task once, whatever is cut; what failed for the day's reasons again; judges, what-ifs, the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from callboard import Agent, delegate
from callboard.actors import Outcome
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.batch import Progress, Task, compare, exact, judge, run_batch, what_if
from callboard.net.cli import main
from callboard.storage import Request, UsageError, open_store, verify

TASKS = [Task(id=f"t{n}", input=f"{n} + 1", expected=str(n + 1)) for n in range(6)]
SOLVER = Agent("solver", model="acme:adder", plugins=[])


def adds(request: Request) -> Reply:
    return Reply.text(str(int(request.messages[-1].text.split()[0]) + 1))


def adds_badly(request: Request) -> Reply:
    number = int(request.messages[-1].text.split()[0])
    return Reply.text(str(number + 1 + (number == 3)))


def adder(script: Any = adds) -> ScriptedModel:
    return ScriptedModel(script, provider="acme", name="adder")


def questions(model: ScriptedModel) -> list[str]:
    return [request.messages[-1].text for request in model.requests]


async def test_every_task_is_run_scored_and_written_in_its_order(tmp_path: Path) -> None:
    seen: list[Progress] = []
    run = await run_batch(tmp_path, SOLVER, TASKS, score=exact, models={"*": adder()}, progress=seen.append)
    assert [(r.task.id, r.outcome.text, r.scores) for r in run.rows] == [(t.id, t.expected, {"score": 1.0}) for t in TASKS]
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert [(line["task"], line["ok"], line["agent"]) for line in lines] == [(t.id, True, t.id) for t in TASKS]
    assert [p.done for p in seen] == [1, 2, 3, 4, 5, 6] and seen[-1].total == 6 and seen[-1].failed == 0
    assert "pass@1 1.000" in str(run.summary())
    async with open_store(tmp_path, readonly=True) as store:
        assert (await verify(store)).ok


async def test_a_run_that_is_over_asks_no_model_again(tmp_path: Path) -> None:
    first = await run_batch(tmp_path, SOLVER, TASKS, score=exact, models={"*": adder()})
    before = (tmp_path / "results.jsonl").read_bytes()
    silent = adder([])
    second = await run_batch(tmp_path, SOLVER, TASKS, score=exact, models={"*": silent})
    assert silent.requests == [] and second.rows == first.rows
    assert (tmp_path / "results.jsonl").read_bytes() == before


async def test_c231_a_run_that_is_cut_goes_on_and_only_what_is_left_is_run(tmp_path: Path) -> None:
    whole = await run_batch(tmp_path / "whole", SOLVER, TASKS, score=exact, models={"*": adder()})
    cut = adder()
    with trio.CancelScope() as scope:

        def after(progress: Progress) -> None:
            if progress.done == 4:
                scope.cancel()

        await run_batch(tmp_path / "cut", SOLVER, TASKS, score=exact, concurrency=1, models={"*": cut}, progress=after)
    assert scope.cancelled_caught and not (tmp_path / "cut" / "results.jsonl").exists()
    rest = adder()
    again = await run_batch(tmp_path / "cut", SOLVER, TASKS, score=exact, models={"*": rest})
    assert not set(questions(cut)[:4]) & set(questions(rest))
    assert [row.outcome.text for row in again.rows] == [row.outcome.text for row in whole.rows]
    assert (tmp_path / "cut" / "results.jsonl").read_bytes() == (tmp_path / "whole" / "results.jsonl").read_bytes()


async def test_c231_what_failed_for_the_days_reasons_runs_again_by_a_new_agent(tmp_path: Path) -> None:
    def limited(request: Request) -> Reply:
        if request.messages[-1].text.startswith("2"):
            return Reply.fail("RATE_LIMIT", status=429)
        return adds(request)

    first = await run_batch(tmp_path, SOLVER, TASKS, score=exact, models={"*": adder(limited)})
    assert [row.task.id for row in first.rows if not row.stands] == ["t2"]
    assert first.summary().to_run_again == 1
    model = adder()
    second = await run_batch(tmp_path, SOLVER, TASKS, score=exact, models={"*": model})
    assert questions(model) == ["2 + 1"]
    assert [row.agent for row in second.rows] == ["t0", "t1", "t2~2", "t3", "t4", "t5"]
    assert all(row.scores == {"score": 1.0} for row in second.rows)


async def test_attempts_are_agents_of_their_own(tmp_path: Path) -> None:
    run = await run_batch(tmp_path, SOLVER, TASKS[:2], repeat=3, models={"*": adder()})
    assert [row.agent for row in run.rows] == ["t0", "t0#2", "t0#3", "t1", "t1#2", "t1#3"]
    more = adder()
    await run_batch(tmp_path, SOLVER, TASKS[:3], repeat=3, models={"*": more})
    assert questions(more) == ["2 + 1"] * 3


async def test_no_more_attempts_run_than_are_allowed_at_a_time(tmp_path: Path) -> None:
    running = most = 0

    async def slow(task: Task, outcome: Outcome) -> float:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await trio.lowlevel.checkpoint()
        running -= 1
        return 1.0

    await run_batch(tmp_path, SOLVER, TASKS, score=slow, concurrency=2, models={"*": adder()})
    assert most == 2


async def test_a_scorer_is_asked_once_about_each_attempt(tmp_path: Path) -> None:
    asked: list[str] = []

    def score(task: Task, outcome: Outcome) -> dict[str, float]:
        asked.append(task.id)
        return {"exact": exact(task, outcome), "steps": outcome.steps}

    await run_batch(tmp_path, SOLVER, TASKS, score=score, models={"*": adder()})
    run = await run_batch(tmp_path, SOLVER, TASKS, score=score, models={"*": adder([])})
    assert sorted(asked) == [task.id for task in TASKS]
    assert [s.name for s in run.summary().scores] == ["exact", "steps"]
    await run_batch(tmp_path, SOLVER, TASKS, score=score, rescore=True, models={"*": adder([])})
    assert len(asked) == 2 * len(TASKS)


async def test_a_scorer_that_fails_is_named_and_loses_no_answer(tmp_path: Path) -> None:
    def broken(task: Task, outcome: Outcome) -> float:
        raise ValueError("no such field")

    with pytest.raises(UsageError, match=r"scorer failed on task 't0'.*no such field"):
        await run_batch(tmp_path, SOLVER, TASKS[:1], score=broken, models={"*": adder()})
    silent = adder([])
    run = await run_batch(tmp_path, SOLVER, TASKS[:1], score=exact, models={"*": silent})
    assert run.rows[0].scores == {"score": 1.0} and silent.requests == []


async def test_a_torn_line_of_scores_costs_one_more_question(tmp_path: Path) -> None:
    await run_batch(tmp_path, SOLVER, TASKS, score=exact, models={"*": adder()})
    scores = tmp_path / "scores.jsonl"
    scores.write_bytes(scores.read_bytes()[:-4])
    asked: list[str] = []

    def score(task: Task, outcome: Outcome) -> float:
        asked.append(task.id)
        return 1.0

    for _ in range(2):
        await run_batch(tmp_path, SOLVER, TASKS, score=score, models={"*": adder([])})
    assert len(asked) == 1


async def test_a_judge_is_an_agent_in_the_same_store_and_asked_once(tmp_path: Path) -> None:
    def grades(request: Request) -> Reply:
        right = "The answer:\n1" in request.messages[-1].text
        return Reply.output({"score": 1.0 if right else 0.5, "why": "as it is"})

    grader = judge(ScriptedModel(grades, provider="acme", name="grader"))
    run = await run_batch(tmp_path, SOLVER, TASKS[:2], score=grader, models={"acme:adder": adder()}, prices={"acme": (1, 1)})
    assert [row.scores for row in run.rows] == [{"judge": 1.0}, {"judge": 0.5}]
    first = run.rows[0].cost
    (tmp_path / "scores.jsonl").unlink()
    silent = judge(ScriptedModel([], provider="acme", name="grader"))
    again = await run_batch(tmp_path, SOLVER, TASKS[:2], score=silent, models={"acme:adder": adder([])}, prices={"acme": (1, 1)})
    assert [row.scores for row in again.rows] == [{"judge": 1.0}, {"judge": 0.5}]
    assert again.rows[0].cost == first


async def test_what_children_spend_is_the_attempts(tmp_path: Path) -> None:
    helper = Agent("helper", model=adder(), plugins=[])
    delegating = [Reply.tools(("c1", "helper", {"task": "4 + 1"})), Reply.text("5")]
    lead = Agent("lead", model=ScriptedModel(delegating, provider="acme", name="lead"), tools=[delegate(helper)], plugins=[])
    run = await run_batch(tmp_path, lead, [Task(id="t", input="4 + 1")], prices={"acme:lead": (0, 1e6), "acme:adder": (0, 1e6)})
    (row,) = run.rows
    assert row.usage.output > row.outcome.usage.output and row.cost == row.usage.output + row.usage.reasoning
    with pytest.raises(UsageError, match="none for 'acme:adder'"):
        await run_batch(tmp_path, lead, [Task(id="t", input="4 + 1")], prices={"acme:lead": (0, 1)})


@pytest.mark.parametrize("fault", ["agent", "model", "input"])
async def test_another_run_in_the_folder_is_refused(tmp_path: Path, fault: str) -> None:
    await run_batch(tmp_path, SOLVER, TASKS[:1], models={"*": adder()})
    other = {"agent": Agent("other", model="acme:adder"), "model": SOLVER.replace(model="acme:other"), "input": SOLVER}[fault]
    tasks = [Task(id="t0", input="5 + 5")] if fault == "input" else TASKS[:1]
    with pytest.raises(UsageError, match="another folder"):
        await run_batch(tmp_path, other, tasks, models={"*": adder()})


async def test_numbers_that_would_do_nothing_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="repeat=0"):
        await run_batch(tmp_path, SOLVER, TASKS, repeat=0)
    with pytest.raises(UsageError, match="no task"):
        await run_batch(tmp_path, SOLVER, [])
    with pytest.raises(UsageError, match="prices"):
        await run_batch(tmp_path, SOLVER, TASKS, prices={"acme": 3})  # type: ignore[dict-item]


# -- what-ifs


async def test_a_what_if_runs_the_attempts_again_as_forks(tmp_path: Path) -> None:
    before = await run_batch(tmp_path, SOLVER, TASKS, score=exact, models={"*": adder(adds_badly)})
    better = adder()
    options: dict[str, Any] = {"name": "better", "model": "acme:better", "score": exact, "models": {"*": better}}
    after = await what_if(tmp_path, SOLVER, TASKS, **options)
    assert [row.agent for row in after.rows] == [f"t{n}@better" for n in range(6)]
    found = compare(before, after)
    assert (found.wins, found.losses, found.ties) == (1, 0, 5)
    options["models"] = {"*": adder([])}
    again = await what_if(tmp_path, SOLVER, TASKS, **options)
    assert again.rows == after.rows and (tmp_path / "what-if-better.jsonl").exists()
    assert {request.model for request in better.requests} == {"better"}


async def test_a_what_if_from_a_step_shares_what_comes_before(tmp_path: Path) -> None:
    from callboard import tool

    @tool(replay="safe")
    async def look_up(what: str) -> str:
        """Look it up."""
        return "a fact"

    def first(request: Request) -> Reply:
        return Reply.text("wrong") if request.messages[-1].role == "tool" else Reply.tools(("c1", "look_up", {"what": "x"}))

    looker = Agent("looker", model="acme:adder", tools=[look_up], plugins=[])
    tasks = [Task(id="t", input="look", expected="right")]
    await run_batch(tmp_path, looker, tasks, score=exact, models={"*": adder(first)})
    other = ScriptedModel([Reply.text("right")], provider="acme", name="other")
    after = await what_if(
        tmp_path, looker, tasks, name="late", step=2, model="acme:other", score=exact, models={"acme:other": other}
    )
    assert after.rows[0].scores == {"score": 1.0}
    (request,) = other.requests
    assert request.model == "other" and request.messages[-1].results == {"c1": "a fact"}
    with pytest.raises(UsageError, match="no step 9"):
        await what_if(tmp_path, looker, tasks, name="never", step=9, model="acme:other", models={"*": other})


async def test_a_what_if_needs_results_and_a_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no results"):
        await what_if(tmp_path, SOLVER, TASKS, name="x")
    with pytest.raises(UsageError, match="cannot name"):
        await what_if(tmp_path, SOLVER, TASKS, name="../x")
    await run_batch(tmp_path, SOLVER, TASKS, models={"*": adder()})
    with pytest.raises(UsageError, match="no task 'z'"):
        await what_if(tmp_path, SOLVER, TASKS, name="x", only=["z"])


# -- the command

SOURCE = """
from callboard.actors.agent import Agent
from callboard.actors.testing.scripted import Reply, ScriptedModel

def adds(request):
    number = int(request.messages[-1].text.split()[0])
    return Reply.text(str(number + 1 + (request.model == "bad" and number == 1)))

solver = Agent("solver", model="acme:good", plugins=[])
models = {"acme": ScriptedModel(adds, provider="acme")}

def half(task, outcome):
    return {"half": 0.5}
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "adders.py").write_text(SOURCE)
    lines = [json.dumps({"id": f"t{n}", "input": f"{n} + 1", "expected": str(n + 1)}) for n in range(3)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_prints_a_summary_and_a_comparison(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["batch", "tasks.jsonl", "--agent", "adders.py:solver"]
    assert main([*words, "--model", "acme:bad", "--out", "runs/bad", "--price", "acme=1/2"]) == 0
    assert "pass@1 0.667" in capsys.readouterr().out
    assert main([*words, "--out", "runs/good", "--compare", "runs/bad"]) == 0
    out = capsys.readouterr().out
    assert "pass@1 1.000" in out and "better at 1, worse at 0, the same at 2" in out
    assert main(["log", "runs/good", "t1", "--types", "turn/end"]) == 0


def test_the_command_in_json(shop: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["batch", "tasks.jsonl", "--agent", "adders.py:solver", "--json"]
    assert main([*words, "--score", "adders.py:half"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["summary"]["scores"][0]["name"] == "half" and value["comparison"] is None
    assert (shop / "runs" / "tasks-solver" / "results.jsonl").exists()
    assert main([*words, "--what-if", "bad", "--model", "acme:bad", "--only", "t1", "--score", "adders.py:half"]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["summary"]["attempts"] == 1 and value["comparison"]["difference"]["mean"] == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--score", "nothing"], "nothing"),
        (["--score", "adders.py:models"], "no scorer"),
        (["--price", "x"], "is no price"),
        (["--repeat", "0"], "whole number"),
        (["--compare", "runs/none"], "no results"),
    ],
)
def test_words_that_make_no_batch_are_refused(
    shop: Path, words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["batch", "tasks.jsonl", "--agent", "adders.py:solver", *words]) == 2
    assert says in capsys.readouterr().err
