"""What-ifs: an attempt again from some point, under another definition or on another model."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from ...actors.agent import Agent
from ...actors.answers import Proposal
from ...actors.models.model import Model
from ...actors.plugins.defaults import default_plugins
from ...actors.ref import AgentRef
from ...actors.seams import Next, Plugin, SeamContext
from ...actors.system import System
from ...storage.errors import UsageError
from ...storage.events import StepStart


class OnModel(Plugin):
    """Every request goes to this model: in the middle of a turn the last header would decide, and that names the old one."""

    def __init__(self, provider: str, name: str) -> None:
        self._provider, self._name = provider, name

    async def request(self, ctx: SeamContext, proposal: Proposal, next: Next[Proposal, Proposal], /) -> Proposal:
        """Propose the model."""
        return await next(structs.replace(proposal, provider=self._provider, model=self._name))


def on_model(agent: Agent[Any, Any], model: str | Model | None, step: int | None) -> Agent[Any, Any]:
    """The definition for a what-if: on `model`, also for requests of a turn that is open already."""
    if model is None:
        return agent
    named = agent.replace(model=model)
    if step is None:
        return named
    provider, name = model.split(":", 1) if isinstance(model, str) and ":" in model else _bound(model)
    plugins = default_plugins() if agent.plugins is None else list(agent.plugins)
    return named.replace(plugins=[*plugins, OnModel(provider, name)])


def _bound(model: str | Model) -> tuple[str, str]:
    if isinstance(model, Model) and model.name is not None:
        return model.provider, model.name
    raise UsageError(f"{model!r} names no model; write 'provider:name', or bind the adapter: .named('NAME')")


async def fork_before(system: System, source: str, id: str, agent: Agent[Any, Any], step: int | None) -> AgentRef[Any]:
    """The fork `id` of an attempt, running: made if it is not there, found and gone on with if it is.

    Raises:
        UsageError: the attempt has no such step.
    """
    if await system.store.head(id) is not None:
        ref = await system.spawn(agent, id=id)
        await ref.resume()
        return ref
    origin = await system.get(source)
    if step is None:
        return await origin.fork(turn=1, id=id, agent=agent, rerun=True)
    ref = await origin.fork(at=await _before_step(system, source, step), id=id, agent=agent)
    await ref.resume()
    return ref


async def _before_step(system: System, source: str, step: int) -> int:
    async for record in system.store.read(source, types={"step/start"}):
        if isinstance(record.event, StepStart) and (record.event.turn, record.event.step) == (1, step):
            return record.seq - 1
    raise UsageError(f"the attempt {source!r} has no step {step}", agent=source, step=step)
