"""A loop that never rests stands aside for the writer's thread, which needs Python's lock for every row."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.testing

from callboard.storage.engines import lmdb_thread
from callboard.storage.engines.lmdb_thread import WriterThread
from callboard.storage.opening import open_store

LONG_S = 60.0
"""Longer than a test may take: who waits so long for something that does not come is found out."""
A_WHILE_S = 0.05
"""Many passes of a loop that is free to make them."""
PATIENCE_S = 5.0
"""How long a loop may take to come to rest."""


class Spinner:
    """A loop that never rests, seen from the thread."""

    def __init__(self) -> None:
        self.passes = 0
        self._moved = threading.Event()

    async def run(self) -> None:
        while True:
            self.passes += 1
            self._moved.set()
            await trio.lowlevel.checkpoint()

    def moves(self, longest_s: float = LONG_S) -> bool:
        """Whether another pass is made by then."""
        self._moved.clear()
        return self._moved.wait(longest_s)

    def stands(self) -> bool:
        """Whether the loop comes to rest."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            if not self.moves(A_WHILE_S):
                return True
        return False


@contextmanager
def writer() -> Generator[WriterThread]:
    thread = WriterThread("a writer")
    try:
        yield thread
    finally:
        thread.stop()


async def beside(spinner: Spinner, job: Callable[[Callable[[], None]], None]) -> None:
    """Run the job while the spinner spins."""
    with writer() as thread:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(spinner.run)
            await trio.lowlevel.checkpoint()
            await thread.run(job)
            nursery.cancel_scope.cancel()


async def test_a_busy_loop_stands_aside_while_rows_are_put(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_thread, "ASIDE_S", LONG_S)
    spinner, seen = Spinner(), list[bool]()

    def job(rows_are_put: Callable[[], None]) -> None:
        seen.append(spinner.moves(A_WHILE_S))
        rows_are_put()
        seen.append(spinner.moves())

    await beside(spinner, job)
    assert seen == [False, True], "it goes on as soon as only the disk is left to wait for"


async def test_the_other_tasks_of_the_same_pass_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass of many agents takes long enough for the thread to be in want of the lock again and again."""
    monkeypatch.setattr(lmdb_thread, "ASIDE_S", LONG_S)
    ran, going = threading.Event(), trio.Event()

    async def other() -> None:
        await going.wait()
        ran.set()

    def job(rows_are_put: Callable[[], None]) -> None:
        ran.clear()
        assert not ran.wait(A_WHILE_S)
        rows_are_put()

    async def commit() -> None:
        await going.wait()
        await thread.run(job)

    with writer() as thread:
        async with trio.open_nursery() as nursery:
            for task in (other, other, commit, other, other):  # trio turns the order around as it likes
                nursery.start_soon(task)
            await trio.testing.wait_all_tasks_blocked()
            going.set()


async def test_it_stands_aside_for_a_bounded_time_and_then_goes_on_for_as_long() -> None:
    """A transaction of many rows, or one that waits for another process, must not stop the loop."""
    spinner, seen = Spinner(), list[bool]()

    def job(rows_are_put: Callable[[], None]) -> None:
        seen.extend(spinner.moves() for _ in range(3))
        rows_are_put()

    await beside(spinner, job)
    assert seen == [True, True, True]


async def test_a_loop_that_became_busy_later_stands_aside_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_thread, "ASIDE_S", 0.001)
    spinner, seen = Spinner(), list[bool]()

    def job(rows_are_put: Callable[[], None]) -> None:
        seen.append(spinner.moves())  # the first time is over
        monkeypatch.setattr(lmdb_thread, "ASIDE_S", LONG_S)
        seen.append(spinner.stands())
        rows_are_put()

    await beside(spinner, job)
    assert seen == [True, True]


async def test_a_busy_loop_lets_a_thread_answer_that_was_at_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_thread, "GLANCE_S", LONG_S)
    spinner, seen = Spinner(), list[bool]()

    def job(rows_are_put: Callable[[], None]) -> None:
        rows_are_put()
        seen.append(spinner.stands())

    await beside(spinner, job)
    assert seen == [True]


async def test_a_loop_that_sleeps_is_not_held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_thread, "GLANCE_S", LONG_S)
    woken = threading.Event()

    async def sleep() -> None:
        for _ in range(2):
            await trio.sleep(A_WHILE_S / 2)
        woken.set()

    def job(rows_are_put: Callable[[], None]) -> None:
        rows_are_put()
        assert woken.wait(LONG_S / 2)

    with writer() as thread:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleep)
            await thread.run(job)


async def test_what_a_job_raises_comes_out_and_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows will never be put: the loop must not wait for that."""
    monkeypatch.setattr(lmdb_thread, "ASIDE_S", LONG_S)

    def job(_: Callable[[], None]) -> None:
        raise ValueError("no")

    with writer() as thread:
        with trio.fail_after(LONG_S / 2), pytest.raises(ValueError, match="no"):
            await thread.run(job)
        await thread.run(lambda rows_are_put: rows_are_put())


async def test_opening_a_store_and_closing_it_are_not_left_to_luck_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes the lock some dozens of times."""
    monkeypatch.setattr(lmdb_thread, "ASIDE_S", LONG_S)
    spinner = Spinner()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(spinner.run)
        await trio.lowlevel.checkpoint()
        async with open_store(tmp_path):
            opened = spinner.passes
        closed = spinner.passes - opened
        nursery.cancel_scope.cancel()
    assert max(opened, closed) < 20, "a loop that is free makes hundreds meanwhile"


@contextmanager
def handler_that_raises() -> Generator[Callable[[], None]]:
    """What sends the signal."""

    def raises(number: int, frame: object) -> None:
        raise RuntimeError("from a handler")

    main = threading.main_thread().ident
    assert main is not None
    before = signal.signal(signal.SIGUSR1, raises)
    try:
        yield partial(signal.pthread_kill, main, signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_a_signal_handler_that_raises_in_the_flush_costs_no_commit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """trio reports what is raised in a hook, and does not call it again."""
    monkeypatch.setattr(lmdb_thread, "GLANCE_S", LONG_S)
    spinner = Spinner()
    with handler_that_raises() as send:

        def job(rows_are_put: Callable[[], None]) -> None:
            rows_are_put()
            assert spinner.stands()
            send()
            assert spinner.moves()

        await beside(spinner, job)
    assert "from a handler" in caplog.text


async def test_what_a_signal_handler_raises_while_rows_are_put_is_raised_when_the_job_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The thread would wake a task that is somewhere else by then, and take the whole loop down."""
    monkeypatch.setattr(lmdb_thread, "ASIDE_S", LONG_S)
    done: list[str] = []
    with handler_that_raises() as send, writer() as thread:

        def job(_: Callable[[], None]) -> None:
            send()
            time.sleep(A_WHILE_S)  # the loop's thread is in the handler
            done.append("job")

        with pytest.raises(RuntimeError, match="from a handler"):
            await thread.run(job)
        assert done == ["job"]
        assert await thread.run(lambda _: "again") == "again"


def test_ctrl_c_waits_until_the_job_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_thread, "ASIDE_S", LONG_S)
    done: list[str] = []

    def job(rows_are_put: Callable[[], None]) -> None:
        signal.raise_signal(signal.SIGINT)
        time.sleep(A_WHILE_S)
        done.append("job")

    async def main() -> None:
        with writer() as thread:
            await thread.run(job)
            done.append("loop")
            await trio.lowlevel.checkpoint()

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert done == ["job", "loop"]
