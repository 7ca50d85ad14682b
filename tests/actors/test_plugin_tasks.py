"""Tasks that plugins start in a system: beside the agents, contained, and over before `on_stop`."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
import trio
import trio.testing
from helpers import make, scripted

from callboard import Plugin, System
from callboard.actors.initiator import current_initiator

VARIABLE = contextvars.ContextVar("variable", default="nothing")


class Keeper(Plugin):
    """Keeps something in a task of the system, and notes what happens in which order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    async def on_start(self, system: System) -> None:
        VARIABLE.set("of whoever opens")
        system.start_task(self.keep, "a thing", name="keeper")

    async def keep(self, thing: str) -> None:
        """The task."""
        self.seen.append((thing, VARIABLE.get(), current_initiator()))
        try:
            await trio.sleep_forever()
        finally:
            self.seen.append("ended")

    async def on_stop(self) -> None:
        self.seen.append("stopped")


async def test_a_task_lives_as_long_as_turns_do_and_in_a_context_of_its_own() -> None:
    keeper = Keeper()
    agent = make(scripted("hello"), plugins=[keeper])
    async with System.open(":memory:", agents=[agent]) as system:
        assert (await (await system.spawn(agent, id="a")).ask("hi")).text == "hello"
        assert keeper.seen == [("a thing", "nothing", None)]
    assert keeper.seen[1:] == ["ended", "stopped"]


async def test_a_task_that_fails_is_told_of_and_ends_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("broken")

    agent = make(scripted("hello"))
    async with System.open(":memory:", agents=[agent]) as system:
        system.start_task(fail, name="something")
        assert (await (await system.spawn(agent, id="a")).ask("hi")).text == "hello"
    assert "the task 'something' of the system failed" in caplog.text and "broken" in caplog.text


async def test_a_task_that_fails_as_it_is_cancelled_keeps_no_system_open(caplog: pytest.LogCaptureFixture) -> None:
    async def fail_late() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("broken")

    async with System.open(":memory:") as system:
        system.start_task(fail_late, name="something")
        await trio.testing.wait_all_tasks_blocked()
    assert "failed as it was cancelled" in caplog.text and "broken" in caplog.text


async def test_what_is_no_error_ends_the_system() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(BaseExceptionGroup) as raised:
        async with System.open(":memory:") as system:
            system.start_task(leave, name="something")
            await trio.sleep_forever()
    assert raised.group_contains(SystemExit)
