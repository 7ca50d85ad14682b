"""A ledger: what was spent together, and what is reserved for calls that run."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from ...storage.errors import CallboardError
from ...storage.events import AssistantMessage, ChildEnded, ChildSpawned, RequestFailed, RequestSent, TurnStart
from ..seams import SeamContext


class Spent(NamedTuple):
    """Model calls, tokens, money."""

    steps: int = 0
    tokens: int = 0
    cost: float = 0.0

    def plus(self, other: Spent) -> Spent:
        """Both together."""
        return Spent(self.steps + other.steps, self.tokens + other.tokens, self.cost + other.cost)

    def __str__(self) -> str:
        cost = f", {self.cost:.4f} in money" if self.cost else ""
        return f"{self.steps} steps, {self.tokens} tokens{cost}"


class Ledger:
    """What counts together; with a window only what is recent does."""

    def __init__(self, window_s: float | None, now: float, before: Spent) -> None:
        self._window_s = window_s
        self._spent = before
        self._recent: deque[tuple[float, Spent]] = deque()
        self._reserved: dict[str, Spent] = {}
        self.since = now
        self.turn: int | None = None
        """The turn that this is the ledger of; None until the agent that carries the budget says."""

    def begin(self, now: float) -> None:
        """Another turn: nothing is spent. What still runs stays reserved."""
        self._spent, self.since = Spent(), now

    def reserve(self, agent: str, wanted: Spent) -> None:
        """A call of this agent is about to be made; it has one at a time."""
        self._reserved[agent] = wanted

    def settle(self, agent: str, spent: Spent, now: float) -> None:
        """The call is over: what it cost takes the place of what was reserved."""
        self._reserved.pop(agent, None)
        if self._window_s is None:
            self._spent = self._spent.plus(spent)
        else:
            self._recent.append((now, spent))

    def total(self, now: float, *, but: str = "") -> Spent:
        """Spent and reserved, less what is reserved for the agent `but`."""
        if self._window_s is not None:
            while self._recent and self._recent[0][0] <= now - self._window_s:
                self._recent.popleft()
            self.since = self._recent[0][0] if self._recent else now
        total = self._spent
        for _, spent in self._recent:
            total = total.plus(spent)
        for agent, reserved in self._reserved.items():
            total = total if agent == but else total.plus(reserved)
        return total


async def spent_in_turn(ctx: SeamContext, agent: str) -> Spent:
    """What the open turn of an agent has spent according to its log, children included; nothing if it has just begun."""
    total = Spent()
    children: set[str] = set()
    types = {"turn/start", "request/sent", "request/failed", "assistant/message", "child/spawned", "child/ended"}
    reader: Any = ctx.peer(agent).read(types=types)
    try:
        async for record in reader:
            match record.event:
                case TurnStart():
                    total = Spent()
                    children.clear()
                case RequestSent():
                    total = total.plus(Spent(steps=1))
                case RequestFailed(usage=usage) | AssistantMessage(usage=usage) if usage is not None:
                    total = total.plus(Spent(tokens=usage.total))
                case ChildSpawned(child=child):
                    children.add(child)
                case ChildEnded(child=child, usage=usage):
                    children.discard(child)
                    total = total.plus(Spent(tokens=usage.total))
                case _:
                    pass
    except CallboardError:
        return total  # it has no log of its own any more: nothing can be known
    for child in children:
        total = total.plus(await spent_in_turn(ctx, child))
    return total
