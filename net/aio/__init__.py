"""Callboard for asyncio: the same surface, with a trio thread behind it.

    async with System.open("state", agents=[agent], deps=Deps(pool)) as system:
        ref = await system.spawn(agent, id="c-1")
        print(await ref.ask("Where is my order?"))

`System` and `connect` are those of `callboard` and `callboard.net`, to be awaited on an asyncio loop. `host` is the thread and
the way between the two; `handles` what stands for the objects over there; `tools` runs a `@tool(loop="asyncio")` on the loop that
opened the system. A call here is a call there: it raises what that raises, and cancelling one cancels the other. Type checkers
see the classes of trio themselves: a coroutine method has the same type in both worlds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...actors.ref import AgentRef
    from ...actors.system import System
    from ..client import Client, connect
else:
    from .handles import AgentRef, Client
    from .opening import System, connect

__all__ = ["AgentRef", "Client", "System", "connect"]
