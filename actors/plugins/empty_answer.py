"""EmptyAnswer: a model that ends its turn without a word is asked once more.

Models do that after a tool has done what was wanted, or for no reason. A person in a chat would wait for ever. If the second
answer is empty as well, the turn ends, and its route gets the standard sentence. Providers that answer with nothing at all are a
failure of the request (`EMPTY_RESPONSE`), which is sent once more as it is.
"""

from __future__ import annotations

from ...storage.messages import Message, PluginSource, TextBlock
from ..answers import Boundary, Enter, Failed, Reject, Resend, Stopping
from ..seams import Next, Plugin, SeamContext
from .continuing import of_this_turn

SOURCE = PluginSource("empty-answer")
TEXT = "You have ended your turn without saying anything. Say what the person should know now."


class EmptyAnswer(Plugin):
    """Ask once more after an empty answer."""

    async def pre_step(self, ctx: SeamContext, boundary: Boundary, next: Next[Boundary, Enter | Reject], /) -> Enter | Reject:
        """Leave out what another turn was asked, and did not come to."""
        return await next(of_this_turn(boundary, SOURCE))

    async def turn_stopping(self, ctx: SeamContext, stopping: Stopping, /) -> None:
        """Ask, unless a tool has answered the person itself, or this was the second try."""
        if stopping.finish != "stop" or stopping.said.strip() or stopping.replied:
            return
        view = await ctx.agent.messages()
        if not view or view[-1].source != SOURCE:
            await ctx.agent.steer(Message(f"empty-answer-{ctx.turn}.{ctx.step}", "user", (TextBlock(TEXT),), SOURCE))

    async def request_error(self, ctx: SeamContext, failed: Failed, next: Next[Failed, Resend | None], /) -> Resend | None:
        """Send a request once more that was answered by nothing, if nobody else has it sent again."""
        answer = await next(failed)
        again = answer is None and failed.failure.code == "EMPTY_RESPONSE" and failed.attempt == 1
        return Resend() if again else answer
