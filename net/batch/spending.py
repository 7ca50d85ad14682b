"""What an attempt cost: the tokens of every answer in its tree, and money by the prices of the models that gave them.

Counted are answers, not attempts at them: a request that a crash cut is in the log, but would make the figures of a run depend on
where it was killed. The judge's own spending is not the attempt's.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...actors.plugins.budget import Price
from ...actors.system import System
from ...storage.errors import UsageError
from ...storage.events import AssistantMessage
from ...storage.messages import NO_USAGE, ModelSource, Usage

Prices = Mapping[str, Price]


def prices_of(prices: Mapping[str, tuple[float, float]] | None) -> Prices:
    """The prices by model or provider.

    Raises:
        UsageError: a price is no pair of numbers.
    """
    try:
        return {name: Price(float(into), float(out)) for name, (into, out) in (prices or {}).items()}
    except (TypeError, ValueError) as error:
        raise UsageError("prices= is {'provider:model': (input, output)}, for a million tokens each") from error


async def spent(system: System, agent: str, prices: Prices) -> tuple[Usage, float | None]:
    """Tokens and money of the agent and of all below it, its judge aside; no money without prices.

    Raises:
        UsageError: a model that answered has no price.
    """
    usage, cost = NO_USAGE, 0.0
    for id in await _tree(system, agent):
        async for record in system.store.read(id, types={"assistant/message"}):
            said = record.event
            if isinstance(said, AssistantMessage) and said.usage is not None:
                usage = usage + said.usage
                cost += _price(prices, said.message.source).of(said.usage) if prices else 0.0
    return usage, cost if prices else None


async def _tree(system: System, agent: str) -> list[str]:
    judge = f"{agent}/judge"
    below = [summary.id async for summary in system.agents(prefix=f"{agent}/")]
    return [agent, *(id for id in below if id != judge and not id.startswith(f"{judge}/"))]


def _price(prices: Prices, source: object) -> Price:
    if not isinstance(source, ModelSource):
        return Price(0, 0)
    price = prices.get(f"{source.provider}:{source.model}") or prices.get(source.provider)
    if price is None:
        raise UsageError(f"prices= has none for '{source.provider}:{source.model}', which answered")
    return price
