"""Servers that are programs: killed in the middle of a call, stubborn, chatty, broken; and nothing of them is left behind."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp_world import results

from callboard import Agent, System
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.mcp import McpServer, programs
from callboard.net.mcp.lines import receive_messages

PROGRAM = str(Path(__file__).parent / "mcp_programs.py")


def program(role: str = "shop", *words: str, **options: Any) -> McpServer:
    return McpServer.stdio("shop", sys.executable, PROGRAM, role, *words, **options)


def agent_of(server: McpServer, *names: str) -> Agent[Any, Any]:
    """It calls these tools one after the other, one a turn."""
    replies = [reply for number, name in enumerate(names) for reply in (Reply.tools((f"c{number}", name, {})), Reply.text("ok"))]
    return Agent("buyer", model=ScriptedModel(replies), plugins=[server])


async def until(condition: Callable[[], bool]) -> None:
    """Real programs take their time; nobody tells when they are through."""
    with trio.fail_after(120):
        while not condition():  # noqa: ASYNC110
            await trio.sleep(0.01)


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def values(result: Any) -> list[str]:
    return [block.text for block in result.content]


async def test_c246_a_program_and_all_it_started_end_with_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    async with System.open(":memory:"):
        pass  # what the first system imports and opens stays
    tasks, files = trio.lowlevel.current_statistics().tasks_living, open_files()
    agent = agent_of(program(env={"SHOP": "open"}), "shop__family", "shop__surroundings", "shop__picture")
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        for _ in range(3):
            assert (await ref.ask("go")).ok
        family, surroundings, picture = await results(ref)
        pids = [int(pid) for pid in values(family)]
        assert len(pids) == 2 and all(map(lives, pids))
        assert {"PATH", "SHOP"} <= set(values(surroundings)) and "OPENAI_API_KEY" not in values(surroundings)
        assert await system.store.blob(picture.content[0].blob) == b"picture"
    assert not any(map(lives, pids))
    assert trio.lowlevel.current_statistics().tasks_living == tasks
    await until(lambda: open_files() <= files)


async def test_killed_in_a_call_it_costs_one_error_and_is_started_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "callboard.mcp")
    agent = agent_of(program(), "shop__family", "shop__hang", "shop__family")
    async with System.open(":memory:", agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        await ref.ask("go")
        pids = [int(pid) for pid in values((await results(ref))[0])]
        receipt = await ref.followup("hang")
        await until(lambda: "this is not a message" in caplog.text)  # it is in the middle of it, and said so
        os.kill(pids[0], signal.SIGKILL)
        assert (await ref.outcome(receipt.message_id, timeout=120)).ok
        await ref.ask("go")
        _, hung, again = await results(ref)
        assert hung.error == "MCP_LOST"
        assert not any(map(lives, pids)), "what it had started is gone, too"
        assert all(map(lives, map(int, values(again))))
    assert "is down" in caplog.text and "this is not a message" in caplog.text


async def test_one_that_hears_nothing_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("callboard.net.mcp.programs.GRACE_S", 0.1)
    file = tmp_path / "pid"
    async with System.open(":memory:", plugins=[program("stubborn", str(file))]):
        await until(lambda: file.exists() and bool(file.read_text()))
        assert lives(int(file.read_text()))
    assert not lives(int(file.read_text()))


async def test_one_that_prints_without_end_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("callboard.net.mcp.programs.GRACE_S", 0.1)
    monkeypatch.setattr(programs, "receive_messages", partial(receive_messages, longest=1_000_000))
    file = tmp_path / "pid"
    server = program("chatty", str(file))
    async with System.open(":memory:", plugins=[server]):
        await until(lambda: "more than 1000000 bytes" in caplog.text)
    assert "printed what is no message (1 so far): b'Welcome!'" in caplog.text and not lives(int(file.read_text()))


async def test_why_it_does_not_come_up_is_known() -> None:
    broken, missing = program("broken"), McpServer.stdio("shop", "/no/such/program")
    async with System.open(":memory:", plugins=[broken, missing]):
        await until(lambda: "licence" in broken.problem and "FileNotFoundError" in missing.problem)
        assert broken.problem.endswith("it last said: cannot read the licence file")
