"""The writer's thread: takes finished jobs, one at a time, and always answers.

One thread for the life of a store: a job costs a queue and one wake-up of the loop, where a pool would cost more. The task
that waits cannot be cancelled while its job runs, since a transaction cannot be taken back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

import outcome
import trio

Job = Callable[[], None]
_Entry = tuple[Job, trio.lowlevel.Task, trio.lowlevel.TrioToken]


class WriterThread:
    """Runs jobs in order; started by the first one."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[_Entry | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    async def run(self, job: Job) -> None:
        """Run the job in the thread; whatever it raises is raised here."""
        if self._thread is None:
            # A daemon: a program that ends without closing its store must not hang. A transaction cut so is a crash,
            # and the store survives crashes.
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put((job, trio.lowlevel.current_task(), trio.lowlevel.current_trio_token()))
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)

    def stop(self) -> None:
        """End the thread when its jobs are done, and wait for that."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            job, task, token = entry
            result = outcome.capture(job)
            try:
                token.run_sync_soon(trio.lowlevel.reschedule, task, result)
            except trio.RunFinishedError:
                continue  # the loop is gone, and with it everybody who could hear the answer
