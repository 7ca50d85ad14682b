"""C234, C246, C274: a sweep in which a commit fails, what a scenario leaves behind, and how soon a follower sees a chunk."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import trio
import trio.testing
from helpers import check, make, opened, scripted

from callboard import System, delegate, tool
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import CommitFailed
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.testing import FaultyStore

AGENTS = 6


def answers_all() -> ScriptedModel:
    return ScriptedModel(lambda request: Reply.text("done"))


async def test_c234_a_commit_that_fails_in_a_recovery_sweep_forgets_nobody() -> None:
    store = MemoryStore()
    hung = make(ScriptedModel(lambda request: Reply.hang("partial")))
    async with System.open(store, agents=[hung], grace=0) as system:
        for number in range(AGENTS):
            await (await system.spawn(hung, id=f"t{number}")).followup("go", message_id="m")
        await trio.testing.wait_all_tasks_blocked()
    faulty = FaultyStore(store)
    faulty.fail_next(CommitFailed("the disk hiccups"))
    healed = make(answers_all())
    async with System.open(faulty, agents=[healed]) as system:
        await trio.testing.wait_all_tasks_blocked()
        for number in range(AGENTS):  # whoever was in the commit that failed is read again at this access
            ref = await system.get(f"t{number}")
            with trio.fail_after(60):
                await ref.outcome("m")
    await check(store)
    for number in range(AGENTS):
        types = [record.type async for record in store.read(f"t{number}")]
        assert types.count("turn/end") == 1


def leftovers() -> tuple[int, int, list[str]]:
    """Trio tasks, open files, and threads of this process."""
    files = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    return trio.lowlevel.current_statistics().tasks_living, files, sorted(thread.name for thread in threading.enumerate())


@tool
async def program() -> str:
    """Runs a program."""
    return (await trio.run_process(["true"], capture_stdout=True)).stdout.decode() or "ran"


async def test_c246_a_scenario_leaves_no_task_file_or_thread(tmp_path: Path) -> None:
    await trio.to_thread.run_sync(int)  # the idle thread that trio itself keeps is there before, too
    child = make(answers_all(), name="child")
    lead_model = scripted(
        Reply.tools(("c1", "child", {"task": "x"}), ("c2", "program", {})), "done", Reply.hang("and on"), "never"
    )
    lead = make(lead_model, name="lead", tools=[delegate(child), program])
    before = leftovers()
    async with System.open(tmp_path / "state", agents=[lead, child], grace=0) as system:
        ref = await system.spawn(lead, id="lead")
        assert (await ref.ask("go")).ok
        receipt = await ref.followup("hang")
        async for delta in ref.deltas(after=receipt.seq):
            if delta.text:
                break
    after = leftovers()
    assert (after[0], after[1]) == (before[0], before[1])
    assert [name for name in after[2] if "callboard" in name] == []


async def test_c274_a_follower_sees_a_chunk_soon_and_it_is_on_disk_by_then(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryStore()
    async with opened(make(scripted(Reply.hang("a long answer begins"))), store) as (_, ref):
        receipt = await ref.followup("go")
        start = trio.current_time()
        async for delta in ref.deltas(after=receipt.seq):
            if delta.text:
                assert trio.current_time() - start <= 0.011
                kept = [record.seq async for record in store.copy().read("a", types={"assistant/chunk"})]
                assert delta.seq in kept  # a kill at this moment loses nothing that was seen
                break
        await ref.cancel()
        await ref.wait_idle()
