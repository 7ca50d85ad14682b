"""Preview: an answer shown in its chat while it streams, by edits of one message.

It follows the agent's log, so it shows what is on disk and nothing else, and it lasts as long as one model request: what waits
for a tool or a person costs no task. Edits are a courtesy: one that fails or comes late changes nothing, since the last edit,
with the whole text, is the delivery of the entry itself. They hold the place in its lane, so that nothing overtakes them there,
and where something waits to be delivered already there is no preview.

Nothing is shown that might not be said: an agent whose `respond` seam may still change the text, or whose answer is a value, has
no preview, and neither has a turn whose message a tool has answered.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from ...storage.errors import CallboardError
from ...storage.events import AssistantChunk, AssistantMessage, Route
from ...storage.messages import BlockStart, Chunk, TextBlock, TextDelta
from ..content import route_map
from ..turns.respond import next_delivery
from ..values import Delivery
from .lanes import place_of

if TYPE_CHECKING:
    from ..actor import Actor
    from .delivery import Lane

TYPES = ("assistant/chunk", "assistant/message", "request/failed", "request/sent", "turn/end", "turn/suspend")
_log = logging.getLogger("callboard.channels")


def may_show(actor: Actor) -> bool:
    """Whether what the agent streams now is what its chat would be told."""
    at = actor.position
    return at.open and not at.answered_route and actor.agent.typed is None and not actor.chains.has("respond")


class Preview:
    """One request's text, as far as it is known and as far as it was shown."""

    def __init__(self, actor: Actor, lane: Lane, shown: set[str]) -> None:
        at = actor.position
        assert at.request is not None, "there is a request to follow"
        self._actor, self._lane, self._shown_ids = actor, lane, shown
        self._turn, self._step, self._seq = at.turn, at.step, at.request.seq
        self._before = at.joining
        self._text, self._shown = self._before, ""
        self._next = trio.current_time()

    async def run(self) -> None:
        """Show the text as it grows, until the request is over."""
        ref = self._actor.runtime.ref(self._actor.id)
        records = ref.follow(self._seq, TYPES)
        try:
            over = False
            while not over:
                due = self._next if self._text != self._shown else float("inf")
                with trio.move_on_at(due):
                    over = not self._feed((await anext(records)).event)
                if trio.current_time() >= self._next and not over:
                    await self._edit()
            if self._actor.position.calls:  # a tool may take long; then this is all that people see
                await self._edit()
        except CallboardError as error:  # the agent is gone, or its log failed: there is nothing to show any more
            _log.info("the preview of %r ends: %s", self._actor.id, error)

    def _feed(self, event: Any) -> bool:
        """Take in one record; False if it ends the request."""
        if isinstance(event, AssistantChunk):
            self._text += _visible(event.chunk)
            return True
        if isinstance(event, AssistantMessage) and not event.interrupted:
            self._text = self._before + event.message.text
        return False

    def _current(self) -> Route | None:
        """Where the text would go, if what is being shown is still what the agent says next."""
        actor = self._actor
        at = actor.position
        same = at.turn == self._turn and at.step == self._step and may_show(actor)
        route = actor.route if same else None
        return route if route is not None and route.channel == self._lane.channel.name else None

    async def _edit(self) -> None:
        route, text, channel = self._current(), self._text, self._lane.channel
        if route is None or not text or text == self._shown:
            return
        place = place_of(route)
        if not self._lane.ready or not self._lane.queue.hold(place):
            self._next = trio.current_time() + channel.edit_every_s
            return
        delivery = next_delivery(self._actor)
        entry = Delivery(
            delivery=delivery,
            route=route_map(route),
            content=(TextBlock(text),),
            text=text,
            agent=self._actor.id,
            turn=self._turn,
            streamed=True,
        )
        try:
            # Before the edit: also one that seems to fail may have been seen.
            self._shown_ids.add(delivery)
            with trio.move_on_after(channel.timeout_s):
                await channel.edit(entry, text)
                self._shown = text
        except Exception as error:  # the channel is other people's code, and an edit is a courtesy
            _log.info("channel %r could not edit %s: %r", channel.name, msgspec.json.encode(entry.route).decode(), error)
        finally:
            self._next = trio.current_time() + channel.edit_every_s
            self._lane.queue.release(place)
            self._lane.poke()


def _visible(chunk: Chunk) -> str:
    match chunk:
        case TextDelta(text=text) | BlockStart(block=TextBlock(text=text)):
            return text
        case _:
            return ""
