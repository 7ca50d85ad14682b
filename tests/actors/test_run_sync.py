"""run_sync: from a plain script, and from inside a loop that runs already; what it raises comes out either way."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from helpers import make, scripted

from callboard.actors.agent import Agent
from callboard.actors.run import run_sync
from callboard.actors.testing.scripted import Reply
from callboard.storage.errors import AskTimeout

AGENT = Agent("a", model="m:x", plugins=())


def test_a_script_asks_in_a_run_of_its_own() -> None:
    outcome = run_sync(make(scripted("hello")), "hi")
    assert (outcome.text, outcome.ok) == ("hello", True)


def test_with_ids_and_a_folder_the_second_run_reads_the_answer(tmp_path: Path) -> None:
    models = {"m": scripted("once")}
    first, second = (run_sync(AGENT, "hi", store=tmp_path / "state", id="t", message_id="q", models=models) for _ in range(2))
    assert (first.text, second.text) == ("once", "once")
    assert first.seq == second.seq


def test_in_an_asyncio_loop_it_runs_in_a_thread() -> None:
    async def notebook() -> str:
        return run_sync(make(scripted("hello")), "hi").text

    assert asyncio.run(notebook()) == "hello"


async def test_in_a_trio_run_it_runs_in_a_thread() -> None:
    before = threading.active_count()
    assert run_sync(make(scripted("hello")), "hi").text == "hello"
    assert threading.active_count() == before


async def test_what_is_raised_in_the_thread_is_raised_by_the_call() -> None:
    with pytest.raises(AskTimeout, match="not over in 0 s"):
        run_sync(make(scripted(Reply.hang("half"))), "hi", timeout=0)


def test_what_is_raised_in_the_run_is_raised_by_the_call() -> None:
    with pytest.raises(AskTimeout, match="not over in 0 s"):
        run_sync(make(scripted(Reply.hang("half"))), "hi", timeout=0)
