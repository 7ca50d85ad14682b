"""Delivery: one lane for each channel, which takes its replies out and writes what became of them.

At least once: a reply goes again until the channel takes it or its tries are used up, and only `outbox/sent` or `outbox/failed`
in its agent's log closes it. That record is on disk before the next reply of the place goes, so a kill repeats one reply of a
place at most, under the id it had. Nothing is sent before its `outbox/put` is on disk. An agent is opened for the record alone.

Guards against: a channel that hangs (a deadline), fails (pauses that double), throws anything (contained here), refuses one reply
for ever (closed as failed, and the next goes), takes the process with it (`suspects.py`), or is not there yet (nothing is sent,
and no try used up, until it is ready).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
import trio

from ...storage.errors import AgentDeleted, AgentNotFound, CallboardError, DeliveryFailed
from ...storage.events import OutboxFailed, OutboxSent
from ...storage.messages import Block, Failure, File, Image, TextBlock
from ..content import route_map
from ..failures import flatten, said
from ..initiator import start_fresh
from ..values import Delivery
from .lanes import LaneQueue, Pending
from .suspects import KILLS, Suspects

if TYPE_CHECKING:
    from ..runtime import Runtime
    from .channel import Channel

_log = logging.getLogger("callboard.channels")


class Lane:
    """The replies of one channel, and the task that sees to them."""

    def __init__(self, runtime: Runtime, channel: Channel, suspects: Suspects) -> None:
        self._runtime, self.channel, self._suspects = runtime, channel, suspects
        self.queue = LaneQueue()
        self.ready = False
        """Whether the channel can take anything."""
        self.active = 0
        """Replies on their way now."""
        self.sent = self.failed = self.retried = 0
        self.crashes = 0
        """How often the channel's `run` has ended."""
        self.last_failure: Failure | None = None
        self._over = False
        self._changed = trio.lowlevel.ParkingLot()
        self._settled = trio.lowlevel.ParkingLot()

    def add(self, item: Pending) -> None:
        """A reply that is on disk is to go out."""
        if self.queue.add(item):
            self._changed.unpark_all()

    def open(self, ready: bool = True) -> None:
        """The channel is there; or is not any more."""
        self.ready = ready
        self._changed.unpark_all()
        self._settled.unpark_all()

    def poke(self) -> None:
        """Something changed at a place."""
        self._changed.unpark_all()
        self._settled.unpark_all()

    # -- the task

    async def run(self) -> None:
        """Take replies out until cancelled. A channel that cancels the tasks around it, too, has not ended this one."""
        try:
            while True:
                async with trio.open_nursery() as nursery:
                    await self._keep_taking_out(nursery)
        finally:
            self._over = True
            self._settled.unpark_all()

    async def _keep_taking_out(self, nursery: trio.Nursery) -> None:
        while True:
            self._take_out(nursery)
            due = self.queue.next_at if self.ready and self.active < self.channel.at_once else None
            with trio.move_on_at(float("inf") if due is None else due):
                await self._changed.park()

    def _take_out(self, nursery: trio.Nursery) -> None:
        while self.ready and self.active < self.channel.at_once:
            item = self.queue.take(trio.current_time())
            if item is None:
                return
            self.active += 1
            start_fresh(nursery, self._send, item, initiator=item.agent)

    async def wait_settled(self) -> None:
        """Return when all is out that can go now: nothing is on its way, and what is left waits for another try, or for the
        channel."""
        while not self._over and (self.active or (self.ready and self.queue.ready)):
            await self._settled.park()

    async def _send(self, item: Pending) -> None:
        try:
            await self._outcome(item)
        finally:
            self.active -= 1
            self.poke()

    @trio.lowlevel.enable_ki_protection
    async def _outcome(self, item: Pending) -> None:
        """One try, and what follows from it."""
        registry = self._runtime.registry
        if item.forgotten or item.agent in registry.deleted or item.agent in registry.deleting:
            self.queue.done(item)
            return
        failure = None if item.taken else await self._once(item)
        # A channel that took it has taken it: from here to the record, no cancellation comes between.
        if failure is None:
            item.taken = True
            await self._close(item, OutboxSent(delivery=item.delivery))
            return
        self.last_failure = failure
        if item.forgotten:
            self.queue.done(item)
            return
        item.tries += 1
        if item.tries >= self.channel.tries or failure.code in (DeliveryFailed.FINAL, KILLS):
            _log.warning("channel %r: %s of %r is given up: %s", self.channel.name, item.delivery, item.agent, failure.message)
            await self._close(item, OutboxFailed(delivery=item.delivery, failure=failure))
            return
        self.retried += 1
        self.queue.retry(item, trio.current_time() + self._pause(item.tries, failure))

    def _pause(self, tries: int, failure: Failure) -> float:
        longest = self.channel.max_s
        pause = min(self.channel.first_s * 2.0 ** min(tries - 1, 40), longest)
        return max(pause, min(failure.retry_after_s or 0.0, longest))

    async def _once(self, item: Pending) -> Failure | None:
        """One try, counted if another process has left the reply. A try that is cancelled did not count, and is made again."""
        try:
            return await (self._suspects.send(item, self._try) if item.left else self._try(item))
        except BaseException:
            self.queue.retry(item, trio.current_time() + self.channel.first_s)
            raise

    async def _try(self, item: Pending) -> Failure | None:
        """Send it once; what kept the channel from taking it, or None."""
        try:
            entry = await delivery_of(self._runtime, item)
            with trio.move_on_after(self.channel.timeout_s) as scope:
                if entry.streamed and self.channel.edits and item.tries == 0:
                    await self.channel.edit(entry, entry.text)
                else:
                    await self.channel.deliver(entry)
            if not scope.cancelled_caught:
                return None
        except Exception as error:  # the channel is other people's code: whatever it raises, this reply was not taken
            _log.info("channel %r did not take %s of %r: %r", self.channel.name, item.delivery, item.agent, error)
            return failure_of(error)
        return Failure("TIMEOUT", f"the channel took longer than {self.channel.timeout_s:g} s (timeout_s)")

    async def _close(self, item: Pending, record: OutboxSent | OutboxFailed) -> None:
        """Write what became of it; a log that cannot be written now is tried again, and the channel is not asked again."""
        try:
            with trio.CancelScope(shield=True):
                actor = await self._runtime.registry.actor(item.agent)
                with actor.held():
                    if item.delivery in actor.state.outbox:
                        actor.log.append(record)
                    await actor.log.commit()
        except (AgentNotFound, AgentDeleted):
            self.queue.done(item)
            return
        except CallboardError as error:
            _log.warning("what became of %s of %r cannot be written: %s", item.delivery, item.agent, error)
            self.queue.retry(item, trio.current_time() + self.channel.max_s)
            return
        except Exception:  # of a plugin that starts, or of `resolve`
            self._runtime.log_throw(item.agent, "opening it for a delivery")
            self.queue.retry(item, trio.current_time() + self.channel.max_s)
            return
        self.sent += isinstance(record, OutboxSent)
        self.failed += isinstance(record, OutboxFailed)
        self.queue.done(item)


def failure_of(error: BaseException) -> Failure:
    """What a channel raised, as the log keeps it; `retry_after_s` is kept if the error names it."""
    if not isinstance(error, DeliveryFailed):
        return flatten(error)
    return Failure(error.FINAL if error.final else error.RETRY, said(error), retry_after_s=error.retry_after_s)


async def delivery_of(runtime: Runtime, item: Pending) -> Delivery:
    """The reply as the channel sees it, with the bytes of its media."""
    put = item.put
    content = tuple([await _with_data(runtime, block) for block in put.content])
    return Delivery(
        delivery=put.delivery,
        route=route_map(put.route),
        content=content,
        text="".join(block.text for block in put.content if isinstance(block, TextBlock)),
        agent=item.agent,
        turn=put.turn,
        streamed=put.streamed,
    )


async def _with_data(runtime: Runtime, block: Block) -> Block:
    if isinstance(block, Image | File) and block.blob is not None:
        return msgspec.structs.replace(block, data=await runtime.store.blob(block.blob))
    return block
