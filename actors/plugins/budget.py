"""Budget: what may be spent, in steps, tokens, money and time, by one agent, its tree, or all agents with a label.

A model call is counted before it is made: its step, and as many tokens as it may answer with, are reserved, and give way to what
it really cost once that is known. So children that run side by side cannot overspend together. 0 means none.

What counts together, and for how long:

* `tree=True`: the agent and all below it, within one turn of the agent that carries the budget. Children inherit the plugin.
* `tree=False`: the agent alone, within one of its turns.
* `label="customer"`: every agent whose label has the same value, since ever.
* `window_s`: any of these, but whatever was spent in the last so many seconds instead.

Reservations are in memory. After a restart what a turn has spent is read from the log, and what agents with a label have, from
the index; a window begins anew.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple

from ...storage.errors import UsageError
from ...storage.messages import NO_USAGE, Chunk, Request, Usage, UsageChunk
from ..answers import LimitReached, Proposal
from ..seams import Next, Plugin, SeamContext
from .ledger import Ledger, Spent, spent_in_turn


class Price(NamedTuple):
    """Money for a million tokens, in whatever currency the budget's `cost` is in."""

    input: float
    output: float

    def of(self, usage: Usage) -> float:
        """What this usage costs; cached input is counted as input, reasoning as output."""
        read = usage.input + usage.cache_read + usage.cache_write
        return (read * self.input + (usage.output + usage.reasoning) * self.output) / 1_000_000


class Budget(Plugin):
    """Refuse a model call that would go over; the turn then ends with `limit`."""

    def __init__(
        self,
        *,
        steps: int | None = 100,
        tokens: int | None = None,
        cost: float | None = None,
        wall_s: float | None = None,
        tree: bool = True,
        label: str | None = None,
        window_s: float | None = None,
        prices: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        """Set the bounds; None is no bound.

        Args:
            steps: model calls.
            tokens: of all kinds.
            cost: money, by `prices`.
            wall_s: seconds since the turn (or the window) began.
            tree: count children with the agent.
            label: count all agents together whose label of this name has the same value; others are not bounded.
            window_s: count what was spent in the last so many seconds.
            prices: "provider:model" or "provider" → (input, output) for a million tokens.

        Raises:
            UsageError: a bound is negative, or a cost has no prices.
        """
        for name, value in (("steps", steps), ("tokens", tokens), ("cost", cost), ("wall_s", wall_s), ("window_s", window_s)):
            if value is not None and value < 0:
                raise UsageError(f"Budget({name}={value}) is negative; 0 means none, None means no bound")
        if cost is not None and prices is None:
            raise UsageError("Budget(cost=...) needs prices={'provider:model': (input, output)} for a million tokens")
        self._steps, self._tokens, self._cost, self._wall_s = steps, tokens, cost, wall_s
        self._label, self._window_s = label, window_s
        self._prices = {name: Price(*price) for name, price in (prices or {}).items()}
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._system: Any = None
        self.inherited = tree and label is None

    def __repr__(self) -> str:
        bounds = {"steps": self._steps, "tokens": self._tokens, "cost": self._cost, "wall_s": self._wall_s}
        shown = ", ".join(f"{name}={value:g}" for name, value in bounds.items() if value is not None)
        return f"Budget({shown})"

    async def on_start(self, system: Any) -> None:
        """Remember whose index to ask for what a label has spent."""
        self._system = system

    # -- the seams

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal], /) -> Proposal:
        """Reserve the call, or end the turn."""
        proposal = await next(proposal)
        ledger = await self._ledger(ctx)
        if ledger is not None:
            tokens = proposal.settings.max_tokens or 0
            price = self._price(proposal.provider or "", proposal.model or "")
            wanted = Spent(1, tokens, price.of(Usage(output=tokens)) if price is not None else 0.0)
            self._check(ctx, ledger, wanted)
            ledger.reserve(ctx.id, wanted)
        return proposal

    async def stream(
        self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]], /
    ) -> AsyncIterator[Chunk]:
        """Let the reservation give way to what the call cost."""
        usage = NO_USAGE
        try:
            async for chunk in next(request):
                if type(chunk) is UsageChunk:
                    usage = chunk.usage
                yield chunk
        finally:
            ledger = self._ledgers.get(self._key(ctx) or ("", ""))
            price = self._price(request.provider, request.model)
            if ledger is not None:
                ledger.settle(ctx.id, Spent(1, usage.total, price.of(usage) if price is not None else 0.0), self._now(ctx))

    # -- what counts together

    def _key(self, ctx: SeamContext) -> tuple[str, str] | None:
        if self._label is None:
            return "agent", ctx.owner_of(self)
        value = ctx.labels.get(self._label)
        return None if value is None else (self._label, value)

    async def _ledger(self, ctx: SeamContext) -> Ledger | None:
        key = self._key(ctx)
        if key is None:
            return None
        ledger = self._ledgers.get(key)
        if ledger is None:
            ledger = self._ledgers.setdefault(key, Ledger(self._window_s, self._now(ctx), await self._spent_before(ctx, key)))
        if self._label is None and self._window_s is None and ctx.id == key[1] and ledger.turn != ctx.turn:
            if ledger.turn is not None:
                ledger.begin(self._now(ctx))
            ledger.turn = ctx.turn
        return ledger

    async def _spent_before(self, ctx: SeamContext, key: tuple[str, str]) -> Spent:
        if self._window_s is not None:
            return Spent()
        if self._label is None:
            return await spent_in_turn(ctx, key[1])
        usage = await self._system.usage(labels={self._label: key[1]})
        return Spent(0, usage.total, 0.0)

    def _price(self, provider: str, model: str) -> Price | None:
        price = self._prices.get(f"{provider}:{model}") or self._prices.get(provider)
        if price is None and self._cost is not None:
            raise UsageError(f"Budget(cost=...) has no price for {provider}:{model}; add it to prices")
        return price

    def _check(self, ctx: SeamContext, ledger: Ledger, wanted: Spent) -> None:
        now = self._now(ctx)
        spent = ledger.total(now, but=ctx.id)
        bounds = (
            ("steps", self._steps, spent.steps + wanted.steps),
            ("tokens", self._tokens, spent.tokens + max(wanted.tokens, 1)),
            ("cost", self._cost, spent.cost + wanted.cost),
            ("wall_s", self._wall_s, now - ledger.since),
        )
        for name, bound, would_be in bounds:
            if bound is not None and (would_be > bound or bound == 0):
                raise LimitReached(name, f"the budget of {bound:g} {name} is spent ({spent})", agent=ctx.id, turn=ctx.turn)

    def _now(self, ctx: SeamContext) -> float:
        return ctx.now.timestamp()
