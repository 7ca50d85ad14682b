"""Continue: an answer that the output cap has cut is gone on with, and is one answer.

The model is asked to go on by a message of its own, which the history keeps, as it keeps each piece as it was said. The position
fold knows that message by its source: what is said behind it belongs to what was said before it, without a blank between, so that
a word that was cut in the middle is whole again. So `Outcome.text` and the reply to the route are the whole, once, and the turn
ends as its last piece does. If another person's message is taken at the same boundary, the cut answer goes out as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from ...storage.errors import UsageError
from ...storage.events import UserMessage
from ...storage.folds.position import CONTINUE
from ...storage.messages import Message, PluginSource, Source, TextBlock
from ..answers import Boundary, Enter, Reject, Stopping
from ..seams import Next, Plugin, SeamContext

TEXT = "Your answer was cut because it was too long. Go on exactly where it stops, without repeating or introducing anything."


def of_this_turn(boundary: Boundary, source: Source) -> Boundary:
    """The boundary without messages from this source, if it is a turn's first: there they are of the turn before."""
    if boundary.step > 1:
        return boundary
    return structs.replace(boundary, messages=tuple(message for message in boundary.messages if message.source != source))


class Continue(Plugin):
    """Go on after max-tokens."""

    def __init__(self, *, times: int = 3) -> None:
        """`times`: how often one answer is gone on with; then the turn ends with max-tokens. 0: never.

        Raises:
            UsageError: it is negative.
        """
        if not times >= 0:
            raise UsageError(f"Continue(times={times!r}) is negative; 0 means never")
        self._times = times

    def __repr__(self) -> str:
        return f"Continue(times={self._times})"

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject], /) -> Enter | Reject:
        """Leave out what another turn was asked, and did not come to: it was stopped, or a restart has ended it."""
        return await next(of_this_turn(boundary, CONTINUE))

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping, /) -> None:
        """Ask for the rest."""
        if stopping.finish == "max-tokens" and await self._asked(ctx) < self._times:
            id = f"continue-{ctx.turn}.{ctx.step}"  # the same when a crash has it asked again
            await ctx.agent.steer(Message(id, "user", (TextBlock(TEXT),), CONTINUE))

    async def _asked(self, ctx: SeamContext) -> int:
        """How often the present answer was gone on with, as a restart finds it, too.

        A summary may stand for what the history had; then the log knows, which is read only if it can have been so often.
        """
        asked = _asked_last(await ctx.agent.messages(), ctx.turn)
        if asked >= self._times or ctx.step <= self._times:
            return asked
        events = [record.event for record in await ctx.records({"user/message"})]
        return _asked_last([event.message for event in events if isinstance(event, UserMessage)], ctx.turn)


def _asked_last(messages: Sequence[Message], turn: int) -> int:
    """How often this turn was asked to go on since somebody said something. What plugins say beside that changes nothing."""
    asked = 0
    for message in reversed(messages):
        if message.source == CONTINUE:
            asked += message.id.startswith(f"continue-{turn}.")
        elif message.role == "user" and not isinstance(message.source, PluginSource):
            break
    return asked
