"""LoopGuard: a model that makes the same call again and again, and gets the same result, is told so, and then stopped.

A turn has no limit of steps of its own. The cheapest runaway is a call that changes nothing: after a few equal ones the result
carries a note for the model; if it goes on all the same, the turn ends with `limit`.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256

import msgspec

from ...storage.messages import Message, PluginSource, TextBlock
from ..answers import Done, LimitReached
from ..content import mint_id
from ..seams import Next, Plugin, SeamContext

_encode = msgspec.json.Encoder(order="deterministic").encode


class LoopGuard(Plugin):
    """Count equal calls with equal results within a turn."""

    def __init__(self, *, repeats: int = 4) -> None:
        """`repeats`: the equal call that is answered with a note; one more ends the turn."""
        self._repeats = repeats

    def __repr__(self) -> str:
        return f"LoopGuard(repeats={self._repeats})"

    async def tool_after(self, ctx: SeamContext, done: Done, next: Next[Done, Done], /) -> Done:
        """Count the call; add the note, or end the turn."""
        done = await next(done)
        counts = self._counts(ctx)
        key = sha256(_encode((done.call.name, done.call.arguments, done.result.content, done.result.error))).hexdigest()
        counts[key] += 1
        if counts[key] > self._repeats:
            raise LimitReached("loop", f"the call {done.call.name} was repeated {counts[key]} times with the same result")
        if counts[key] < self._repeats:
            return done
        text = f"You have called {done.call.name} {counts[key]} times alike, with the same result. Do something else."
        note = Message(mint_id(), "user", (TextBlock(text),), PluginSource("loop-guard"))
        result = msgspec.structs.replace(done.result, context=(*done.result.context, note))
        return Done(done.call, result)

    def _counts(self, ctx: SeamContext) -> Counter[str]:
        kept: tuple[int, Counter[str]] | None = ctx.local.get(self)
        if kept is None or kept[0] != ctx.turn:
            kept = ctx.local[self] = ctx.turn, Counter[str]()
        return kept[1]
