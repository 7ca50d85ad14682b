"""Agents as tools: a system's agents behind an MCP server, for any client that speaks MCP.

Each definition is one tool, `ask(text, session?)`: a session is one agent, which remembers; without one each call is a new
conversation, and the answer says by which name it goes on. The client's cancel cancels the turn; a client that just goes away
does not: the turn goes on, and its session has the answer. A client that wants to hear of progress is sent the text as it is
written. Everything else is an agent like any other: in the log, and back after a restart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import trio

from ...actors.agent import Agent
from ...actors.content import mint_id
from ...actors.failures import said
from ...actors.ref import AgentRef
from ...actors.streams import DELTA_TYPES, DeltaFold
from ...actors.system import System
from ...actors.values import Outcome, explain
from ...storage.errors import CallboardError, UsageError
from ...storage.events import InboxClaim
from ...storage.messages import Message, TextBlock
from .library import library
from .names import LONGEST, free

SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "What to ask or tell the agent."},
        "session": {
            "type": "string",
            "description": "Goes on with a conversation: the session that an earlier answer named, or any name of your own.",
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}
"""The arguments of every tool."""
ANSWER: Mapping[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "session": {"type": "string"}},
    "required": ["text", "session"],
}
"""What every tool answers, beside the text itself."""
LAST_WORDS_S = 1.0
"""How long the report of a turn's text may go on once the turn is over."""
LONGEST_SESSION = 200
"""Characters of a session's name."""


def agents_server(
    system: System,
    agents: Sequence[Agent[Any, Any]] = (),
    *,
    name: str = "callboard",
    prefix: str = "mcp/",
    descriptions: Mapping[str, str] | None = None,
    timeout: float | None = None,
) -> Any:
    """The SDK's `Server` with one tool for each definition; serve it with `serve_stdio`, or `.streamable_http_app()`.

    Args:
        system: an open system; it must outlive the server.
        agents: the definitions to offer; all that the system knows if there are none.
        name: what the server calls itself.
        prefix: what the ids of its agents begin with: `mcp/planner/SESSION`. Clients reach no others.
        descriptions: what a client reads about an agent, by its name.
        timeout: seconds that a client waits for one turn; then it gets an error, and the turn goes on.

    Raises:
        UsageError: the SDK is not installed.
    """
    library()
    from importlib.metadata import version

    from mcp.server.lowlevel import Server

    desk = _Desk(system, agents, prefix, descriptions or {}, timeout)
    return Server(name, version=version("callboard"), on_list_tools=desk.list_tools, on_call_tool=desk.call_tool)


