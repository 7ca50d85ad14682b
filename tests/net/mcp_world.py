"""Shared by the tests of MCP: a server in this process behind streams in memory, which can hang, die, and change its mind.

`Shop` is what the server has: tools by name, each a function of its arguments. `Wire` dials it, counts how often, can break the
connection, and can refuse to answer. Nothing is waited for in real time, so a mock clock drives all of it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import mcp_types as types
import trio
from mcp.server.lowlevel import NotificationOptions, Server

from callboard.actors.agent import Agent
from callboard.actors.testing.scripted import Reply, ScriptedModel
from callboard.net.mcp import McpServer
from callboard.storage.messages import Request

Body = Callable[[dict[str, Any]], Awaitable[Any]]
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}


def text(words: str, **rest: Any) -> types.CallToolResult:
    """A result of one text."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=words)], **rest)


@dataclass
class Shop:
    """What a server has. `calls` are those that it has begun."""

    bodies: dict[str, Body] = field(default_factory=dict[str, Body])
    tools: dict[str, types.Tool] = field(default_factory=dict[str, types.Tool])
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list[tuple[str, dict[str, Any]]])
    session: Any = None

    def add(self, name: str, body: Body | str, schema: dict[str, Any] | None = None, **about: Any) -> Shop:
        """One more tool; a text is what it answers."""

        async def answer(arguments: dict[str, Any]) -> types.CallToolResult:
            return text(str(body))

        self.bodies[name] = answer if isinstance(body, str) else body
        self.tools[name] = types.Tool(name=name, input_schema=EMPTY if schema is None else schema, **about)
        return self

    def server(self) -> Server[Any]:
        """The SDK's server over it."""

        async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
            self.session = ctx.session
            return types.ListToolsResult(tools=list(self.tools.values()))

        async def call_tool(ctx: Any, params: types.CallToolRequestParams) -> Any:
            self.calls.append((params.name, params.arguments or {}))
            return await self.bodies[params.name](params.arguments or {})

        return Server("shop", on_list_tools=list_tools, on_call_tool=call_tool)

    async def tell_of_changes(self) -> None:
        """As a server does whose tools are others now."""
        await self.session.send_tool_list_changed()


class Wire:
    """The way to a shop: what `McpServer(dial=)` takes."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.dialled = shop, 0
        self.closed = False
        """Whether nobody answers there."""
        self.mute = False
        """Whether it takes everything and answers nothing."""
        self._scopes: set[trio.CancelScope] = set()

    def cut(self) -> None:
        """Break the connection that is open."""
        for scope in self._scopes:
            scope.cancel()

    @asynccontextmanager
    async def __call__(self, gone: Callable[[], None], said: list[str]) -> AsyncGenerator[tuple[Any, Any]]:
        self.dialled += 1
        if self.closed:
            raise OSError("nobody there")
        to_client, read = anyio.create_memory_object_stream[Any](0)
        write, from_client = anyio.create_memory_object_stream[Any](0)
        async with read, write, to_client, from_client, trio.open_nursery() as nursery:
            nursery.start_soon(self._serve, from_client, to_client, gone)
            yield read, write
            nursery.cancel_scope.cancel()

    async def _serve(self, incoming: Any, outgoing: Any, gone: Callable[[], None]) -> None:
        server = self.shop.server()
        options = server.create_initialization_options(NotificationOptions(tools_changed=True))
        with trio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.mute:
                async for _ in incoming:
                    pass
            await server.run(incoming, outgoing, options)
        self._scopes.discard(scope)
        incoming.close()
        outgoing.close()
        gone()


def shop_agent(script: Any, wire: Wire, **options: Any) -> Agent[Any, Any]:
    """An agent with the shop's tools, and a model that plays these replies; a text is one that says it."""
    listed: Any = script if callable(script) else [Reply.text(r) if isinstance(r, str) else r for r in script]
    model = ScriptedModel(listed)
    return Agent("buyer", model=model, plugins=[McpServer("shop", wire, protocol="legacy", **options)])


def call(name: str, id: str = "c1", **arguments: Any) -> Reply:
    """One call of a tool of the shop."""
    return Reply.tools((id, f"shop__{name}", arguments))


async def results(ref: Any) -> list[Any]:
    """All results so far."""
    return [record.event async for record in ref.read(types={"tool/result"})]


def offered(agent: Agent[Any, Any], number: int = -1) -> dict[str, Any]:
    """The tools of a request, by name."""
    model: Any = agent.model
    request: Request = model.requests[number]
    return {tool.name: tool for tool in request.tools}
