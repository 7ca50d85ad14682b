"""How a system behind an asyncio loop opens and ends: errors, cancellation, interrupts, a lost loop; no thread is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import trio
from looped import make, on_loop

from callboard import System as TrioSystem
from callboard import tool
from callboard.actors.testing import Reply
from callboard.net.aio import System
from callboard.net.aio.host import Host, hosted
from callboard.storage import StoreInUse, open_store, verify
from callboard.storage.engines.memory import MemoryStore


def test_an_error_in_the_block_is_that_error_and_leaves_turns_for_the_next_start() -> None:
    store, agent = MemoryStore(), make(Reply.hang("..."), "done")

    async def main() -> None:
        with pytest.raises(ValueError, match="mine"):
            async with System.open(store, agents=[agent], grace=1000) as system:
                ref = await system.spawn(agent, id="a")
                await ref.followup("go", message_id="m")
                async for delta in ref.deltas():
                    if delta.kind == "text":
                        raise ValueError("mine")

    on_loop(main)

    async def again() -> str:
        async with TrioSystem.open(store, agents=[agent]) as system:
            return (await (await system.get("a")).outcome("m")).text

    assert trio.run(again) == "done"


def test_a_store_that_another_owns_cannot_be_opened(tmp_path: Path) -> None:
    async def main() -> None:
        async with System.open(tmp_path / "state"):
            with pytest.raises(StoreInUse):
                async with System.open(tmp_path / "state"):
                    raise AssertionError("opened")

    on_loop(main)


def test_cancelled_while_it_opens() -> None:
    opening = threading.Event()

    class Slow:
        """A manager that takes its time."""

        ended = False

        async def __aenter__(self) -> None:
            opening.set()
            try:
                await trio.sleep_forever()
            finally:
                self.ended = True

        async def __aexit__(self, *error: object) -> None: ...

    async def main() -> None:
        for wait in (True, False):
            slow = Slow()

            async def enter(slow: Any = slow) -> None:
                async with hosted(slow, Host("something slow")):
                    raise AssertionError("opened")

            task = asyncio.create_task(enter())
            await asyncio.sleep(0)
            if wait:
                await asyncio.to_thread(opening.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert slow.ended or not wait

    on_loop(main)


@pytest.mark.parametrize("busy", [True, False], ids=["in a call", "elsewhere"])
def test_what_ends_the_system_ends_the_block(busy: bool) -> None:
    @tool(replay="safe")
    async def leave() -> str:
        """End the process."""
        raise SystemExit(3)

    async def main() -> None:
        agent = make(Reply.tools(("c1", "leave", {})), tools=[leave])
        with pytest.raises(SystemExit):
            async with System.open(":memory:", agents=[agent]) as system:
                ref = await system.spawn(agent, id="a")
                await ref.followup("go")
                await (ref.wait_idle() if busy else asyncio.sleep(1000))
                await asyncio.sleep(1000)
        task = asyncio.current_task()
        assert task is not None and not task.cancelling()
        await asyncio.sleep(0)

    on_loop(main)


def test_cancelled_while_it_closes_it_takes_no_grace() -> None:
    async def main() -> None:
        agent, closing = make(Reply.hang("...")), asyncio.Event()

        async def program() -> None:
            async with System.open(":memory:", agents=[agent], grace=1000) as system:
                ref = await system.spawn(agent, id="a")
                await ref.followup("go")
                closing.set()

        task = asyncio.create_task(program())
        await closing.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    on_loop(main)


ABANDONED = """
import asyncio, sys, threading
import trio
from callboard import Agent
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.aio import System, host
from callboard.storage import open_store, verify

host.LOOK_S = 0.01
agent = Agent("demo", model=ScriptedModel([Reply.hang("thinking")]), plugins=[])
manager = System.open(sys.argv[1], agents=[agent], grace=1000)

async def begin():
    system = await manager.__aenter__()
    ref = await system.spawn(agent, id="a")
    await ref.followup("go")

loop = asyncio.new_event_loop()
loop.run_until_complete(begin())
loop.close()
for thread in threading.enumerate():
    if thread.name.startswith("callboard: "):
        thread.join()

async def look():
    async with open_store(sys.argv[1]) as store:
        return (await verify(store)).ok

print("closed" if trio.run(look) else "broken", flush=True)
"""


def test_a_loop_that_is_closed_meanwhile_closes_the_system(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-c", ABANDONED, str(tmp_path / "state")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "closed\n" and "is closed, so that is closed, too" in done.stderr


INTERRUPTED = """
import asyncio, sys
from callboard import Agent
from callboard.actors.testing import Reply, ScriptedModel
from callboard.net.aio import System

agent = Agent("demo", model=ScriptedModel([Reply.hang("thinking")]), plugins=[])

async def main():
    async with System.open(sys.argv[1], agents=[agent], grace=1000) as system:
        ref = await system.spawn(agent, id="a")
        await ref.followup("go", message_id="m")
        async for delta in ref.deltas():
            print(delta.text, flush=True)

asyncio.run(main())
"""


def test_ctrl_c_suspends_what_runs(tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-P", "-W", "error", "-c", INTERRUPTED, str(state)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "thinking\n"
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(120) == -signal.SIGINT
        assert process.stderr.read().rstrip().endswith("KeyboardInterrupt")

    async def look() -> list[str]:
        async with open_store(state, readonly=True) as store:
            assert (await verify(store)).ok
            return [record.type async for record in store.read("a")]

    assert trio.run(look)[-1] == "turn/suspend"
