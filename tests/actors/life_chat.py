"""The chat of a life: two places in which agents are spoken to, on a channel that fails as the script says; and commands.

The channel takes one delivery after the other as `Life.chat` has it, and keeps what it took, with the process that gave it: what
the log says was sent must not come again, and what one place is told comes in the order in which it was said.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import trio

from callboard.actors.answers import LimitReached
from callboard.actors.channels.channel import Channel
from callboard.actors.plugins.commands import CommandContext, UserCommand, command
from callboard.actors.values import Delivery
from callboard.storage.errors import CommitFailed, DeliveryFailed

PLACES = (("#docs", None), ("#help", None), ("#docs", "t"))
"""Chats and threads."""
TIMEOUT_S = 3


def route_of(id: str) -> dict[str, str]:
    """Where a message of this id was said: the same place whenever it is sent."""
    chat, thread = PLACES[zlib.crc32(id.encode()) % len(PLACES)]
    route = {"channel": "irc", "chat": chat, "message": id}
    return route if thread is None else {**route, "thread": thread}


class Taken(NamedTuple):
    """A reply that the channel took: in which session of the system, of whom, and where it went."""

    session: int
    agent: str
    place: tuple[str, str | None]
    delivery: str


class Chat(Channel):
    """A channel that does with each delivery what the script says next."""

    tries, first_s, max_s, timeout_s, at_once = 3, 1, 4, TIMEOUT_S, 2

    def __init__(self, does: tuple[str, ...], *, edits: bool) -> None:
        self.edits = edits
        self.taken: list[Taken] = []
        self.sessions = 0
        self._does, self._asked = does, 0
        self._inbound: Any = None
        self._moved = trio.lowlevel.ParkingLot()

    def begin(self, agent: Any) -> None:
        """Another system has it, with this definition of the agent in its places."""
        self.agent, self._inbound = agent, None
        self.sessions += 1

    async def run(self, inbound: Any) -> None:
        """Be there, until the script says that the connection breaks."""
        self._inbound = inbound
        inbound.ready()
        self._moved.unpark_all()
        if "broken" in self._does:
            await trio.sleep(2)
            raise ConnectionError("the line is cut")
        await trio.sleep_forever()

    def session(self, route: Mapping[str, str], sender: str | None) -> str:
        """One agent for all places."""
        return "a"

    async def say(self, text: str, id: str) -> Any:
        """A person writes, where the id says."""
        while self._inbound is None:
            await self._moved.park()
        while True:
            try:
                return await self._inbound.put(text, route=route_of(id), sender="ann", message_id=id)
            except CommitFailed:  # it was not acknowledged, so the service sends it again
                await trio.sleep(1)

    async def deliver(self, entry: Delivery) -> None:
        """Take it, or not."""
        does = self._does[self._asked % len(self._does)] if self._does else "ok"
        self._asked += 1
        await trio.lowlevel.checkpoint()
        match does:
            case "fail":
                raise ConnectionError("the service is down")
            case "final":
                raise DeliveryFailed("nobody is there", final=True)
            case "hang":
                await trio.sleep_forever()
            case "slow":
                await trio.sleep(TIMEOUT_S - 1)
            case _:
                pass
        place = entry.route["chat"], entry.route.get("thread")
        self.taken.append(Taken(self.sessions, entry.agent, place, entry.delivery))

    async def edit(self, entry: Delivery, text: str) -> None:
        """Show how far an answer is; the last edit is a delivery."""
        await trio.lowlevel.checkpoint()
        if self._does and self._does[self._asked % len(self._does)] == "fail":
            raise ConnectionError("no edits today")


@command("/tell", usage="/tell WORDS")
async def tell(ctx: CommandContext, args: str) -> str:
    """Tell it to the other one."""
    ctx.note("told", {"words": args})
    await ctx.send("b" if ctx.agent.id == "a" else "a", args or "nothing")
    return "Told."


@command("/self")
async def to_itself(ctx: CommandContext) -> str:
    """Put something into the agent's own inbox."""
    await ctx.agent.followup("from a command", message_id=f"{ctx.effect_key}-self", route=route_of(ctx.effect_key))
    return "Said."


@command("/now", control=True)
async def now(ctx: CommandContext) -> None:
    """Act at once: steer what runs."""
    await ctx.agent.steer("at once, please", message_id=f"{ctx.effect_key}-now", route=route_of(ctx.effect_key))


@command("/enough")
async def enough(ctx: CommandContext) -> str:
    """Be at the limit."""
    raise LimitReached("command", "enough of commands")


@command("/broken", control=True)
async def broken(ctx: CommandContext) -> str:
    """Fail at once."""
    raise RuntimeError("this command is broken")


OWN: tuple[UserCommand, ...] = (tell, to_itself, now, enough, broken)
COMMANDS = (
    *("/stop", "/status", "/new", "/undo", "/compact", "/model other", "/fork", "/history 2", "/help", "/nothing", "/new now"),
    *("/tell it", "/self", "/now", "/enough", "/broken"),
)
"""What people type in a life."""
DELIVERS = ("ok", "fail", "final", "hang", "slow", "broken")
