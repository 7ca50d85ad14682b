"""Offers: the tools of one server as the loop knows tools, and how each is called.

A tool here holds no connection: its body looks for the server when it is called. So the same tool outlives a restart of the
server, and can be offered before the server is there at all.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import trio

from ...actors.texts import well_formed
from ...actors.tools.context import ToolContext
from ...actors.tools.output import ToolOutput
from ...actors.tools.tool import Approval, Mode, Tool, tool_from_schema
from ...storage.errors import ToolError
from ...storage.events.dialogue import Replay
from ...storage.messages import ToolSpec
from .connection import Connection
from .listing import Listed, Refusal, look_at
from .names import assign, free
from .results import MCP_ERROR, shortened, to_output

_log = logging.getLogger("callboard.mcp")
UNAVAILABLE = "MCP_UNAVAILABLE"
LOST = "MCP_LOST"
TOLD = 10
"""So many of the tools that are not offered are told one by one."""
PROGRESS_S = 1.0
"""At most one note of a call's progress in so many seconds, however many the server sends."""
_CLOSED = "Connection closed"
"""How the SDK says that the connection ended before the answer came."""
_SESSION_GONE = re.compile(r"\bsession\b.*\b(terminated|not found|expired|unknown|invalid)\b", re.IGNORECASE)
"""How servers over HTTP say that they do not know the session any more, each in its own words: they have not run the call."""


