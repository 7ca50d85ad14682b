"""`callboard chat [STATE]`: talk to an agent, at a terminal or through a pipe. Killed and started again, it goes on."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import Any

from ...actors.agent import Agent
from ...actors.models.installed import offered
from ...actors.plugins import Commands, chat_plugins
from ...actors.system import System
from ...actors.tools import tool
from .chatting.offline import NAME, PROVIDER, Parrot
from .chatting.pipe import pipe
from .chatting.session import Session
from .chatting.terminal import Terminal, is_terminal, wants_colour
from .loading import Loaded, load_agent
from .output import Output
from .problems import OK, Refused

SYSTEM = "You are a helpful assistant in a terminal. Answer briefly and plainly."
ID = "chat"


@tool(replay="safe")
async def clock() -> str:
    """The date and the time here."""
    return datetime.now().astimezone().strftime("%A, %d %B %Y, %H:%M:%S %Z")


async def command(arguments: argparse.Namespace, output: Output) -> int:
    """Open the agent and talk; at a terminal when a person sits there."""
    agent, deps, models = _loaded(arguments)
    own = agent.plugins if agent.plugins is not None else ()
    extra = [] if any(isinstance(plugin, Commands) for plugin in own) else [Commands()]
    known = {PROVIDER: Parrot(), **(models or {})}
    async with System.open(arguments.state, agents=[agent], deps=deps, models=known, plugins=extra, grace=0) as system:
        ref = await system.spawn(agent, id=arguments.id or agent.name)
        if output.json or not is_terminal():
            return await pipe(system, ref, output)
        terminal = Terminal(colour=wants_colour())
        name = _name_of(agent)
        await Session(system, ref, terminal, model=name, about=_about(arguments.state, ref.id, name)).run()
        if ref.status == "running":
            output.notice("The answer is not finished; it goes on when you come back.")
    return OK


def _loaded(arguments: argparse.Namespace) -> Loaded:
    """The agent of a file with what it has beside it, or one for the model."""
    if arguments.agent and arguments.model:
        raise Refused("--agent FILE:NAME brings its own model; leave --model away")
    if arguments.agent:
        loaded = load_agent(arguments.agent)
        return loaded._replace(agent=_with_plugins(loaded.agent))
    model = arguments.model or NAME
    if model in offered():
        raise Refused(f"--model {model} names a provider and none of its models; write --model {model}:NAME")
    if ":" not in model:
        raise Refused(f"--model {model} names no provider; write --model openai:{model}, or --model anthropic:{model}")
    return Loaded(_with_plugins(Agent(ID, model=model, system=SYSTEM, tools=[clock])), None, None)


def _with_plugins(agent: Agent[Any, Any]) -> Agent[Any, Any]:
    """As behind a channel: one that names no plugins takes commands, and summarises."""
    return agent.replace(plugins=chat_plugins()) if agent.plugins is None else agent


def _name_of(agent: Agent[Any, Any]) -> str:
    model = agent.model
    return model if isinstance(model, str) else f"{model.provider}:{model.name}" if model is not None else "no model"


def _about(state: str, id: str, model: str) -> str:
    kept = "kept in memory" if state == ":memory:" else f"kept in {state}"
    if model == NAME:
        return f"{id}, {kept}.\nNo model was named: a small program answers. --model openai:NAME asks a real one."
    return f"{id} ({model}), {kept}."
