"""Ctrl-C at any instant: it leaves the system as what it is, every log is whole, and the next start goes on."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import trio
from helpers import check, make, order, scripted
from test_shutdown import family
from trio.testing import MockClock, wait_all_tasks_blocked

import callboard
from callboard.actors.models.model import Model, Prepared
from callboard.actors.system import System
from callboard.actors.testing.scripted import Reply
from callboard.actors.tools import ToolContext, tool
from callboard.actors.tools.bodies import innermost
from callboard.storage import chunks as c
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Chunk, Request

PACKAGE = str(Path(callboard.__file__).parent)
STRIDE = 97
"""Lines of our own code between two places that are tried; a prime, so that loops do not hide the rest."""


class Interrupt:
    """A trace function that sends SIGINT at the n-th line of the package's own code, once it is armed."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0
        self.armed = False
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(PACKAGE) and "/tests/" not in frame.f_code.co_filename else None

    def _line(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "line" and self.armed:
            self.seen += 1
            if self.seen == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self._line


async def _life(store: MemoryStore, interrupt: Interrupt | None = None) -> None:
    agent = family()
    async with System.open(store, agents=[agent]) as system:
        ref = await system.spawn(agent, id="a")
        if interrupt is not None:
            interrupt.armed = True
        await ref.followup("one", message_id="m")
        await ref.wait_idle()
        if interrupt is not None:
            interrupt.armed = False


def _interrupted(at: int) -> tuple[MemoryStore, Interrupt]:
    """A life that is interrupted. Whoever else traces (coverage) is put back in the frame it was taken out of, so that what it
    thinks it is in is what it is in."""
    store, interrupt, traced = MemoryStore(), Interrupt(at), sys.gettrace()
    sys.settrace(interrupt)
    try:
        trio.run(_life, store, interrupt)
    except KeyboardInterrupt:
        assert interrupt.where
    else:
        assert not interrupt.where, f"the interrupt at {interrupt.where} was lost"
    finally:
        sys.settrace(traced)
    return store, interrupt


def test_c259_an_interrupt_at_any_line_leaves_whole_logs() -> None:
    at = 1
    while True:
        store, interrupt = _interrupted(at)
        trio.run(check, store)
        trio.run(_life, store)
        trio.run(check, store)
        whole = trio.run(order, store)
        # In a body it is the body's end: the turn is closed with an error. Everywhere else the turn goes on.
        ends = (" SE TE1{completed}", "!TOOL_ERROR) SE TE1{error}")
        assert whole.endswith(ends), f"after an interrupt at {interrupt.where}: {whole}"
        if not interrupt.where:
            return
        at += STRIDE


def test_c259_an_interrupt_in_an_endless_tool_ends_it() -> None:
    store = MemoryStore()

    @tool
    async def loops(ctx: ToolContext[Any]) -> str:
        """Never gives anybody else a turn."""
        signal.raise_signal(signal.SIGINT)
        while True:
            pass

    async def main() -> None:
        agent = make(scripted(Reply.tools(("c1", "loops", ""))), tools=[loops])
        async with System.open(store, agents=[agent]) as system:
            await (await system.spawn(agent, id="a")).ask("one")

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    trio.run(check, store)
    assert trio.run(order, store) == (
        "put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 C* A call(c1) res(c1!TOOL_ERROR) SE TE1{error}"
    )


@trio.lowlevel.enable_ki_protection
async def _interrupt_main_after(seconds: float) -> None:
    await trio.sleep(seconds)
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("times", [1, 2])
def test_c259_an_interrupt_of_a_close_ends_its_grace(times: int) -> None:
    store = MemoryStore()
    seconds: list[float] = []

    async def main() -> None:
        agent = make(scripted(Reply.hang("half")))
        async with trio.open_nursery() as nursery:
            if times == 2:
                nursery.start_soon(_interrupt_main_after, 5)
            async with System.open(store, agents=[agent], grace=1000) as system:
                await (await system.spawn(agent, id="a")).followup("one")
                await wait_all_tasks_blocked()
                if times == 1:
                    nursery.start_soon(_interrupt_main_after, 5)
                    await trio.sleep_forever()

    clock = MockClock(autojump_threshold=0)

    async def timed() -> None:
        try:
            await main()
        finally:
            seconds.append(trio.current_time())

    with pytest.raises(BaseException) as raised:
        trio.run(timed, clock=clock)
    assert _is_interrupt(raised.value)
    assert seconds == [pytest.approx(5)]
    trio.run(check, store)
    assert trio.run(order, store) == "put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 C* TZ1"


def _is_interrupt(error: BaseException) -> bool:
    # The nursery of the test itself wraps it.
    return type(innermost(error)) is KeyboardInterrupt


def test_c259_what_is_no_exception_in_a_stream_closes_the_request() -> None:
    store = MemoryStore()

    class Leaves(Model):
        provider, name = "leaves", "demo"

        def prepare(self, request: Request) -> Prepared:
            return Prepared(request)

        async def stream(self, request: Request) -> AsyncIterator[Chunk]:
            yield c.block_start(0, "text")
            yield c.text_delta(0, "half")
            raise SystemExit(3)

    async def main() -> None:
        agent = make(Leaves())
        async with System.open(store, agents=[agent]) as system:
            await (await system.spawn(agent, id="a")).ask("one")

    with pytest.raises(SystemExit):
        trio.run(main)
    trio.run(check, store)
    assert trio.run(order, store) == ("put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 C* F1{raise} A{cut} SE TE1{error}")
