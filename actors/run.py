"""run_sync: one question to one agent, for scripts and notebooks that have no event loop of their own."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import trio

from .agent import Agent
from .models.model import Model
from .system import System
from .values import Outcome

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Out = TypeVar("Out", default=str)


def run_sync(
    agent: Agent[Any, Out],
    text: str,
    *,
    store: str | os.PathLike[str] = ":memory:",
    id: str | None = None,
    message_id: str | None = None,
    deps: Any = None,
    models: Mapping[str, Model] | None = None,
    timeout: float | None = None,
) -> Outcome[Out]:
    """Ask an agent and wait for the outcome. In memory unless `store` is a folder; with an `id` and a `message_id` it is
    durable: run again after a crash, it goes on, and run once more, it reads the answer.

    Where an event loop runs already (a notebook), the system runs in a thread of its own.

    Raises:
        AskTimeout: it was not over in `timeout` seconds.
        StoreInUse: another process owns the folder.
    """

    async def main() -> Outcome[Out]:
        async with System.open(store, agents=[agent], deps=deps, models=models) as system:
            if store == ":memory:":
                system.refuse_questions()
            ref = await system.spawn(agent, id=id)
            return await ref.ask(text, message_id=message_id, timeout=timeout)

    return _in_thread(main) if _loop_is_running() else trio.run(main)


def _loop_is_running() -> bool:
    if trio.lowlevel.in_trio_run():
        return True
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_thread(main: Any) -> Any:
    done: list[Any] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(trio.run(main))
        except BaseException as error:  # raised again in the caller's thread
            failed.append(error)

    thread = threading.Thread(target=run, name="callboard")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]
