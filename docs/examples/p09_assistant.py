"""An assistant that people talk to in a chat: rooms with their own memory, reminders, commands, summaries of long conversations.

    python p09_assistant.py [HOST[:PORT]] ROOM...

Kill it and start it again: what was asked is answered, what was said is said, and nothing twice. The service behind it is IRC (in
`irc.py`, without a word of Callboard); another one is another class like `Irc`.
"""

from __future__ import annotations

import sys
from collections import Counter

import trio
from irc import connect_irc

from callboard import Agent, System, ToolContext, tool
from callboard.actors import Channel, Delivery, Inbound, SeamContext, default_plugins
from callboard.actors.plugins import CommandContext, Commands, Compaction, command


class Irc(Channel):
    """Rooms of an IRC server as chats."""

    edits = False

    def __init__(self, agent: Agent, host: str, port: int, rooms: list[str]) -> None:
        self.agent, self.address, self.rooms = agent, (host, port), rooms

    async def run(self, inbound: Inbound) -> None:
        """The system owns this task; when it fails, or the connection ends, it is started again and reported."""
        async with connect_irc(*self.address, "helper", self.rooms) as self.irc:
            inbound.ready()
            async for m in self.irc:
                # Durable on return; only then an acknowledgement, where a service wants one.
                await inbound.put(m.text, route={"chat": m.room, "message": m.id}, sender=m.nick, message_id=m.id)

    async def deliver(self, entry: Delivery) -> None:
        """Raise, and it is tried again later, with the same entry.delivery."""
        await self.irc.say(entry.route["chat"], entry.text, dedup=entry.delivery)


@tool(replay="safe")
async def remind_me(ctx: ToolContext, text: str, minutes: float) -> str:
    """Remind the person in so many minutes."""
    timer = await ctx.agent.remind(text, after_s=60 * minutes, route=ctx.route)  # the answer goes to the chat that asked
    return f"set for {timer.due:%H:%M}"


class House:
    """What tools and commands work with."""

    def __init__(self) -> None:
        self._karma: Counter[str] = Counter()

    async def karma(self, name: str) -> str:
        """One more for the name."""
        self._karma[name] += 1
        return f"{name} has {self._karma[name]}"


@command("/karma", usage="/karma NAME", control=True)
async def karma(ctx: CommandContext, args: str) -> str:
    """Count a name."""
    house: House = ctx.deps
    return await house.karma(args or ctx.sender or "nobody")


def today(ctx: SeamContext) -> str:
    """Runtime context: logged only when it changes."""
    return f"It is {ctx.now:%A %d %B}."


helper = Agent(
    "helper",
    model="openai:gpt-5",
    system="You help people in a chat. Be short.",
    tools=[remind_me],
    context=[today],
    plugins=[*default_plugins(), Commands(karma), Compaction(at=0.7, model="openai:gpt-5-mini")],
)


async def main(host: str, port: int, rooms: list[str]) -> None:
    """Be there until somebody ends it."""
    irc = Irc(helper, host, port, rooms)
    async with System.open("state", agents=[helper], channels={"irc": irc}, deps=House()):
        await trio.sleep_forever()


if __name__ == "__main__":
    server, *joined = sys.argv[1:] or ["localhost", "#helper"]
    name, _, number = server.partition(":")
    trio.run(main, name, int(number or 6667), joined)
