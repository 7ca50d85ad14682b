"""Channel: a way in and out. What a subclass has to say is one service's protocol; all that is hard about it is done here.

    class Irc(Channel):
        def __init__(self, agent): self.agent = agent
        async def run(self, inbound): ...            # receive; each message is on disk when `put` returns
        async def deliver(self, entry): ...          # send; raise when it failed

A system opened with `channels={"irc": Irc(helper)}` runs `run` as a task of its own, starts it again when it ends, gives each
chat an agent of its own, and delivers every reply at least once: in order for each chat, again and again until the channel takes
it, also after a restart, under an id that stays the same. One channel that fails delays no other, and one chat no other chat.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import trio

from ...mailbox.addresses import session_key
from ...storage.errors import UsageError

if TYPE_CHECKING:
    from ..agent import Agent
    from ..values import Delivery, Inbound

Deliver = Callable[["Delivery"], Awaitable[Any]]
"""A channel that only sends may be this alone."""


class Channel:
    """Subclass it and override `deliver`, `run` if it receives, and `edit` (with `edits = True`) if it can show an answer grow.

    Options are attributes, of the class or of the object; the ones here are the defaults.
    """

    agent: Agent[Any, Any] | None = None
    """The definition of the agents behind its chats; None for a channel that only sends."""
    edits: bool = False
    """Whether `edit` works."""
    tries: int = 20
    """How often a reply is sent before it is given up; with the pauses below that is about an hour."""
    first_s: float = 1
    """Seconds before the second try. The pause doubles with each, and starts again with the next process."""
    max_s: float = 300
    """Seconds that a pause lasts at most."""
    timeout_s: float = 30
    """Seconds that one `deliver` or `edit` may take."""
    at_once: int = 16
    """How many chats are delivered to side by side; each is served in order, one reply at a time."""
    edit_every_s: float = 1
    """Seconds between two edits of one answer while it streams."""
    name: str = ""
    """Its key in `channels=`, known once the system is open."""

    async def run(self, inbound: Inbound) -> None:
        """Receive until cancelled, `await inbound.put(...)` for each message. Replies are held back until `inbound.ready()`.

        It is meant to last: when it returns or raises, it is started again, after a pause that grows from `first_s` to `max_s`.
        """
        inbound.ready()
        await trio.sleep_forever()

    async def deliver(self, entry: Delivery) -> None:
        """Send a reply; return when the service has taken it. `entry.delivery` is the same each time: give it to the service, so
        that what arrives twice is seen once. Of a `streamed` entry the chat has seen text by edits.

        Raises:
            Exception: any; it is tried again later. `DeliveryFailed(..., final=True)`: no further try would help.
        """
        raise UsageError(f"channel {self.name!r} cannot deliver; write: async def deliver(self, entry): ...")

    async def edit(self, entry: Delivery, text: str) -> None:
        """Show `text` as what the answer is so far, in the place of what was shown of `entry.delivery` before. The last edit has
        the whole text; if it raises, `deliver` is called instead."""
        raise UsageError(f"channel {self.name!r} cannot edit; write: async def edit(self, entry, text): ...")

    def session(self, route: Mapping[str, str], sender: str | None) -> str:
        """The id of the agent that a message goes to: by default one for each chat, and for each thread where there are threads.
        Override it to let all chats of one person reach one agent, which answers each message where it was asked."""
        return session_key(route["channel"], route["chat"], route.get("thread"))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class Bare(Channel):
    """A function as a channel: it only sends."""

    def __init__(self, function: Deliver) -> None:
        self._function = function

    async def deliver(self, entry: Delivery) -> None:
        """As the function does."""
        await self._function(entry)

    def __repr__(self) -> str:
        return f"<channel {self.name!r}: {self._function!r}>"


def as_channel(name: str, given: Any) -> Channel:
    """The channel in `channels={name: given}`.

    Raises:
        UsageError: it is none, or lacks what it promises; the text says what to write.
    """
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"channels={{{name!r}: ...}}: name a channel by a text, as routes do")
    if isinstance(given, type):
        raise UsageError(f"channels={{{name!r}: ...}} is the class {given.__name__}; give an object: {given.__name__}(...)")
    if not isinstance(given, Channel) and not callable(given):
        raise UsageError(f"channels={{{name!r}: ...}} is {given!r}; give a Channel, or an async function of one entry")
    channel: Channel = given if isinstance(given, Channel) else Bare(cast("Deliver", given))
    if type(channel).deliver is Channel.deliver:
        raise UsageError(f"channel {name!r} has no deliver; write: async def deliver(self, entry): ...")
    if channel.edits and type(channel).edit is Channel.edit:
        raise UsageError(f"channel {name!r} has edits = True and no edit; write: async def edit(self, entry, text): ...")
    if channel.name and channel.name != name:
        raise UsageError(f"one channel is named {channel.name!r} and {name!r}; give each name an object of its own")
    _check_options(name, channel)
    channel.name = name
    return channel


def _check_options(name: str, channel: Channel) -> None:
    least = {"tries": 1, "first_s": 0, "max_s": 0, "timeout_s": 0, "at_once": 1, "edit_every_s": 0}
    for option, smallest in least.items():
        value = getattr(channel, option)
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= smallest:
            raise UsageError(f"channel {name!r} has {option}={value!r}; give a number, {smallest} or more")
