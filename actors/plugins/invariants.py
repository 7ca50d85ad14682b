"""Invariants: before a request of the loop leaves, it is built a second time from the log on disk, and compared.

`verify` does the same afterwards; this refuses to send. A request that differs means that some plugin or the loop itself has
broken the order that everything rests on: the turn ends with an error that says where the two part. It reads the whole log for
each request, so it is for tests, for new plugins, and for those who would rather stop than send the wrong thing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from ...storage.digest import header_line
from ...storage.errors import UsageError
from ...storage.events import RequestSent, StepStart
from ...storage.folds import Headers, Surface
from ...storage.messages import Chunk, Header, Request
from ...storage.store import NO_CHUNKS
from ..content import without_images
from ..seams import Plugin, SeamContext


class InvariantBroken(UsageError):
    """A request is not the one that its log stands for; it was not sent."""

    code = "INVARIANT"


class Invariants(Plugin):
    """Compare each request with its own derivation from the log, at dispatch: inside all other plugins, so that it sees what
    they made of it."""

    innermost = True

    async def stream(
        self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]], /
    ) -> AsyncIterator[Chunk]:
        """Check, then pass on."""
        if request.turn:  # the loop's own, not a plugin's call beside it
            await self._check(ctx, request)
        async for chunk in next(request):
            yield chunk

    async def _check(self, ctx: SeamContext, request: Request) -> None:
        surface, headers, step, sent = Surface(), Headers(), None, None
        async for record in ctx.agent.read(types=NO_CHUNKS):
            if isinstance(record.event, RequestSent):
                sent = record.event
            elif isinstance(record.event, StepStart):
                step = record.event
            headers.apply(record.seq, record.time, record.event)
            surface.apply(record.seq, record.time, record.event)
        place = (request.turn, request.step)
        self._demand(ctx, request, step is not None and (step.turn, step.step) == place, "its step/start is not in the log")
        mark = sent is not None and (sent.turn, sent.step, sent.attempt) == (*place, request.attempt)
        self._demand(ctx, request, mark and request.agent == ctx.id, "its request/sent is not in the log")
        self._demand(ctx, request, headers.current is not None, "no request/header is in the log")
        assert sent is not None and headers.current is not None, "demanded above"
        self._compare(ctx, request, headers.current, surface)
        same = surface.digest(header_line(headers.current)) == sent.digest
        self._demand(ctx, request, same, "the digest in its request/sent is that of another")

    def _compare(self, ctx: SeamContext, request: Request, header: Header, surface: Surface) -> None:
        for field in ("provider", "model", "settings", "system", "tools", "output"):
            same = getattr(header, field) == getattr(request, field)
            self._demand(ctx, request, same, f"its {field} is not that of the header in force")
        derived, sees = list(surface.messages()), list(request.messages)
        same = sees == derived or sees == without_images(derived)
        self._demand(ctx, request, same, "its messages are not those of the log")

    @staticmethod
    def _demand(ctx: SeamContext, request: Request, holds: bool, otherwise: str) -> None:
        if not holds:
            where = f"turn {request.turn}, step {request.step}, attempt {request.attempt}"
            raise InvariantBroken(f"a request of {ctx.id!r} ({where}) was not sent: {otherwise}", agent=ctx.id, turn=request.turn)
