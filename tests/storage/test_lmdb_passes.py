"""What a commit costs in passes of the scheduler, which an agent alone waits for one after the other."""

from __future__ import annotations

from pathlib import Path

import trio

from callboard.storage import Store, open_store
from callboard.storage.events import LogCreated, TurnStart
from callboard.storage.records import FORMAT, Record
from callboard.storage.store import Batch, Summary

TIME = 1_764_500_000_000


class Steps(trio.abc.Instrument):
    """How often one task was run."""

    def __init__(self, task: trio.lowlevel.Task) -> None:
        self._task, self.count = task, 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += task is self._task


async def begun(store: Store) -> int:
    epoch = await store.own("a")
    first = Record(0, TIME, LogCreated(format=FORMAT, agent="a", name="a"))
    assert list(await store.commit([[Batch("a", epoch, -1, [first], Summary(name="a"))]])) == [None]
    return epoch


def one_more(epoch: int) -> list[Batch]:
    return [Batch("a", epoch, 0, [Record(1, TIME, TurnStart(turn=1))], Summary(name="a", turn=1))]


async def test_a_commit_that_nobody_is_before_is_suspended_once(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        epoch = await begun(store)
        steps = Steps(trio.lowlevel.current_task())
        trio.lowlevel.add_instrument(steps)
        await store.commit([one_more(epoch)])
        assert steps.count == 1
        await store.commit([])
        assert steps.count == 2, "one with nothing to write is a checkpoint, too"
        trio.lowlevel.remove_instrument(steps)


async def test_a_commit_whose_caller_was_cancelled_before_writes_nothing(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        epoch = await begun(store)
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.commit([one_more(epoch)])
        assert scope.cancelled_caught
        head = await store.head("a")
        assert head is not None and head.last == 0


async def test_commits_at_once_are_made_one_after_another(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        epoch, ends = await begun(store), list[str]()

        async def commit(name: str) -> None:
            await store.commit([one_more(epoch)] if name == "first" else [])
            ends.append(name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, "first")
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(commit, "second")
        assert ends == ["first", "second"]