class _Desk:
    """What the server does for its clients."""

    def __init__(
        self,
        system: System,
        agents: Sequence[Agent[Any, Any]],
        prefix: str,
        descriptions: Mapping[str, str],
        timeout: float | None,
    ) -> None:
        self._system, self._agents, self._prefix = system, tuple(agents), prefix
        self._descriptions, self._timeout = descriptions, timeout

    def _tools(self) -> dict[str, Agent[Any, Any]]:
        """The definitions by the names of their tools."""
        found: dict[str, Agent[Any, Any]] = {}
        for agent in self._agents or self._system.definitions.values():
            found[free(re.sub(r"[^a-zA-Z0-9_-]", "_", agent.name)[:LONGEST], found)] = agent
        return found

    async def list_tools(self, ctx: Any, params: Any) -> Any:
        """The tools, as MCP lists them."""
        import mcp_types as types

        tools = [
            types.Tool(
                name=name,
                description=self._descriptions.get(agent.name, f"Ask the agent {agent.name!r}."),
                input_schema=dict(SCHEMA),
                output_schema=dict(ANSWER),
            )
            for name, agent in self._tools().items()
        ]
        return types.ListToolsResult(tools=tools)

    async def call_tool(self, ctx: Any, params: Any) -> Any:
        """Ask the agent, and tell what it said."""
        agent = self._tools().get(params.name)
        try:
            if agent is None:
                raise UsageError(f"there is no tool {params.name!r}; there are: {', '.join(self._tools()) or 'none'}")
            text, session = _arguments(params.arguments or {})
            outcome = await self._ask(ctx, agent, text, session)
        except CallboardError as error:
            return _result(said(error), failed=True)
        if not outcome.ok:
            return _result(f"The turn of {agent.name!r} {explain(outcome.reason)}. {outcome.text}".strip(), session, failed=True)
        return _result(_text(outcome), session)

    async def _ask(self, ctx: Any, agent: Agent[Any, Any], text: str, session: str) -> Outcome[Any]:
        ref = await self._system.spawn(agent, id=f"{self._prefix}{agent.name}/{session}")
        message = Message(mint_id(), "user", (TextBlock(text),))
        if not _wants_progress(ctx):
            return await self._wait(ctx, ref, message)
        outcome: Outcome[Any] | CallboardError
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_report, ctx, ref, message.id)
            try:
                outcome = await self._wait(ctx, ref, message)
            except CallboardError as error:  # raised again outside the nursery, which would wrap it
                outcome = error
            nursery.cancel_scope.deadline = trio.current_time() + LAST_WORDS_S
        if isinstance(outcome, CallboardError):
            raise outcome
        return outcome

    async def _wait(self, ctx: Any, ref: AgentRef[Any], message: Message) -> Outcome[Any]:
        try:
            return await ref.ask(message, timeout=self._timeout)
        except trio.Cancelled:
            if _cancel_was_asked_for(ctx):
                with trio.CancelScope(shield=True):
                    await ref.cancel("user", keep_inbox=True)
            raise


def _wants_progress(ctx: Any) -> bool:
    return ctx.meta is not None and ctx.meta.get("progress_token") is not None


def _cancel_was_asked_for(ctx: Any) -> bool:
    """Whether the client said so, and has not only gone. The SDK tells handlers nothing but that they are cancelled."""
    request = getattr(ctx.session, "_request_outbound", None)
    event = getattr(request, "cancel_requested", None)
    return event is not None and bool(event.is_set())


async def _report(ctx: Any, ref: AgentRef[Any], message_id: str) -> None:
    """The text of the turn that takes the message, as it is written."""
    fold, ours, sent = DeltaFold(), False, 0
    async for record in ref.follow(after=None, types=DELTA_TYPES | {"inbox/claim"}):
        if isinstance(record.event, InboxClaim):
            ours = ours or message_id in record.event.ids
            continue
        delta = fold.feed(record)
        if delta is None or not ours:
            continue
        if delta.kind == "end":
            return
        if delta.kind == "text":
            sent += len(delta.text)
            await ctx.session.report_progress(sent, message=delta.text)


def _arguments(given: Mapping[str, Any]) -> tuple[str, str]:
    """Text and session, as the schema has them.

    Raises:
        UsageError: something else was sent.
    """
    unknown = ", ".join(repr(name) for name in given if name not in ("text", "session"))
    text, session = given.get("text"), given.get("session")
    if unknown or not isinstance(text, str) or not text.strip():
        raise UsageError(f"the arguments are `text`, and `session` if you like{f'; not {unknown}' if unknown else ''}")
    if session is None:
        return text, mint_id()
    if not isinstance(session, str) or not 0 < len(session) <= LONGEST_SESSION:
        raise UsageError(f"a session is a name of up to {LONGEST_SESSION} characters, as an earlier answer gave it")
    return text, session


def _text(outcome: Outcome[Any]) -> str:
    """The answer's text; an agent with an output gives it as JSON."""
    return outcome.text if outcome.output is None else msgspec.json.encode(outcome.output).decode()


def _result(text: str, session: str | None = None, *, failed: bool = False) -> Any:
    import mcp_types as types

    structured = None if session is None or failed else {"text": text, "session": session}
    content: list[Any] = [types.TextContent(type="text", text=text)]
    return types.CallToolResult(content=content, structured_content=structured, is_error=failed)
