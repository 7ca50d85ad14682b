"""The proof itself is tried: the same seed gives the same logs, what fails is a program, and a broken rule is seen.

Lives that have failed once stay here by name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec
import proof
import pytest
import trio
from crash_images import seeded
from helpers import notation
from hypothesis import given, settings
from life_scripts import ANSWERS, Life, Moment, Step, any_life, lives
from proof import live, program, run
from proof_rules import settled_logs
from smaller import smallest

from callboard.actors.turns import closing

ROOT = Path(__file__).resolve().parents[2]

BUSY = Life(
    turns=(
        (
            Step(kind="tools", tools=("delegating", "slow", "asking", "background"), failures=1, in_tool="inject"),
            Step(kind="tools", tools=("approved", "mailing"), streaming="steer", seams=(("tool_after", "add"),)),
        ),
        (Step(kind="hang", seams=(("pre_step", "add"),)),),
    ),
    prompts=2,
    peer=(Step(kind="tools", tools=("mailing", "slow")),),
    sections=("rain", "sun"),
    meanwhile=(Moment(20, "followup"), Moment(30, "close"), Moment(70, "cut")),
    seed=11,
)
"""A bit of everything."""
SMALL = Life(turns=((Step(kind="tools", tools=("safe_alone",)),),), meanwhile=(Moment(3, "steer"),), seed=3)


# -- the scheduler

WRITES_A_LOG = """
import sys

sys.path[0] = "tests/actors"

from proof import live, text
from test_proof import BUSY

print(text(live(BUSY)))
"""


def python(source: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in the root of the checkout, as a person would."""
    command = [sys.executable, "-c", source]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def test_the_same_seed_gives_the_same_logs_byte_for_byte_also_in_another_process() -> None:
    first = proof.text(live(BUSY))
    assert first == proof.text(live(BUSY))
    other = python(WRITES_A_LOG, PYTHONHASHSEED="17")
    assert other.stdout.rstrip("\n") == first, other.stderr
    assert "turn/suspend" in first and "child/ended" in first and "mail/sent" in first


@pytest.mark.parametrize("number", range(3))
def test_any_life_gives_the_same_logs_twice(number: int) -> None:
    """Nothing of the process gets into a log: no address of a task, no order of a set."""
    choice = Random(number)
    for life in (any_life(choice) for _ in range(8)):
        assert proof.text(live(life)) == proof.text(live(life)), life


def test_another_seed_gives_another_schedule() -> None:
    seeds = {notation(live(msgspec.structs.replace(BUSY, seed=seed)).logs["a"]) for seed in range(6)}
    assert len(seeds) > 1


def test_the_scheduler_is_put_back() -> None:
    trio_run = cast("Any", trio)._core._run
    before = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r.getstate()
    with pytest.raises(ZeroDivisionError), seeded(1):
        assert trio_run._ALLOW_DETERMINISTIC_SCHEDULING
        trio_run._r.random()
        raise ZeroDivisionError
    assert (trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r.getstate()) == before


# -- the program


@settings(max_examples=200, derandomize=True, database=None)
@given(lives)
def test_a_life_is_written_as_python_that_rebuilds_it(life: Life) -> None:
    assert eval(repr(life), {"Life": Life, "Step": Step, "Moment": Moment}) == life


def test_a_life_that_holds_is_a_program_that_runs() -> None:
    done = python(program(SMALL))
    assert done.returncode == 0, done.stderr


def test_a_life_is_made_as_small_as_what_fails_in_it() -> None:
    def fails(life: Life) -> bool:
        return life.prompts == 2 and any("asking" in step.tools for step in life.steps())

    assert smallest(BUSY, fails) == Life(turns=((Step(tools=("asking",)),),), prompts=2)


def test_lives_reach_every_seam_with_every_answer() -> None:
    choice = Random(1)
    written = {seam for _ in range(1000) for step in any_life(choice).steps() for seam in step.seams}
    assert written == {(seam, answer) for seam, answers in ANSWERS.items() for answer in answers}


FORGETS = """
from callboard.actors.turns import closing


def nothing(*args, **options):
    return []


closing.closing_results = nothing

"""
"""Breaks the exit: calls without a result get none."""


def test_a_rule_that_is_broken_is_seen_and_the_failure_is_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*args: object, **options: object) -> list[object]:
        return []

    with monkeypatch.context() as broken:
        broken.setattr(closing, "closing_results", nothing)
        with pytest.raises(BaseException) as raised:
            run(SMALL)
    said = "\n".join(raised.value.__notes__)
    assert "recovery='end', cut a behind seq" in said
    assert f"run({SMALL!r})" in said
    again = python(FORGETS + said[said.index("import sys") :])
    assert again.returncode == 1 and "call 'c0' has no result" in again.stderr, again.stderr
    run(SMALL)


def test_a_lost_record_is_seen() -> None:
    """The mail that was to be one unit with its sender's record is kept apart from it."""
    lived = live(BUSY)
    logs = {agent: log for agent, log in lived.logs.items() if agent != "b"}
    with pytest.raises(AssertionError, match="mail that was sent"):
        settled_logs(logs)


