"""Programs run by tools: whatever ends them, nothing of their group is left. Real processes, real time."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from callboard.actors.testing.contexts import tool_context
from callboard.actors.tools import Completed, process, run_process
from callboard.storage.errors import ToolError

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")


def living(group: int) -> list[int]:
    """Processes of the group that are more than zombies waiting for init."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, process_group = path.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(process_group) == group and state != "Z":
            found.append(int(path.parent.name))
    return found


async def gone(group: int) -> None:
    """Returns when nothing of the group is left: the kernel takes a moment between SIGKILL and the end."""
    with trio.fail_after(60):
        while living(group):  # noqa: ASYNC110  (the kernel tells nobody)
            await trio.sleep(0.005)


async def group_in(file: Path) -> int:
    """The group's number, once the program has written it."""
    with trio.fail_after(60):
        while not (text := written(file)).endswith("\n"):  # noqa: ASYNC110  (another process writes it)
            await trio.sleep(0.005)
    return int(text)


def written(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def test_output_and_code_come_back() -> None:
    done = await run_process("sh", "-c", "echo out; echo err >&2; exit 3")
    assert done == Completed(3, "out\n", "err\n")
    assert not done.ok
    assert (await run_process("true")).ok


async def test_input_environment_and_folder_are_given(tmp_path: Path) -> None:
    done = await run_process("/bin/sh", "-c", 'cat; echo "$X"; pwd', input="in\n", env={"X": "1"}, cwd=tmp_path)
    assert done.stdout == f"in\n1\n{tmp_path}\n"


async def test_without_input_a_reader_sees_the_end() -> None:
    with trio.fail_after(60):
        assert (await run_process("cat")).stdout == ""


async def test_a_program_may_ignore_its_input() -> None:
    assert (await run_process("true", input=b"x" * 1_000_000)).returncode == 0


async def test_a_program_that_does_not_exist_says_so() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        await run_process("no-such-program")


async def test_death_by_a_signal_is_its_number() -> None:
    assert (await run_process("sh", "-c", "kill -9 $$")).returncode == -signal.SIGKILL


async def test_output_is_bounded_and_keeps_both_ends() -> None:
    done = await run_process("sh", "-c", "echo first; yes | head -c 3000000; echo last", output_limit=1000)
    assert done.truncated
    assert done.stdout.startswith("first\n")
    assert done.stdout.endswith("last\n")
    assert f"[{3_000_011 - 1000} bytes left out]" in done.stdout
    exact = await run_process("printf", "0123456789", output_limit=10)
    assert exact == Completed(0, "0123456789")
    assert (await run_process("printf", "0123456789", output_limit=0)).stdout == "\n[10 bytes left out]\n"


async def test_what_is_no_utf8_is_replaced() -> None:
    assert (await run_process("printf", r"a\377b")).stdout == "a�b"


async def test_c130_a_cancelled_group_is_gone(tmp_path: Path) -> None:
    file = tmp_path / "group"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: tool_context().process("sh", "-c", f"sleep 100 & sleep 100 & echo $$ > {file}; wait"))
        group = await group_in(file)
        assert len(living(group)) == 3
        nursery.cancel_scope.cancel()
    await gone(group)


async def test_c130_a_group_that_ignores_sigterm_is_killed_after_the_grace_time(tmp_path: Path) -> None:
    file = tmp_path / "group"
    script = f"trap '' TERM; sh -c 'while :; do sleep 0.1; done' & echo $$ > {file}; while :; do sleep 0.1; done"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run_process("sh", "-c", script, grace_s=0.2))
        group = await group_in(file)
        nursery.cancel_scope.cancel()
    await gone(group)


async def test_sigterm_comes_first_and_lets_a_program_clean_up(tmp_path: Path) -> None:
    file, cleaned = tmp_path / "group", tmp_path / "cleaned"
    script = f"trap 'touch {cleaned}; exit 0' TERM; echo $$ > {file}; while :; do sleep 0.02; done"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run_process("sh", "-c", script, grace_s=60))
        await group_in(file)
        nursery.cancel_scope.cancel()
    assert cleaned.exists()


async def test_the_others_of_a_group_may_clean_up_when_their_leader_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_REST_S", 60)
    file, cleaned = tmp_path / "group", tmp_path / "cleaned"
    child = f"trap 'sleep 0.05; touch {cleaned}; exit 0' TERM; echo $PPID > {file}; while :; do sleep 0.02; done"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run_process("sh", "-c", f'sh -c "{child.replace("$", chr(92) + "$")}" & wait'))
        await group_in(file)
        nursery.cancel_scope.cancel()
    assert cleaned.exists()


async def test_time_over_kills_the_group_and_tells_the_model_what_was_printed(tmp_path: Path, mock_clock: MockClock) -> None:
    mock_clock.rate = 1  # real time, but for jumps
    file = tmp_path / "group"

    async def let_time_pass() -> None:
        await group_in(file)
        while True:  # the program may be ahead of the task that started it, and is only then waited for
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(1000)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(let_time_pass)
        with pytest.raises(ToolError) as caught:
            await run_process("sh", "-c", f"echo halfway; echo $$ > {file}; sleep 1000 & wait", timeout=1000)
        nursery.cancel_scope.cancel()
    assert caught.value.code == "TIMEOUT"
    assert str(caught.value) == "sh was not done after 1000 s and was killed. It last printed: halfway\n"
    await gone(await group_in(file))


async def test_what_a_finished_leader_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    file = tmp_path / "group"
    with trio.fail_after(60):
        done = await run_process("sh", "-c", f"echo $$ > {file}; sleep 100 & echo done")
    assert done.stdout == "done\n"
    await gone(await group_in(file))


async def test_no_zombie_is_left() -> None:
    await run_process("true")
    with trio.move_on_after(0.1):
        await run_process("sleep", "100")
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)  # noqa: ASYNC222  (does not wait)


async def test_who_leaves_the_session_does_not_hold_the_call(tmp_path: Path) -> None:
    file = tmp_path / "escaped"
    code = (
        f"import os, time\nif os.fork() == 0:\n os.setsid()\n print(os.getpid(), file=open({str(file)!r}, 'w'))\n time.sleep(100)"
    )
    with trio.fail_after(60):
        done = await run_process(sys.executable, "-c", code)
    os.kill(await group_in(file), signal.SIGKILL)
    assert done.returncode == 0
