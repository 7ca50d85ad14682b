"""Inbound: a channel's way in. What it puts is on disk before the channel acknowledges it, once, however often it comes.

Which agent: the channel's `session` says, by default one for each chat. It is opened on its first message.

Whose turn: a message that arrives while a turn runs in the same place is steered into it, so that the model reads it before it
goes on; it brings its own route, and its answer goes there. Anything else is a prompt and gets a turn of its own: a message for
another place than the turn answers, a slash command, and whatever comes behind a prompt that still waits, which it must not
overtake. The look at all that and the append are one stretch, without a checkpoint between.

What is refused (empty, too large, a full inbox, a plugin's word) is counted and logged, and `put` answers None: no chat can bring
down the channel for all others. What comes for an agent whose definition is missing is kept (`standing_in.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...mailbox.addresses import session_key
from ...storage.errors import InputError, InputRefused, UsageError
from ...storage.events import InboxPut, Lane, Route
from ...storage.messages import Block, Message
from ..content import route_map, to_message, to_route
from ..standing_in import send_or_keep
from ..values import Receipt
from .lanes import place_of

if TYPE_CHECKING:
    from ..actor import Actor
    from ..agent import Agent
    from ..runtime import Runtime
    from .channel import Channel
    from .delivery import Lane as OutLane

_log = logging.getLogger("callboard.channels")
LONGEST_NAME = 480
"""The most bytes that an id, a chat or a sender may have: some of them are keys of the store."""


class ChannelInbound:
    """What `Channel.run` is given."""

    def __init__(self, runtime: Runtime, channel: Channel, lane: OutLane) -> None:
        self._runtime, self._channel, self._lane = runtime, channel, lane
        self.accepted = self.refused = 0

    def ready(self) -> None:
        """The channel can receive and send: replies that wait go out."""
        self._lane.open()

    async def put(
        self,
        content: str | Sequence[Block] | Message,
        *,
        route: Mapping[str, Any],
        sender: str | None = None,
        message_id: str | None = None,
    ) -> Receipt | None:
        """Send a message to the agent of the route's chat; on disk on return, so acknowledge then. None: it was refused, and
        would be again; acknowledge it, too.

        Raises:
            UsageError: the route is none, or the channel has no agent.
            StoreError: it could not be written; do not acknowledge it.
        """
        try:
            return await self.accept(content, route=route, sender=sender, message_id=message_id)
        except InputError as error:
            self.refused += 1
            _log.warning("channel %r: %s", self._channel.name, error)
            return None

    async def accept(
        self,
        content: str | Sequence[Block] | Message,
        *,
        route: Mapping[str, Any],
        sender: str | None = None,
        message_id: str | None = None,
    ) -> Receipt:
        """As `put`, for a channel that can tell the sender.

        Raises:
            InputRefused: it is empty or too large, its names cannot be kept, or a plugin refused it.
            InboxFull: too many wait.
        """
        _check_lengths(value for value in route.values() if isinstance(value, str))
        goal = self._route(route)
        sender = None if sender is None else str(sender)
        message = to_message(content, id=None if message_id is None else str(message_id))
        _check_names(message.id, sender, *route_map(goal).values())
        key = self._channel.session(route_map(goal), sender)
        own = session_key(goal.channel, goal.chat, goal.thread)
        if message_id is not None and key != own:
            # Ids of services are unique in one chat; where several share an agent, the chat is part of the id.
            message = to_message(message, id=f"{own}:{message.id}")
        _check_names(message.id, key)
        agent = await self._open(key)
        put = InboxPut(message=message, lane="next-turn", sender=sender, route=goal)
        look_up = message_id is not None
        receipt, new = await send_or_keep(self._runtime, key, put, agent, look_up=look_up, choose_lane=choose_lane)
        self.accepted += new
        return receipt

    async def _open(self, key: str) -> Agent[Any, Any]:
        """Make sure that there is an agent; gives the channel's own definition. One that is there is what it is: it may have
        been handed on since."""
        agent, system = self._channel.agent, self._runtime.system
        if agent is None:
            raise UsageError(f"channel {self._channel.name!r} has no agent to give messages to; set self.agent = ...")
        current: Agent[Any, Any] = system.definitions.get(agent.name, agent)
        if not await self._runtime.registry.exists(key):
            await system.spawn(current, id=key)
        return current

    def _route(self, route: Mapping[str, Any]) -> Route:
        goal = to_route({**route, "channel": self._channel.name})
        assert goal is not None, "a mapping is a route"
        if not goal.chat:
            raise UsageError(f"channel {self._channel.name!r}: the route {dict(route)!r} names no chat: route={{'chat': ...}}")
        return goal


def choose_lane(actor: Actor, put: InboxPut) -> Lane:
    """Whether a message from a chat is steered into the turn that runs, or waits for one of its own."""
    at, goal = actor.position, put.route
    if not at.open or at.cancel is not None or not at.claimed:
        return "next-turn"
    if goal is None or at.reply is None or goal.channel != at.reply.channel or place_of(goal) != place_of(at.reply):
        return "next-turn"
    if actor.inbox.prompts(actor.runtime.now_ms()):
        return "next-turn"
    is_command = actor.chains.has("command") and put.message.text.lstrip().startswith("/")
    return "next-turn" if is_command else "next-step"


def _check_lengths(names: Iterable[str]) -> None:
    for name in names:
        size = len(name.encode("utf-8", "surrogatepass"))
        if size > LONGEST_NAME:
            raise InputRefused(f"the name {name[:40]!r}... has {size} bytes; {LONGEST_NAME} can be kept")


def _check_names(message_id: str, *names: str | None) -> None:
    """Names come from strangers: what no log or index can hold is refused before anything is written."""
    given = [name for name in (message_id, *names) if name]
    for name in given:
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputRefused(f"the name {name!r} is not valid Unicode", message_id=ascii(message_id)) from None
    _check_lengths(given)
    if not message_id:
        raise InputRefused("the message has an empty id; give none to have one minted")
