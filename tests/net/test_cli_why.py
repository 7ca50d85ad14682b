"""why, fork, backup: what the log says of an agent that waits, a new agent from an old one, a copy of a folder in use."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from callboard.actors import Agent, Ask, System, delegate, tool
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net import serve
from callboard.net.cli import main
from callboard.storage import open_store, verify


@tool(mode="parallel")
async def wait() -> str:
    """Wait."""
    await trio.sleep_forever()
    return ""


@tool(mode="parallel", approval=lambda ctx, call: Ask("Shall I?", expires_s=7200))
async def risky() -> str:
    """Ask first."""
    return ""


WORKER = Agent("worker", model=ScriptedModel([Reply.hang("hm")]), plugins=())
CALLS = Reply.tools(("c1", "wait", {}), ("c2", "risky", {}), ("c3", "worker", {"task": "go"}))


def agent(*replies: Reply, **options: Any) -> Agent[Any, Any]:
    return Agent("desk", model=ScriptedModel(replies), tools=[wait, risky, delegate(WORKER)], plugins=(), **options)


async def busy(state: Path, then: Callable[[], Awaitable[object]] | None = None) -> None:
    """Everything that an agent may wait for at once, cut short."""
    desk = agent(CALLS, recovery="continue")
    async with System.open(state, agents=[desk], grace=0) as system:
        ref = await system.spawn(desk, id="ann")
        await ref.remind("tea", after_s=10_000)
        await ref.followup("hello", message_id="m1")
        with trio.fail_after(60):
            async for record in ref.follow(types=["approval/asked"]):
                assert record
                break
        await ref.followup("and?", message_id="m2")
        await wait_all_tasks_blocked(0.05)
        if then is not None:
            await then()


def said(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert main(words) == code
    return capsys.readouterr().out


def test_why_tells_what_an_open_turn_waits_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "s"
    trio.run(busy, state)
    lines = said(capsys, "why", str(state), "ann").splitlines()
    assert lines[0] == "ann (desk): turn 1 is open, step 1"
    assert [re.sub(r"for \d+s", "for a while", line.strip()) for line in lines[1:]] == [
        "waits for a tool: wait (c1), for a while",
        "waits for a child: ann/1.1.c3, for a while",
        "waits for a person's word: Shall I?, for a while, due in 2h",
        "pending (next-turn): and?",
        "reminder due in 3h: tea",
        "no process runs it: it goes on when a program opens the store again",
    ]
    assert "waits for the model: turn 1, step 1, attempt 1, for" in said(capsys, "why", str(state), "ann/1.1.c3")
    value = json.loads(said(capsys, "why", str(state), "ann", "--json"))
    assert [wait["kind"] for wait in value["info"]["waits"]] == ["tool", "child", "approval"]
    assert (value["info"]["status"], value["owner"], len(value["timers"])) == ("running", None, 1)


def test_why_reads_beside_the_process_that_runs_it(tmp_path: Path) -> None:
    seen: list[str] = []

    async def look() -> None:
        words = [sys.executable, "-P", "-m", "callboard.net.cli", "why", str(tmp_path / "s"), "ann"]
        done = await trio.run_process(words, capture_stdout=True)
        seen.extend(done.stdout.decode().splitlines())

    trio.run(busy, tmp_path / "s", look)
    assert len(seen) == 7 and seen[-1] == f"process {os.getpid()} runs it"


def test_why_asks_a_service() -> None:
    async def main_task() -> list[str]:
        desk = agent(Reply.hang("hm"))
        async with System.open(":memory:", agents=[desk], grace=0) as system, trio.open_nursery() as nursery:
            server = await nursery.start(partial(serve, system, port=0))
            ref = await system.spawn(desk, id="ann")
            await ref.followup("hello")
            await ref.inject("by the way")
            words = [sys.executable, "-P", "-m", "callboard.net.cli", "why", f"ws://127.0.0.1:{server.port}", "ann"]
            done = await trio.run_process(words, capture_stdout=True)
            nursery.cancel_scope.cancel()
        return done.stdout.decode().splitlines()

    first, waits, pending = trio.run(main_task)
    assert first == "ann (desk): turn 1 is open, step 1"
    assert waits.startswith("  waits for the model: turn 1, step 1, attempt 1, for ")
    assert pending == "  pending (next-step): by the way"


def test_why_of_an_idle_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def fill() -> None:
        desk = agent(Reply.hang("hm"))
        async with System.open(tmp_path / "s", agents=[desk]) as system:
            ref = await system.spawn(desk, id="ann")
            await system.spawn(desk, id="bob")
            await ref.followup("hello")
            await ref.followup("again")
            await ref.cancel(keep_inbox=True)
            await ref.wait_idle()

    trio.run(fill)
    assert said(capsys, "why", str(tmp_path / "s"), "ann").splitlines() == [
        "ann (desk): no turn is open, the last was 1",
        "  parked (next-turn): again",
        "  what is parked stood behind a turn that failed or was cancelled; the next message to the agent runs it",
        "no process runs it, and it has nothing to do until somebody writes to it",
    ]
    assert said(capsys, "why", str(tmp_path / "s"), "bob").splitlines()[1:] == [
        "no process runs it, and it has nothing to do until somebody writes to it"
    ]
    assert main(["why", str(tmp_path / "s"), "an"]) == 2
    assert "did you mean 'ann'?" in capsys.readouterr().err
    assert main(["why", str(tmp_path / "none"), "an"]) == 4


def test_fork_makes_an_agent_that_goes_on_by_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = str(tmp_path / "s")

    async def fill() -> None:
        desk = agent(Reply.text("one"), Reply.text("two"))
        async with System.open(state, agents=[desk]) as system:
            ref = await system.spawn(desk, id="ann", labels={"shop": "a"})
            await ref.ask("hello")
            await ref.ask("more")

    trio.run(fill)
    assert said(capsys, "fork", state, "ann", "--turn", "2", "--id", "alt").startswith("alt shares the records of ann up to ")
    value = json.loads(said(capsys, "fork", state, "ann", "--at", "3", "--json"))
    assert value["id"].startswith("ann~") and (value["source"], value["at"]) == ("ann", 3)
    for words, code, why in (
        (("--id", "alt"), 2, "exists already"),
        (("--turn", "9"), 2, "no turn 9"),
        (("--at", "999"), 2, "no record 999"),
        (("--at", "1", "--turn", "1"), 2, "not allowed with"),
    ):
        assert main(["fork", state, "ann", *words]) == code
        assert why in capsys.readouterr().err
    assert main(["fork", state, "nobody"]) == 2
    assert main(["fork", str(tmp_path / "none"), "ann"]) == 4
    assert not (tmp_path / "none").exists()

    async def go_on() -> None:
        desk = agent(Reply.text("another"))
        async with System.open(state, agents=[desk]) as system:
            fork = await system.get("alt")
            assert (await fork.info()).labels == {"shop": "a"}
            assert (await fork.ask("less")).turn == 2
            assert [m.text for m in await fork.messages()] == ["hello", "one", "less", "another"]
        async with open_store(state, readonly=True) as store:
            assert (await verify(store)).ok

    trio.run(go_on)


def test_backup_copies_a_store_that_is_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said_there: list[str] = []

    async def copy() -> None:
        words = [sys.executable, "-P", "-m", "callboard.net.cli", "backup", str(tmp_path / "s"), str(tmp_path / "copy"), "--json"]
        done = await trio.run_process(words, capture_stdout=True)
        said_there.append(done.stdout.decode())

    trio.run(busy, tmp_path / "s", copy)
    value = json.loads(said_there[0])
    assert (value["agents"], value["records"] > 20) == (2, True)
    assert said(capsys, "verify", str(tmp_path / "copy")).startswith("ok: 2 agents, ")
    assert said(capsys, "why", str(tmp_path / "copy"), "ann").startswith("ann (desk): turn 1 is open")
    assert main(["backup", str(tmp_path / "s"), str(tmp_path / "copy")]) == 4
    assert "not an empty folder" in capsys.readouterr().err
    assert main(["backup", str(tmp_path / "none"), str(tmp_path / "other")]) == 4
    assert not (tmp_path / "none").exists() and not (tmp_path / "other").exists()