def test_the_long_form_says_count_and_seed() -> None:
    command = [sys.executable, "tests/actors/prove.py", "--lives", "2", "--seed", "5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 lives hold" in done.stderr and "seed 5" in done.stderr


# -- lives that failed once, and some in which much comes together

FOUND: dict[str, Life] = {
    "mail that is replaced where it waits keeps its sender": Life(
        turns=((Step(kind="tools", tools=("mailing", "safe_parallel"), in_tool="replace"),),),
        peer=(Step(kind="tools", tools=("mailing",)),),
    ),
    "a peer that writes to itself in every turn comes to an end": Life(
        turns=((Step(kind="tools", tools=("asking",)),),),
        peer=(Step(streaming="followup"),),
        meanwhile=(Moment(24, "close"),),
    ),
    "a turn that is cancelled behind its last word does not end as if it had put one": Life(
        turns=((Step(seams=(("turn_stopping", "cancel"),)),),), chat=("ok",)
    ),
    "a child whose parent's log fails while it is made is not left without a birth": Life(
        turns=(
            (Step(kind="tools", tools=("delegating", "delegating", "approved")), Step(kind="tools", tools=("failing",))),
            (Step(kind="tools", tools=("asking",)), Step(kind="tools", tools=("delegating",))),
        ),
        slash=True,
        sections=(None, "sun", None),
        meanwhile=(Moment(16, "full"), Moment(57, "full")),
        again=True,
        rest_s=1,
        seed=46546,
    ),
    "a supervised task whose pause ends on a full disk is put again": Life(
        turns=(
            (
                Step(kind="tools", tools=("unknown", "never_slow", "supervised")),
                Step(kind="tools", tools=("safe_alone", "supervised", "never_slow", "background")),
            ),
        ),
        prompts=2,
        child=(Step(kind="tools", tools=("asking",), seams=(("respond", "silent"), ("guard", "limit"))),),
        meanwhile=(
            Moment(at=4, do="full"),
            Moment(at=5, do="followup", to="a"),
            Moment(at=7, do="/broken", to="b", after_s=2),
            Moment(at=29, do="full"),
            Moment(at=43, do="/fork", to="a"),
            Moment(at=45, do="/compact", to="a"),
        ),
        verdicts=("allow", "allow"),
        recovery="end",
        edits=True,
        commands=True,
        again=True,
        rest_s=1,
        seed=48122,
    ),
    "a summary that was begun before a long batch is not enough behind it": Life(
        turns=(
            (Step(tools=("background", "ask_again", "background", "background")),),
            (
                Step(
                    kind="tools",
                    tools=("telling", "replying", "never_slow", "background"),
                    seams=(("respond", "limit"), ("tool_before", "inject")),
                ),
                Step(kind="tools", tools=("asking", "failing", "safe_parallel")),
            ),
        ),
        prompts=3,
        sections=("rain", "rain", None),
        meanwhile=(Moment(at=30, do="full"), Moment(at=49, do="full")),
        verdicts=("nobody", "reply"),
        window=1700,
        summary="model",
        jump_s=31536000,
        seed=61017,
    ),
    "a parent whose log fails as its child ends takes nobody with it": Life(
        turns=(
            (
                Step(kind="tools", tools=("supervised", "ask_again", "delegating")),
                Step(kind="tools", tools=("unknown", "replying"), seams=(("tool_around", "alone"),)),
            ),
            (Step(kind="tools", tools=("unknown", "approved"), seams=(("respond", "limit"), ("tool_after", "block"))),),
        ),
        prompts=2,
        peer=(
            Step(kind="tools", tools=("mailing", "telling", "asking"), seams=(("tool_after", "limit"),)),
            Step(kind="tools", tools=("failing", "never_slow", "ask_again")),
        ),
        child=(
            Step(kind="tools", tools=("asking", "telling"), failures=2, in_tool="steer", seams=(("request_error", "hook"),)),
            Step(kind="tools", tools=("unknown", "approved")),
        ),
        output=True,
        sections=(None,),
        meanwhile=(
            Moment(at=6, do="inject", to="a"),
            Moment(at=8, do="say", to="b"),
            Moment(at=21, do="full"),
            Moment(at=28, do="withdraw", to="a", after_s=7),
            Moment(at=37, do="full"),
            Moment(at=59, do="say", to="b"),
        ),
        verdicts=("reply", "allow"),
        recovery="end",
        chat=("ok", "ok", "ok"),
        edits=True,
        summary="model",
        again=True,
        rest_s=1,
        jump_s=31536000,
        seed=13300,
    ),
    "a batch whose first result came last is compacted, and the next request fits": Life(
        turns=((Step(kind="tools", tools=("approved", "telling")), Step(kind="tools", tools=("slow",))),),
        window=1200,
        rest_s=1,
        look_s=8,
    ),
    "a turn that fell asleep, was steered and answered late goes on wherever the kill": Life(
        turns=((Step(kind="tools", tools=("approved", "slow")),),),
        meanwhile=(Moment(16, "say", after_s=4), Moment(16, "/status", after_s=1)),
        chat=("ok", "fail"),
        commands=True,
        rest_s=1,
        look_s=8,
    ),
    "a view that is compacted, handed over, taken back and forgotten fits, and every request is rebuilt": Life(
        turns=((Step(kind="tools", tools=("safe_alone", "handing")), Step(kind="max-tokens")),),
        prompts=2,
        meanwhile=(Moment(40, "/undo"), Moment(41, "/fork"), Moment(42, "say"), Moment(43, "/new")),
        chat=("ok", "slow"),
        commands=True,
        window=1300,
        summary="model",
        again=True,
        after_error="continue",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_a_life_that_failed_once_holds(name: str) -> None:
    run(FOUND[name])
