"""Switchboard: all channels of a system, and what is between them and the agents.

An agent costs nothing here while it is idle. Each trip of its log to the disk ends with one look at its outbox; what is new there
goes to the lane of its channel. After a restart start-up opens the agents whose index entry says that something is unsent, and
the same look finds it. A reply for a channel that this system does not have stays where it is, for a start that has it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import trio

from ..failures import split_cancelled
from ..initiator import start_fresh
from ..tools.bodies import innermost
from .channel import Channel, as_channel
from .delivery import Lane
from .inbound import ChannelInbound
from .lanes import Pending
from .preview import Preview, may_show
from .suspects import Suspects

if TYPE_CHECKING:
    from ..actor import Actor
    from ..runtime import Runtime

_log = logging.getLogger("callboard.channels")
CALM_S = 60
"""A channel that ran for so long has recovered: its next end is a first one again."""


class Switchboard:
    """The channels of a system, each with its lane out and its way in."""

    def __init__(self, runtime: Runtime, channels: Mapping[str, Any] | None) -> None:
        self._runtime = runtime
        self.channels = {name: as_channel(name, given) for name, given in (channels or {}).items()}
        suspects = Suspects(runtime)
        self._lanes = {name: Lane(runtime, channel, suspects) for name, channel in self.channels.items()}
        self._inbound = {name: ChannelInbound(runtime, channel, self._lanes[name]) for name, channel in self.channels.items()}
        self._edits = any(channel.edits for channel in self.channels.values())
        self._shown: dict[str, set[str]] = {}
        """The replies that previews have shown something of, by agent, for as long as its turn is open."""
        self._previews: set[str] = set()
        self._unknown: set[str] = set()
        self._nursery: trio.Nursery | None = None

    # -- what agents have said

    def look(self, actor: Actor) -> None:
        """Something of the agent reached the disk: take what its outbox has new, and show what it streams."""
        if not self.channels:
            return
        outbox = actor.state.outbox
        if outbox:
            for unsent in outbox.behind(actor.outbox_seen):
                if unsent.seq > actor.log.committed:
                    break
                actor.outbox_seen = unsent.seq
                lane = self._lanes.get(unsent.entry.route.channel)
                if lane is None:
                    self._report_unknown(unsent.entry.route.channel, actor.id)
                else:
                    left = unsent.seq <= actor.opened_at
                    lane.add(Pending(actor.id, unsent.seq, unsent.time, unsent.entry, left))
        if self._edits:
            self._show(actor)

    def _report_unknown(self, channel: str, agent: str) -> None:
        if channel not in self._unknown:
            self._unknown.add(channel)
            _log.warning("agent %r has replies for the channel %r, which this system does not have", agent, channel)

    def _show(self, actor: Actor) -> None:
        at, route = actor.position, actor.route
        if not at.open:
            self._shown.pop(actor.id, None)
            return
        lane = None if route is None else self._lanes.get(route.channel)
        if lane is None or not lane.channel.edits or at.request is None or actor.id in self._previews:
            return
        if self._nursery is None or self._runtime.closing or actor.turn is None:
            return
        if may_show(actor) and at.request.seq <= actor.log.committed:
            self._previews.add(actor.id)
            preview = Preview(actor, lane, self._shown.setdefault(actor.id, set()))
            start_fresh(self._nursery, self._guarded, partial(self._preview, actor.id, preview), initiator=actor.id)

    async def _preview(self, agent: str, preview: Preview) -> None:
        try:
            await preview.run()
        finally:
            self._previews.discard(agent)

    def was_shown(self, actor: Actor, delivery: str) -> bool:
        """Whether the chat may have seen something of the reply while it streamed: here, or in the process before."""
        if delivery in self._shown.get(actor.id, ()):
            return True
        route, turn = actor.route, actor.turn
        channel = self.channels.get(route.channel) if route is not None else None
        return channel is not None and channel.edits and turn is not None and turn.taken_up and may_show(actor)

    def forget(self, agent: str) -> None:
        """The agent was deleted: what it said is said no more."""
        for lane in self._lanes.values():
            lane.queue.forget(agent)

    # -- the life of it

    def start(self, nursery: trio.Nursery) -> None:
        """Start delivering, and the channels."""
        self._nursery = nursery
        for name, lane in self._lanes.items():
            start_fresh(nursery, self._guarded, lane.run, initiator=None, name=f"deliveries of channel {name}")
            receive = partial(self._receive, lane, self._inbound[name])
            start_fresh(nursery, self._guarded, receive, initiator=None, name=f"channel {name}")

    async def _guarded(self, task: Callable[[], Awaitable[None]]) -> None:
        """What is no `Exception` (SystemExit and the like) closes the system and leaves it as it was raised, as out of a tool.
        What a channel throws while it is cancelled is logged."""
        try:
            await task()
        except BaseException as error:
            cancelled, rest = split_cancelled(error)
            if rest is not None and not isinstance(rest, Exception):
                self._runtime.crash(innermost(rest))
            elif rest is not None and cancelled is not None:
                _log.error("a channel failed as it was cancelled", exc_info=rest)
            elif rest is not None:
                raise
            if cancelled is not None:
                raise cancelled from None

    async def _receive(self, lane: Lane, inbound: ChannelInbound) -> None:
        """Run a channel, again and again."""
        channel, pause = lane.channel, lane.channel.first_s
        while True:
            began = trio.current_time()
            try:
                await channel.run(inbound)
                why = "its run returned"
            except Exception as error:  # the channel is other people's code: it is started again, and nobody else is harmed
                _log.exception("channel %r failed", channel.name)
                why = f"{type(error).__name__}: {error}"
            lane.crashes += 1
            lane.open(ready=False)
            self._runtime.report.channels[channel.name] = why
            pause = channel.first_s if trio.current_time() - began > CALM_S else pause
            _log.warning("channel %r is started again in %g s: %s", channel.name, pause, why)
            await trio.sleep(pause)
            pause = min(max(pause * 2, 0.1), channel.max_s)

    async def wait_settled(self) -> None:
        """Return when everything is out that can go now."""
        for lane in self._lanes.values():
            await lane.wait_settled()

    def statistics(self) -> dict[str, Mapping[str, Any]]:
        """What each channel has taken and given, what waits in its lane, and what failed last."""
        return {name: _statistics(lane, self._inbound[name]) for name, lane in self._lanes.items()}


def _statistics(lane: Lane, inbound: ChannelInbound) -> Mapping[str, Any]:
    failure = lane.last_failure
    return {
        "ready": lane.ready,
        "crashes": lane.crashes,
        "accepted": inbound.accepted,
        "refused": inbound.refused,
        "waiting": len(lane.queue),
        "active": lane.active,
        "retrying": lane.queue.later,
        "sent": lane.sent,
        "failed": lane.failed,
        "retried": lane.retried,
        "last_failure": None if failure is None else f"{failure.code}: {failure.message}",
    }


def agents_of(channels: Mapping[str, Channel]) -> list[Any]:
    """The definitions behind the channels."""
    return [channel.agent for channel in channels.values() if channel.agent is not None]
