"""Shared by the tests of callboard.net.aio: they run asyncio themselves, in a plain function, because pytest runs trio here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

from callboard.actors.agent import Agent
from callboard.actors.testing.scripted import Reply, ScriptedModel

PATIENCE_S = 20


def on_loop(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run it as a program would, and see that no thread of a system is left behind."""

    async def timed() -> Any:
        return await asyncio.wait_for(main(), PATIENCE_S)

    result = asyncio.run(timed())
    assert not threads_of_systems()
    return result


def threads_of_systems() -> list[str]:
    """The threads in which a system or a client lives."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("callboard: ")]


def make(*replies: Any, **options: Any) -> Agent[Any, Any]:
    """An agent that plays these replies, without any plugin."""
    script: Any = replies[0] if len(replies) == 1 and callable(replies[0]) else [_reply(reply) for reply in replies]
    return Agent("demo", model=ScriptedModel(script), plugins=()).replace(**options)


def _reply(reply: Any) -> Reply:
    return Reply.text(reply) if isinstance(reply, str) else reply
