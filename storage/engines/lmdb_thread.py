"""The writer's thread: takes finished jobs, one at a time, and always answers; and the manners of the loop towards it.

One thread for the life of a store, which opens and closes it, too: a job costs a queue and one wake-up of the loop, where a pool
would cost more. The task that waits cannot be cancelled while its job runs, since a transaction cannot be taken back.

py-lmdb gives up Python's lock for each row that is put, and asks for it again. A loop that never rests takes it back before the
thread is awake: it lets go for a few microseconds at each pass of its scheduler, and who waits may insist only when nobody let
go for a whole switch interval (5 ms). So on a machine with a core to spare every row waits for luck, for half a second on the
average. Therefore the loop *stands aside*: it blocks, for a bounded time, when it hands a job over, and while it is busy, until
the rows are put. The flush behind them needs no lock; during it a busy loop stands aside for an instant now and then, so that the
thread can answer. A loop that sleeps is in nobody's way, and does nothing of this.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Final, TypeVar, cast

import outcome
import trio

ASIDE_S: Final = 0.005
"""How long the loop stands aside for rows at once, at most; then it goes on for as long."""
GLANCE_S: Final = 0.0001
"""How long it does so, at least, for a thread that waits for the disk: what a thread needs to wake up. A fifth of the time at
most, but for the first time."""
PAUSE_S: Final = 0.0003
"""How long it goes on before it does so, and then twice as long each time: disks and machines differ by an order of magnitude."""

T = TypeVar("T")
Job = Callable[[Callable[[], None]], T]
"""Gets what it is to call when its rows are put and only the disk is left to wait for."""


class WriterThread:
    """Runs jobs in order; started by the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[_Errand | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    @trio.lowlevel.enable_ki_protection
    async def run(self, job: Job[T]) -> T:
        """Run the job in the thread; what it answers is the answer, and whatever it raises is raised here."""
        if self._thread is None:
            # A daemon: a program that ends without closing its store must not hang. A transaction cut so is a crash,
            # and the store survives crashes.
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        errand = _Errand(job)
        trio.lowlevel.add_instrument(errand)
        try:
            return cast(T, await self._answer(errand))
        finally:
            with suppress(KeyError):  # trio drops one in which somebody's signal handler raised
                trio.lowlevel.remove_instrument(errand)

    async def _answer(self, errand: _Errand) -> Any:
        self._queue.put(errand)
        try:
            errand.stand_aside()
        finally:
            # Whatever a signal handler raised there: the thread will wake this task, which has to be asleep.
            answer = await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
        return answer

    def stop(self) -> None:
        """End the thread when its jobs are done, and wait for that."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (errand := self._queue.get()) is not None:
            errand.run()


class _Errand(trio.abc.Instrument):
    """One job on its way: the loop's side, which trio calls at each pass, and the thread's."""

    def __init__(self, job: Job[object]) -> None:
        self._job, self._task, self._token = job, trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()
        # Taken here, released by the thread: whoever gets one in time has seen the thread come so far.
        self._put, self._answered = threading.Lock(), threading.Lock()
        self._put.acquire()
        self._answered.acquire()
        # How far the thread is. It says so itself: a signal may cut short what the loop waits for.
        self._flushing = self._over = False
        self._again, self._pause = 0.0, PAUSE_S

    # -- in the loop

    def __dir__(self) -> list[str]:
        # Trio looks through all names for hooks, at each commit; there is one, and this makes it six times faster.
        return ["before_io_wait"]

    def stand_aside(self) -> None:
        """Leave Python's lock to the thread until its rows are put, or for `ASIDE_S`."""
        longest = ASIDE_S
        self._put.acquire(timeout=longest)
        self._again = time.perf_counter() + (self._pause if self._flushing else longest)

    def before_io_wait(self, timeout: float) -> None:
        """A pass is over; without a `timeout` the next one follows at once."""
        if timeout > 0 or self._over or time.perf_counter() < self._again:
            return
        if not self._flushing:
            self.stand_aside()
        else:
            self._answered.acquire(timeout=max(GLANCE_S, self._pause / 4))
            self._pause = min(2 * self._pause, 4 * ASIDE_S)
            self._again = time.perf_counter() + self._pause

    # -- in the thread

    def run(self) -> None:
        """Do the job, and let the loop know what came of it."""
        result = outcome.capture(self._job, self._rows_are_put)
        try:
            self._token.run_sync_soon(trio.lowlevel.reschedule, self._task, result)
        except trio.RunFinishedError:
            pass  # the loop is gone, and with it everybody who could hear the answer
        finally:
            self._rows_are_put()
            self._over = True
            self._answered.release()

    def _rows_are_put(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._put.release()
