"""Mail between agents: 100 pairs at once, one letter after the other, each on disk before the next is written.

A letter is one commit of two logs, the sender's `mail/sent` and the receiver's `inbox/put`. It is sent as agents send it, from
the body of a tool; the receivers are in the middle of a turn, so that letters are all that happens while the clock runs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import trio

from callboard import Agent, System, ToolContext, tool
from callboard.actors import AgentRef, Model
from callboard.storage import chunks
from callboard.storage.messages import Chunk, Request

from .case import Case
from .measure import Meter, Sample, folder_bytes

LETTERS = 60


class Post:
    """Where all senders begin at once, and what each letter took."""

    def __init__(self, pairs: int, letters: int) -> None:
        self.letters, self._missing = letters, pairs
        self.ready, self.go, self.sent = trio.Event(), trio.Event(), trio.Event()
        self.latencies: list[float] = []
        self._writing = pairs

    async def started(self) -> None:
        """Wait for all the others."""
        self._missing -= 1
        if not self._missing:
            self.ready.set()
        await self.go.wait()

    def ended(self) -> None:
        """One sender has sent all of its letters."""
        self._writing -= 1
        if not self._writing:
            self.sent.set()


class Writes(Model):
    """Asks for the tool that writes to whom the message names, and then says that it did."""

    provider, name = "bench", "writes"

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """A call, or a word."""
        last = request.messages[-1]
        called = last.role == "user"
        if called:
            yield chunks.block_start(0, "tool-call")
            yield chunks.tool_call_delta(0, id="c", name="write", arguments=f'{{"to": "{last.text}"}}')
        else:
            yield chunks.block_start(0, "text")
            yield chunks.text_delta(0, "Written.")
        yield chunks.block_end(0)
        yield chunks.finish("tool-calls" if called else "stop")


class Thinks(Model):
    """Does not come to an end."""

    provider, name = "bench", "thinks"

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """Half a sentence."""
        yield chunks.block_start(0, "text")
        yield chunks.text_delta(0, "Let me")
        await trio.sleep_forever()


@tool
async def write(ctx: ToolContext[Post], to: str) -> str:
    """Write letter after letter."""
    await ctx.deps.started()
    for number in range(ctx.deps.letters):
        start = time.perf_counter()
        await ctx.send(to, f"Letter {number}: nothing new here.")
        ctx.deps.latencies.append(time.perf_counter() - start)
    ctx.deps.ended()
    return "done"


SENDER = Agent("sender", model=Writes(), tools=[write], plugins=[])
RECEIVER = Agent("receiver", model=Thinks(), plugins=[])


async def measure(pairs: int, letters: int, folder: Path) -> Sample:
    """One sample; every letter is in the inbox that it was for."""
    post = Post(pairs, letters)
    async with System.open(folder, agents=[SENDER, RECEIVER], deps=post, model_slots=2 * pairs, grace=0) as system:
        receivers = [await system.spawn(RECEIVER, id=f"receiver-{i}") for i in range(pairs)]
        senders = [await system.spawn(SENDER, id=f"sender-{i}") for i in range(pairs)]
        for receiver in receivers:
            await receiver.followup("What should I do?")
        async with trio.open_nursery() as nursery:
            for i, sender in enumerate(senders):
                nursery.start_soon(partial(sender.ask, f"receiver-{i}"))
            await post.ready.wait()
            size = folder_bytes(folder)
            with Meter() as meter:
                post.go.set()
                await post.sent.wait()
        await checked(receivers, letters)
        return meter.sample(post.latencies, file_bytes=folder_bytes(folder) - size)


async def checked(receivers: list[AgentRef], letters: int) -> None:
    """Fail if a letter is missing."""
    for receiver in receivers:
        waiting = len(await receiver.pending())
        if waiting != letters:
            raise AssertionError(f"{waiting} of {letters} letters reached {receiver.id}")


def run(pairs: int) -> Sample:
    """One sample, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="callboard-bench-") as folder:
        return trio.run(measure, pairs, LETTERS, Path(folder))


CASES = (
    Case("mail, 1 pair", partial(run, 1), "letters/s", short=False),
    Case("mail, 100 pairs", partial(run, 100), "letters/s"),
)
