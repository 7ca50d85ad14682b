"""McpServer: the tools of an MCP server, as a plugin of an agent or of a whole system.

    files = McpServer.stdio("files", "npx", "-y", "@modelcontextprotocol/server-filesystem", "/data")
    agent = Agent("librarian", model="openai:gpt-5", plugins=[*default_plugins(), files])

The server lives as long as the system (connection.py); what it offers joins the tools of every step (`assemble`). To the loop and
to recovery these are tools like any other: a call is in the log before it is made, and a started one is made again only if its
record says that this is safe. What a server is bound to do wrong costs one error result: it hangs, dies, forgets its session,
lists nonsense, or is not there at all.

While a server is down its tools stay on offer, or the model would find its tools gone in the middle of a turn: those listed last
or, after a restart, those that the agent's last request named. A call waits for the server a while and then says that it is not
there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import structs

from ...actors.answers import Assembly, ToolDefinition
from ...actors.seams import Next, Plugin, SeamContext
from ...actors.tools.tool import Approval, Mode
from ...storage.errors import UsageError
from ...storage.events import RequestHeader
from ...storage.events.dialogue import Replay
from ...storage.messages import ToolSpec
from .connection import Connection, Dial
from .library import library
from .lines import LONGEST
from .names import prefix_of
from .offers import Offers
from .programs import Program, running

CONNECT_S = 30


class McpServer(Plugin):
    """The tools of one MCP server. Made by `stdio` or `http`; give it to `Agent(plugins=)` or `System.open(plugins=)`."""

    def __init__(
        self,
        name: str,
        dial: Dial,
        *,
        only: Collection[str] | None = None,
        replay: Replay | Mapping[str, Replay] | None = None,
        mode: Mode | None = None,
        approval: Approval | None = None,
        timeout: float | None = None,
        start_s: float = 30,
        wait_s: float = 15,
        probe_s: float = 10,
        protocol: str = "auto",
    ) -> None:
        """A server behind any transport.

        Args:
            name: what it is called here; its tools are `name__tool`.
            dial: opens the transport; see `connection.Dial`.
            only: the names of the tools to offer, as the server has them; None for all.
            replay: what becomes of a call that a crash cut: for all tools, or by the server's names. By default one that the
                server calls read-only or idempotent is `safe`, any other `never`.
            mode: "parallel" or "exclusive"; by default those that only read run beside each other.
            approval: a question put to a person before each call, or `(ctx, call) -> Ask | None`.
            timeout: seconds of one call; None means `Limits.tool_timeout`.
            start_s: how long it may take to come up, and a first step waits for it.
            wait_s: how long a call waits for a server that is down.
            probe_s: how long it may take to list its tools when it is suspected to hang.
            protocol: "auto", "legacy", or a version: how the SDK negotiates.

        Raises:
            UsageError: the name is empty.
        """
        if not name or not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"an MCP server needs a name, which its tools are called by; {name!r} is none")
        self.name, self._dial = name, dial
        self._start_s, self._probe_s, self._protocol = start_s, probe_s, protocol
        self._offers = Offers(
            name,
            only=None if only is None else frozenset(only),
            replay=replay,
            mode=mode,
            approval=approval,
            timeout=timeout,
            wait_s=wait_s,
        )
        self._connection: Connection | None = None

    @classmethod
    def stdio(
        cls, name: str, *command: str, env: Mapping[str, str] | None = None, cwd: str | Path | None = None, **options: Any
    ) -> McpServer:
        """A server that is a program: started with the system, ended with it, started again when it dies.

        Args:
            name: what it is called here.
            command: the program and its arguments; no shell is involved.
            env: what it finds in its environment beside PATH, HOME and the like; nothing of ours else.
            cwd: where it runs.
            options: those of McpServer.

        Raises:
            UsageError: there is no command, or the name is empty.
        """
        if not command:
            raise UsageError(f"MCP server {name!r} has no command: McpServer.stdio({name!r}, 'program', 'argument', ...)")
        program = Program(command, env, cwd)
        return cls(name, lambda gone, said: running(program, name=name, gone=gone, said=said), **options)

    @classmethod
    def http(cls, name: str, url: str, *, headers: Mapping[str, str] | None = None, **options: Any) -> McpServer:
        """A server behind a URL (streamable HTTP).

        Args:
            name: what it is called here.
            url: its endpoint, as in `https://example.org/mcp`.
            headers: sent with every request, as `{"Authorization": "Bearer ..."}`.
            options: those of McpServer.

        Raises:
            UsageError: that is no URL, or the name is empty.
        """
        if not url.startswith(("http://", "https://")):
            raise UsageError(f"the URL of MCP server {name!r} is {url!r}; it begins with http:// or https://")
        return cls(name, lambda gone, said: _over_http(url, dict(headers or {})), **options)

    def __repr__(self) -> str:
        return f"McpServer({self.name!r})"

    @property
    def problem(self) -> str:
        """Why the server is not up; empty if it is."""
        return "the system is not open" if self._connection is None else self._connection.problem

    # -- seams

    async def on_start(self, system: Any) -> None:
        """Begin to connect, in a task of the system; nothing waits for it here."""
        if self._connection is not None:
            raise UsageError(f"{self!r} is in an open system already; make one for each system")
        library()
        connection = Connection(
            self.name,
            self._dial,
            self._offers.take,
            start_s=self._start_s,
            probe_s=self._probe_s,
            mode=self._protocol,
        )
        self._connection = self._offers.connection = connection
        system.start_task(connection.run, name=f"MCP server {self.name}")

    async def on_stop(self) -> None:
        """The task has ended, and the server with it."""
        self._connection = self._offers.connection = None

    async def assemble(self, ctx: SeamContext, assembly: Assembly, next: Next[Assembly, Assembly], /) -> Assembly:
        """Offer what the server has, under names that nobody else in this step has."""
        if self._connection is not None and not self._offers.known:
            await self._connection.first()
        if not self._offers.known:
            self._offers.remember(await self._last_offered(ctx, assembly.tools))
        taken = {tool.name for tool in assembly.tools}
        return await next(structs.replace(assembly, tools=(*assembly.tools, *self._offers.beside(taken))))

    async def _last_offered(self, ctx: SeamContext, others: Sequence[ToolDefinition]) -> Sequence[ToolSpec]:
        """What the agent's last request offered of this server: the list, where nobody else can give it."""
        if self not in ctx.local:
            headers = [record.event for record in await ctx.records({"request/header"})]
            kept = [event.header for event in headers if isinstance(event, RequestHeader) and event.header is not None]
            ctx.local[self] = kept[-1].tools if kept else ()
        own, specs = {tool.name for tool in others}, ctx.local[self]
        return [spec for spec in specs if spec.name.startswith(prefix_of(self.name)) and spec.name not in own]


@asynccontextmanager
async def _over_http(url: str, headers: dict[str, str]) -> AsyncGenerator[tuple[Any, Any]]:
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    # No deadline on reading: how long a call may take is for its tool to say.
    timeout = httpx2.Timeout(CONNECT_S, read=None)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=LONGEST) as streams,
    ):
        yield streams
