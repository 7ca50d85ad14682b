"""Budget: what may be spent, in steps, tokens, money and time, by one agent, its tree, or all agents with a label.

A model call is counted before it is made: its step, and as many tokens as it may answer with (its `max_tokens`), are reserved,
and give way to what it really cost once that is known. So a parent and children that run side by side cannot overspend together:
a call that finds no room beside those that run waits for them, and one that finds none even without them ends its turn with
`limit`. Without `max_tokens` nobody knows what a call will answer, and those that run side by side may go over by that much.

What counts together, and for how long:

* `tree=True`: the agent that carries the budget and all below it, within one turn of that agent. What its children do between
  its turns counts with the turn before. In `System.open(plugins=[...])` it is one budget for each tree.
* `tree=False`: each agent alone, within one of its turns.
* `label="customer"`: every agent whose label has the same value, since ever.
* `window_s`: any of these, but what was spent in the last so many seconds instead.

0 means none, None means no bound. Each attempt is a step, and so is a plugin's own call (`ctx.model`). The bounds are looked at
before a call: one that runs is not cut, and `wall_s` includes the time that a turn waits for people. After a restart what was
spent is read from the logs; an agent that was deleted takes what it spent with it, but for what its parent's log knows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
import trio

from ...storage.errors import UsageError
from ...storage.messages import NO_USAGE, Chunk, Request, Usage, UsageChunk
from ..answers import LimitReached, Proposal, ToolCall, Verdict
from ..seams import Next, Plugin, SeamContext
from .ledger import Books, Entry, Ledger, Reservation, Spent

STEPS_OF_A_TURN = 100
"""The generous bound of steps that a budget of turns has by itself."""
KEEP = 10_000
"""Ledgers in memory; past that those that were used least lately go, and come back from the logs."""
Key = tuple[str, str]
"""Whose: `turn` and the agent, or a label and its value."""


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
        steps: int | msgspec.UnsetType | None = msgspec.UNSET,
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
            steps: model calls; 100 by default for a budget of turns, no bound for one with a label or a window.
            tokens: of all kinds.
            cost: money, by `prices`.
            wall_s: seconds since the turn began; not with a label or a window.
            tree: count children with the agent.
            label: count all agents together whose label of this name has the same value; others are not bounded.
            window_s: count what was spent in the last so many seconds.
            prices: "provider:model" or "provider" → (input, output) for a million tokens.

        Raises:
            UsageError: a bound is negative or does not go with the others, or a cost has no prices.
        """
        self._per_turn = label is None and window_s is None
        if isinstance(steps, msgspec.UnsetType):
            steps = STEPS_OF_A_TURN if self._per_turn else None
        for name, value in (("steps", steps), ("tokens", tokens), ("cost", cost), ("wall_s", wall_s), ("window_s", window_s)):
            if value is not None and not value >= 0:
                raise UsageError(f"Budget({name}={value}) is negative; 0 means none, None means no bound")
        if cost is not None and prices is None:
            raise UsageError("Budget(cost=...) needs prices={'provider:model': (input, output)} for a million tokens")
        if wall_s is not None and not self._per_turn:
            raise UsageError("Budget(wall_s=...) bounds a turn, which a label and a window_s know nothing of; use two budgets")
        self._steps, self._tokens, self._cost, self._wall_s = steps, tokens, cost, wall_s
        self._label, self._window_s, self._tree = label, window_s, tree
        self._prices = {name: Price(*price) for name, price in (prices or {}).items()}
        self._ledgers: dict[Key, Ledger] = {}
        self._held: dict[str, Reservation] = {}
        """What each agent has reserved for its coming call; a loop makes one at a time."""
        self._reading = trio.Lock()
        self._system: Any = None
        self.inherited = tree and label is None

    def __repr__(self) -> str:
        bounds = {"steps": self._steps, "tokens": self._tokens, "cost": self._cost, "wall_s": self._wall_s}
        shown = ", ".join(f"{name}={value:g}" for name, value in bounds.items() if value is not None)
        return f"Budget({shown})"

    async def on_start(self, system: Any) -> None:
        """Remember whose index to ask for what a label has spent; begin with empty books."""
        self._system = system
        self._ledgers, self._held = {}, {}

    # -- the seams

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal], /) -> Proposal:
        """Reserve the call, or end the turn."""
        proposal = await next(proposal)
        self._release(ctx.id)
        if ctx.local.get(self) != ctx.turn:
            ctx.local[self] = ctx.turn
            ctx.at_turn_end(partial(self._turn_over, ctx.id))
        reservation = await self._reserve(ctx, proposal.provider or "", proposal.model or "", proposal.settings.max_tokens)
        if reservation is not None:
            self._held[ctx.id] = reservation
        return proposal

    async def stream(
        self, ctx: SeamContext, request: Request, next: Callable[[Request], AsyncIterator[Chunk]], /
    ) -> AsyncIterator[Chunk]:
        """Let the reservation give way to what the call cost. A plugin's own call has none yet."""
        reservation = self._held.pop(ctx.id, None) if request.turn else None
        if reservation is None and not request.turn:
            reservation = await self._reserve(ctx, request.provider, request.model, request.settings.max_tokens)
        usage = NO_USAGE
        try:
            async for chunk in next(request):
                if type(chunk) is UsageChunk:
                    usage = chunk.usage
                yield chunk
        finally:
            if reservation is not None:
                cost = self._costs(request.provider, request.model, usage)
                reservation.settle(Spent(1, usage.total, cost), _now(ctx))

    async def tool_before(self, ctx: SeamContext, call: ToolCall, next: Next[ToolCall, Verdict], /) -> Verdict:
        """The call is over; if a plugin further out answered it without a model, it was never made, and nobody waits for it."""
        self._release(ctx.id)
        return await next(call)

    def _release(self, agent: str) -> None:
        reservation = self._held.pop(agent, None)
        if reservation is not None:
            reservation.release()

    def _turn_over(self, agent: str) -> None:
        self._release(agent)
        ledger = self._ledgers.get(("turn", agent))
        if ledger is not None and self._per_turn:
            ledger.over = True
            if ledger.idle:
                del self._ledgers["turn", agent]

    # -- the decision

    async def _reserve(self, ctx: SeamContext, provider: str, model: str, max_tokens: int | None) -> Reservation | None:
        ledger = await self._ledger(ctx)
        if ledger is None:
            return None
        wanted = Spent(1, max_tokens or 1, self._costs(provider, model, Usage(output=max_tokens or 0)))
        while True:
            self._refuse(ctx, ledger, wanted)
            others = ledger.spent(_now(ctx)).plus(ledger.reserved).plus(wanted)
            if not _over(self._tokens, others.tokens) and not _over(self._cost, others.cost):
                return ledger.reserve(wanted)
            await ledger.freed.park()

    def _refuse(self, ctx: SeamContext, ledger: Ledger, wanted: Spent) -> None:
        """End the turn if there is no room, whatever the calls that run now will cost."""
        now = _now(ctx)
        spent = ledger.spent(now)
        for name, bound, used, more in (
            ("steps", self._steps, spent.steps + ledger.reserved.steps, 1),
            ("tokens", self._tokens, spent.tokens, wanted.tokens),
            ("cost", self._cost, spent.cost, wanted.cost),
            ("wall_s", self._wall_s, now - ledger.since, 0),
        ):
            if bound is not None and (used >= bound or used + more > bound):
                text = f"the budget of {bound:g} {name} has no room for this call: {used:g} are spent, and it may take {more:g}"
                raise LimitReached(name, text, agent=ctx.id, turn=ctx.turn)

    def _costs(self, provider: str, model: str, usage: Usage) -> float:
        price = self._prices.get(f"{provider}:{model}") or self._prices.get(provider)
        if price is not None:
            return price.of(usage)
        if self._cost is not None and usage.total:
            raise UsageError(f"Budget(cost=...) has no price for {provider}:{model}; add it to prices")
        return 0.0

    # -- what counts together

    def _key(self, ctx: SeamContext) -> Key | None:
        if self._label is None:
            return "turn", ctx.owner_of(self) if self._tree else ctx.id
        value = ctx.labels.get(self._label)
        return None if value is None else (self._label, value)

    async def _ledger(self, ctx: SeamContext) -> Ledger | None:
        key = self._key(ctx)
        if key is None:
            return None
        ledger = self._current(ctx, key)
        if ledger is None and self._per_turn and ctx.id == key[1] and not ctx.requests:
            ledger = Ledger(window_s=None, since=_now(ctx), turn=ctx.turn)  # nothing can have been spent
        if ledger is None:
            async with self._reading:
                ledger = self._current(ctx, key) or await self._read(ctx, key)
        self._ledgers.pop(key, None)
        self._ledgers[key] = ledger  # at the end: used last
        for oldest in [*self._ledgers][:2] if len(self._ledgers) > KEEP else ():
            if self._ledgers[oldest].idle:
                del self._ledgers[oldest]
        return ledger

    def _current(self, ctx: SeamContext, key: Key) -> Ledger | None:
        ledger = self._ledgers.get(key)
        if ledger is None or not self._per_turn:
            return ledger
        stale = ledger.turn != ctx.turn if ctx.id == key[1] else ledger.over and ledger.idle
        return None if stale else ledger

    async def _read(self, ctx: SeamContext, key: Key) -> Ledger:
        books = Books(ctx, self._costs, tree=self._tree and self._label is None)
        now = _now(ctx)
        if self._per_turn:
            turn, since, entries = await books.of_turn(key[1])
            return Ledger(window_s=None, since=since, turn=turn, before=entries)
        begin = 0.0 if self._window_s is None else now - self._window_s
        entries = await (books.since(key[1], begin) if self._label is None else self._of_label(books, key[1], begin))
        return Ledger(window_s=self._window_s, since=now, turn=0, before=entries)

    async def _of_label(self, books: Books, value: str, begin: float) -> list[Entry]:
        entries: list[Entry] = []
        by_index = self._window_s is None and self._steps is None and self._cost is None
        async for agent in self._system.agents(labels={self._label: value}):
            if by_index:
                entries.append((begin, Spent(0, agent.usage.total, 0.0)))
                entries.extend((await books.of_turn(agent.id))[2] if agent.status == "running" else ())
            elif agent.updated is not None and agent.updated.timestamp() >= begin:
                entries.extend(await books.since(agent.id, begin))
        return entries


def _over(bound: float | None, value: float) -> bool:
    return bound is not None and value > bound


def _now(ctx: SeamContext) -> float:
    return ctx.now.timestamp()
