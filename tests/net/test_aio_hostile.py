"""A loop that cancels as it likes, and bodies that raise what nobody should: nothing is left behind, and all goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from looped import make, on_loop

from callboard import tool
from callboard.actors.testing import Reply
from callboard.net.aio import System


def test_a_storm_of_cancels_leaves_nothing_that_waits() -> None:
    """Calls of every kind, each cancelled once or several times at another moment of its way across."""

    def script(request: Any) -> Reply:
        return Reply.text("words and words", parts=10)

    async def call(ref: Any, number: int) -> None:
        if number % 3 == 0:
            await ref.ask("hi")
        elif number % 3 == 1:
            receipt = await ref.followup("hi")
            async for delta in ref.deltas(after=receipt.seq):
                if delta.kind == "end":
                    return
        else:
            await ref.wait_idle()

    async def cancelled(ref: Any, number: int) -> None:
        task = asyncio.create_task(call(ref, number))
        for _ in range(number % 17):
            await asyncio.sleep(0)
        for _ in range(1 + number % 3):
            task.cancel()
            await asyncio.sleep(0)
        (ended,) = await asyncio.gather(task, return_exceptions=True)
        assert ended is None or isinstance(ended, asyncio.CancelledError), ended

    async def main() -> None:
        tasks, agent = asyncio.all_tasks(), make(script)
        async with System.open(":memory:", agents=[agent], grace=0) as system:
            refs = [await system.spawn(agent, id=f"a{n}") for n in range(5)]
            async with asyncio.TaskGroup() as group:
                for number in range(150):
                    group.create_task(cancelled(refs[number % 5], number))
            for ref in refs:
                await ref.cancel("user")
                await ref.wait_idle()
                assert (await ref.ask("still there?")).text == "words and words"
            assert system.statistics()["waits"] == system.statistics()["running"] == 0
            assert asyncio.all_tasks() == tasks

    on_loop(main)


class Odd(Exception):
    """An error that cannot be copied."""

    def __reduce__(self) -> Any:
        raise RuntimeError("not me")


@pytest.mark.parametrize(
    "error",
    [
        Odd("a"),
        ExceptionGroup("g", [Odd("a"), ValueError("b")]),
        StopIteration(1),
        StopAsyncIteration(),
        asyncio.CancelledError("mine"),
    ],
    ids=["odd", "group", "stop", "stop-async", "cancelled"],
)
def test_what_a_body_on_the_loop_raises_is_one_error_result(error: BaseException) -> None:
    @tool(loop="asyncio")
    async def bad() -> str:
        """Bad."""
        raise error

    async def main() -> None:
        agent = make(Reply.tools(("c1", "bad", {})), "after", tools=[bad])
        async with System.open(":memory:", agents=[agent]) as system:
            ref = await system.spawn(agent, id="a")
            assert (await ref.ask("go")).result() == "after"
            results: list[Any] = [record.event async for record in ref.read(types={"tool/result"})]
            assert [result.error for result in results] == ["TOOL_ERROR"]

    on_loop(main)
