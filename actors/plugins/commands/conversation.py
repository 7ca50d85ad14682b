"""Commands that change the conversation: `/new`, `/undo`, `/compact`, `/fork`, `/stop`.

The log keeps everything. What `/new` and `/undo` take is taken out of the model's view, by a `surface/replace` in the append of
the command's own records; and what people had still to say when they stopped the agent is taken back in that append, too: it
belongs to what they have left.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....mailbox.items import Item
from ....storage.errors import UsageError
from ....storage.messages import Message, UserSource
from ...answers import Answer, Replace, Stop
from .context import CommandContext
from .declared import command

NEAR = 128
"""Records that are read first to find where a message entered; the place is nearly always among them."""


@command("/new")
async def new(ctx: CommandContext) -> Answer:
    """Forget the conversation and begin another."""
    waited = await _what_waited(ctx)
    if not len(await ctx.agent.messages()):
        return Answer("This is a new conversation already." + _dropped(waited), withdraws=waited)
    return Answer("A new conversation begins." + _dropped(waited), Replace(cause="new"), withdraws=waited)


async def _what_waited(ctx: CommandContext) -> tuple[str, ...]:
    """What was said before the command and no turn has taken: prompts that a stop or a failure has held, and whatever was
    steered. It would be said in another conversation than it was meant for. (Reminders that are held stay: they were meant for
    their time.)"""
    pending = await ctx.agent.pending()
    before = next((item.seq for item in pending if item.id == ctx.message_id), 0)
    return tuple(item.id for item in pending if item.seq < before and item.may_park and _belongs(item))


def _belongs(item: Item) -> bool:
    return item.lane == "next-step" or (item.parked and isinstance(item.message.source, UserSource))


def _dropped(waited: Sequence[str]) -> str:
    return f" Dropped: {len(waited)} that waited." if waited else ""


@command("/undo")
async def undo(ctx: CommandContext) -> Answer:
    """Go back to before your last message."""
    entries = ctx.seam.position("command").entries
    at = next((at for at in range(len(entries) - 1, -1, -1) if _from_person(entries[at][1])), None)
    waited = await _what_waited(ctx)
    if at is None:
        return Answer("There is nothing to undo." + _dropped(waited), withdraws=waited)
    begun = await _begun(ctx.agent, entries[at][0])
    while at and begun < entries[at - 1][0] < entries[at][0]:
        at -= 1
    start, message = entries[at]
    also = f" (and {len(waited)} that waited)" if waited else ""
    return Answer(f"Taken back: {_shortened(message.text)}{also}", Replace(start=start, cause="undo"), withdraws=waited)


async def _begun(agent: Any, seq: int) -> int:
    """Where the turn opened its first step that took the message of this seq: what was steered into it came later. The seq
    itself if no turn took it (history from elsewhere)."""
    step = await _step_start(agent, seq)
    if step is not None and step.event.step > 1:
        step = await _step_start(agent, seq, turn=step.event.turn) or step
    return seq if step is None else step.seq


async def _step_start(agent: Any, seq: int, *, turn: int | None = None) -> Any:
    """The last `step/start` up to a seq, or the first of a turn; read backwards in growing pieces, since it is near."""
    width, after, found = NEAR, seq, None
    while found is None and after > -1:
        after = max(seq - width, -1)
        async for record in agent.read(after, seq, types={"step/start"}):
            if turn is None or (record.event.turn, record.event.step) == (turn, 1):
                found = record
        width *= 8
    return found


def _from_person(message: Message) -> bool:
    return message.role == "user" and isinstance(message.source, UserSource)


def _shortened(text: str, width: int = 60) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"


@command("/compact")
async def compact(ctx: CommandContext) -> Answer:
    """Let a summary stand for what was said before."""
    if not ctx.seam.compacts:
        return Answer("This agent does not summarise: it has no Compaction plugin.")
    replacement = await ctx.seam.compact()
    if replacement is None:
        return Answer("There is nothing to summarise.")
    return Answer("A summary stands for what was said before.", replacement)


@command("/fork")
async def fork(ctx: CommandContext) -> str:
    """Make a copy of this conversation that goes its own way."""
    name = f"{ctx.agent.id}~{ctx.effect_key[:8]}"  # the same if the command runs again
    try:
        forked = await ctx.agent.fork(id=name, turn=ctx.turn)
    except UsageError as error:
        known = [record async for record in ctx.seam.peer(name).read(types={"log/forked"}) if record.event.source == ctx.agent.id]
        if not known:
            raise error
        return f"The copy is {name}."
    return f"The copy is {forked.id}."


@command("/stop", control=True)
async def stop(ctx: CommandContext) -> Stop:
    """Stop what runs; what waits is kept until your next message."""
    return Stop("", say=_stopped)


def _stopped(turn: bool, children: int, waiting: int) -> str:
    stopped = "Stopped." if turn or children else "Nothing runs."
    if children:
        stopped = f"Stopped, with {children} {'child' if children == 1 else 'children'}."
    if not waiting:
        return stopped
    if waiting == 1:
        return f"{stopped} 1 message waits, and runs before your next one."
    return f"{stopped} {waiting} messages wait, and run before your next one."


CONVERSATION = [new, undo, compact, fork, stop]