class Offers:
    """What one server offers, by the rules that were given for it."""

    connection: Connection | None = None

    def __init__(
        self,
        server: str,
        *,
        only: frozenset[str] | None,
        replay: Replay | Mapping[str, Replay] | None,
        mode: Mode | None,
        approval: Approval | None,
        timeout: float | None,
        wait_s: float,
    ) -> None:
        self._server, self._only, self._approval = server, only, approval
        self._replay: Replay | Mapping[str, Replay] | None = replay
        self._mode: Mode | None = mode
        self._timeout, self._wait_s = timeout, wait_s
        self._names: dict[str, str] = {}
        self._listed: dict[str, Listed] = {}
        """By the name here."""
        self._tools: dict[str, Tool[..., Any]] = {}
        self._refused: frozenset[str] = frozenset()
        self.known = False
        """Whether the server itself has said what it has."""

    def take(self, tools: Sequence[Any]) -> None:
        """The list as the server gives it now."""
        listed, refused = look_at(tools, self._only)
        self._tell_of([one for one in refused if one.name not in self._refused])
        self._refused = frozenset(one.name for one in refused)
        names = assign(self._server, (tool.name for tool in listed), self._names)
        self._names |= names
        before, self._listed = self._listed, {names[tool.name]: tool for tool in listed}
        made = self._tools if self.known else {}
        self._tools = {
            name: made[name] if name in made and before.get(name) == tool else self._tool(name, tool)
            for name, tool in self._listed.items()
        }
        self.known = True

    def _tell_of(self, refused: Sequence[Refusal]) -> None:
        for one in refused[:TOLD]:
            _log.warning("tool %r of MCP server %r is not offered: %s", one.name[:100], self._server, one.why)
        if len(refused) > TOLD:
            _log.warning("%d more tools of MCP server %r are not offered", len(refused) - TOLD, self._server)

    def remember(self, specs: Sequence[ToolSpec]) -> None:
        """Tools that a request offered before this process began; they stand in until the server lists its own."""
        if not self.known:
            for spec in specs:
                self._tools.setdefault(spec.name, self._make(spec.name, spec.name, spec.description, dict(spec.schema)))

    def beside(self, taken: Collection[str]) -> tuple[Tool[..., Any], ...]:
        """The tools, by names that are not taken."""
        names = set(taken)
        offered: list[Tool[..., Any]] = []
        for name, tool in self._tools.items():
            own = free(name, names)
            names.add(own)
            offered.append(tool if own == name else self._renamed(tool, own))
        return tuple(offered)

    # -- making tools

    def _tool(self, name: str, listed: Listed) -> Tool[..., Any]:
        replay = self._replay_of(listed)
        by_hint: Mode = "parallel" if listed.reads else "exclusive"
        return self._make(name, name, listed.description, listed.schema, replay=replay, mode=self._mode or by_hint)

    def _replay_of(self, listed: Listed) -> Replay:
        by_hint: Replay = "safe" if listed.repeatable else "never"
        if isinstance(self._replay, Mapping):
            return self._replay.get(listed.name, by_hint)
        return self._replay or by_hint

    def _renamed(self, tool: Tool[..., Any], name: str) -> Tool[..., Any]:
        return self._make(tool.name, name, tool.description, tool.schema, replay=tool.replay, mode=tool.mode)

    def _make(
        self,
        key: str,
        name: str,
        description: str,
        schema: dict[str, Any],
        *,
        replay: Replay = "never",
        mode: Mode = "exclusive",
    ) -> Tool[..., Any]:
        async def call(ctx: ToolContext[Any], arguments: dict[str, Any]) -> ToolOutput:
            return await self._call(ctx, key, arguments, again=replay == "safe")

        call.__name__ = name
        return tool_from_schema(
            call,
            name=name,
            description=description,
            schema=schema,
            mode=mode,
            replay=replay,
            timeout=self._timeout,
            approval=self._approval,
        )

    # -- calling

    async def _call(self, ctx: ToolContext[Any], name: str, arguments: dict[str, Any], *, again: bool) -> ToolOutput:
        """Call it on the server that is up; one that vanishes is waited for once more if the call may be made again."""
        client = await self._ready(None)
        try:
            return await self._call_on(client, ctx, name, arguments)
        except _Vanished as vanished:
            if not (again or vanished.untouched):
                raise ToolError(
                    f"The server of {name} went away during the call, and is being started again. Whether the call took effect "
                    "is unknown: look before you repeat it.",
                    code=LOST,
                ) from vanished
        try:
            return await self._call_on(await self._ready(client), ctx, name, arguments)
        except _Vanished as vanished:
            raise ToolError(f"The server of {name} went away twice during this call; go on without it.", code=LOST) from vanished

    async def _ready(self, failed: Any) -> Any:
        connection = self.connection
        client = None if connection is None else await connection.ready(self._wait_s, other_than=failed)
        if client is None:
            why = "the system is closing" if connection is None else connection.problem
            text = f"The MCP server {self._server!r} is not there: {shortened(why)}. Go on without its tools, or try again later."
            raise ToolError(text, code=UNAVAILABLE)
        return client

    async def _call_on(self, client: Any, ctx: ToolContext[Any], name: str, arguments: dict[str, Any]) -> ToolOutput:
        from mcp import MCPError

        listed, connection = self._listed.get(name), self.connection
        if listed is None or connection is None:
            raise ToolError(f"The server {self._server!r} has no tool {name} any more.", code="UNKNOWN_TOOL")
        try:
            result = await client.call_tool(listed.name, arguments, progress_callback=_Progress(ctx))
        except MCPError as error:
            forgotten = _SESSION_GONE.search(error.message) is not None
            if forgotten or error.message == _CLOSED:
                connection.drop(client)
                raise _Vanished(untouched=forgotten) from error
            connection.stir()
            raise ToolError(f"{name} was refused: {shortened(error.message)}", code=MCP_ERROR) from error
        except trio.Cancelled:
            connection.stir()  # it may hang: the connection looks
            raise
        except (RuntimeError, ValueError) as error:
            if connection.client is not client:
                raise _Vanished(untouched=False) from error
            # What came back is not what the server's own schema says.
            text = f"{name} sent a result that is not what it promised: {shortened(str(error))}. The call itself may have worked."
            raise ToolError(text, code=MCP_ERROR) from error
        return to_output(result, tool=name)


class _Vanished(Exception):
    """The server went away during a call; `untouched` if it surely has not run it."""

    def __init__(self, *, untouched: bool) -> None:
        super().__init__("the server went away")
        self.untouched = untouched


class _Progress:
    """Passes on how far a call is, now and then."""

    def __init__(self, ctx: ToolContext[Any]) -> None:
        self._ctx, self._next = ctx, 0.0

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        if trio.current_time() >= self._next:
            self._next = trio.current_time() + PROGRESS_S
            share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
            self._ctx.progress(well_formed((message or share)[:1_000]))
        await trio.lowlevel.checkpoint()
