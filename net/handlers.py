"""What each method does: checked parameters in, calls of the `System` and its handles, values out.

One function a method, found by its name; what a token may do has been checked but for the id, which each function that has one
checks by `agent`. Nothing here knows of connections: a call that outlives its connection (`ask` with `on_cancel="cancel"`) asks
`caller.gone`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
import trio
from msgspec import Raw, Struct

from ..actors.agent import Agent
from ..actors.content import mint_id
from ..actors.ref import AgentRef
from ..actors.system import System
from ..actors.values import AgentSummary, Status
from ..storage.digest import message_line
from ..storage.errors import AgentNotFound, AskTimeout, DefinitionMissing, UsageError
from ..storage.messages import NO_USAGE, File, Image, Message
from ..storage.rebuild import rebuild
from .access import Grant
from .feeds import Feeds
from .wire import methods as m

MOST = 1000
"""The most entries of one page of agents."""
LOOKED = 5000
"""How many agents one page looks at, for those that are wanted: whoever searches for what is rare asks again, and others come
between."""
MOST_BYTES = 256 * 1024
"""About how much of a request's messages goes into one answer."""
NAMED_BYTES = 8 * 1024
"""How much the labels of an agent may take, and what a message is called, from whom and from where it comes: all of them are
told again and again, in lists and receipts, to whoever asks."""


class Caller:
    """Who waits for an answer. `gone`: nobody does any more, since the connection was lost or the client said so."""

    def __init__(self) -> None:
        self.gone = False


class Desk(Struct, frozen=True):
    """What the methods of one connection work on."""

    system: System
    grant: Grant
    feeds: Feeds

    async def agent(self, id: str) -> AgentRef[Any]:
        """The handle of an agent that the token is for.

        Raises:
            Unauthorized: the token is not for this id.
            AgentNotFound: there is no such agent.
        """
        self.grant.check_agent(id)
        return await self.system.get(id)

    async def view(self, id: str) -> AgentRef[Any]:
        """The handle of an agent to look at, also of one that cannot run here.

        Raises:
            Unauthorized: the token is not for this id.
            AgentNotFound: there is no such agent.
        """
        self.grant.check_agent(id)
        return await self.system.look(id)

    def definition(self, name: str) -> Agent[Any, Any]:
        """A definition by its name.

        Raises:
            DefinitionMissing: the service has none of this name.
        """
        known = self.system.definitions
        if name not in known:
            raise DefinitionMissing(f"this service has no definition {name!r}; it has {', '.join(sorted(known)) or 'none'}")
        return known[name]


def check_named(what: str, *named: Any) -> None:
    """Make sure that what only names something is short.

    Raises:
        UsageError: it is not.
    """
    size = len(msgspec.json.encode(named))
    if size > NAMED_BYTES:
        raise UsageError(f"{what} may take {NAMED_BYTES:,} bytes, and here are {size:,}; what an agent is to read is content")


def check_media(content: m.WireContent) -> None:
    """Make sure that pictures and files come with their bytes or as an address: whoever could name a blob by its digest would
    read that of anybody's log, and a model would be shown it.

    Raises:
        UsageError: one names a blob.
    """
    if any(isinstance(block, Image | File) and block.data is None and block.blob is not None for block in content):
        raise UsageError("a picture or file names a blob, which a client cannot send; give its bytes as data, or a url")


Handler = Callable[[Desk, Any, Caller], Awaitable[Any]]


# -- looking


async def _get(desk: Desk, params: m.OnAgent, caller: Caller) -> m.Known:
    return await _known(await desk.view(params.agent))


async def _known(ref: AgentRef[Any]) -> m.Known:
    info = await ref.info()
    return m.Known(ref.id, info.definition, info.status)


async def _agents(desk: Desk, params: m.Agents, caller: Caller) -> m.AgentsPage:
    prefix, limit = desk.grant.narrow(params.prefix), min(max(params.limit, 1), MOST)
    if prefix is None:
        return m.AgentsPage([])
    found: list[AgentSummary] = []
    looked, upto = 0, params.after
    # Labels are compared here: the index has no order for them either, and would look at every agent for one page.
    apart: Status | None = "running" if params.status == "running" else None  # whom the index has apart
    async for agent in desk.system.agents(prefix, waiting=params.waiting, status=apart, after=params.after):
        if looked == LOOKED or len(found) == limit:
            return m.AgentsPage(found, True, upto, looked)
        looked, upto = looked + 1, agent.id
        if _wanted(agent, params):
            found.append(agent)
    return m.AgentsPage(found, False, upto, looked)


def _wanted(agent: AgentSummary, params: m.Agents) -> bool:
    if params.status is not None and agent.status != params.status:
        return False
    if any(agent.labels.get(key) != value for key, value in (params.labels or {}).items()):
        return False
    text = (params.text or "").casefold()
    return text in agent.id.casefold() or text in agent.name.casefold()


async def _usage(desk: Desk, params: m.Selection, caller: Caller) -> Any:
    prefix = desk.grant.narrow(params.prefix)
    return NO_USAGE if prefix is None else await desk.system.usage(prefix, labels=params.labels)


async def _info(desk: Desk, params: m.OnAgent, caller: Caller) -> Any:
    return await (await desk.view(params.agent)).info()


async def _messages(desk: Desk, params: m.OnAgent, caller: Caller) -> Any:
    return list(await (await desk.view(params.agent)).messages())


async def _pending(desk: Desk, params: m.OnAgent, caller: Caller) -> Any:
    return await (await desk.view(params.agent)).pending()


async def _outcome(desk: Desk, params: m.OutcomeOf, caller: Caller) -> Any:
    if (params.message_id is None) == (params.turn is None):
        raise UsageError("outcome takes message_id or turn, one of the two", agent=params.agent)
    ref = await desk.agent(params.agent)
    return await ref.outcome(params.message_id, turn=params.turn, timeout=params.timeout)


async def _wait_idle(desk: Desk, params: m.OnAgent, caller: Caller) -> None:
    await (await desk.agent(params.agent)).wait_idle()


async def _read(desk: Desk, params: m.Read, caller: Caller) -> m.RecordsPage:
    desk.grant.check_agent(params.agent)
    head = await desk.system.store.head(params.agent)
    if head is None:
        raise AgentNotFound(f"there is no agent {params.agent!r}; spawn creates one", agent=params.agent)
    last = head.last if params.upto is None else min(params.upto, head.last)
    types = None if params.types is None else frozenset(params.types)
    page = await desk.feeds.page(params.agent, params.after, last, types)
    # The records are one piece of JSON already, commas between: as an only entry they make the same list.
    return m.RecordsPage([Raw(page.records.encode())] if page.count else [], page.upto, more=page.upto < last)


async def _request(desk: Desk, params: m.RequestAt, caller: Caller) -> m.Rebuilt:
    desk.grant.check_agent(params.agent)
    found = await rebuild(desk.system.store, params.agent, params.seq)
    sent, header, first = found.sent, found.header, max(params.first, 0)
    return m.Rebuilt(
        seq=found.seq,
        turn=sent.turn,
        step=sent.step,
        attempt=sent.attempt,
        provider=header.provider,
        model=header.model,
        settings=header.settings,
        system=header.system,
        tools=header.tools,
        output=header.output,
        messages=list(_fitting(found.messages, first)),
        first=first,
        count=len(found.messages),
        digest=found.digest,
        ok=found.ok,
        before=found.before,
        kept=found.kept,
    )


def _fitting(messages: Sequence[Message], first: int) -> Iterator[Message]:
    """As many as go into one answer; always one, if there is one."""
    size = 0
    for message in islice(messages, first, None):
        size += len(message_line(message))
        yield message
        if size > MOST_BYTES:
            return


async def _approvals(desk: Desk, params: m.Selection, caller: Caller) -> list[Any]:
    prefix = desk.grant.narrow(params.prefix)
    if prefix is None:
        return []
    return [question async for question in desk.system.approvals(prefix, labels=params.labels)]


# -- sending


async def _spawn(desk: Desk, params: m.Spawn, caller: Caller) -> m.Known:
    id = params.id if params.id is not None else f"{desk.grant.prefix}{params.name}-{mint_id()}"
    desk.grant.check_agent(id)
    check_named("the labels of an agent", params.labels)
    return await _known(await desk.system.spawn(desk.definition(params.name), id=id, labels=params.labels))


async def _ask(desk: Desk, params: m.Asking, caller: Caller) -> Any:
    ref = await desk.agent(params.agent)
    try:
        return await ref.ask(params.content, timeout=params.timeout, **_how(params))
    except AskTimeout:
        if params.on_cancel == "cancel":
            await ref.cancel("user", keep_inbox=True)
        raise
    except trio.Cancelled:
        # A service that closes leaves the turn to the next start; only a caller who is gone has chosen.
        if params.on_cancel == "cancel" and caller.gone:
            with trio.CancelScope(shield=True):
                await ref.cancel("user", keep_inbox=True)
        raise


def _how(params: m.Send) -> dict[str, Any]:
    check_named("message_id, route and sender", params.message_id, params.route, params.sender)
    check_media(params.content)
    return {"message_id": params.message_id, "route": params.route, "sender": params.sender}


async def _followup(desk: Desk, params: m.Send, caller: Caller) -> Any:
    return await (await desk.agent(params.agent)).followup(params.content, **_how(params))


async def _steer(desk: Desk, params: m.Send, caller: Caller) -> Any:
    return await (await desk.agent(params.agent)).steer(params.content, **_how(params))


async def _inject(desk: Desk, params: m.Send, caller: Caller) -> Any:
    return await (await desk.agent(params.agent)).inject(params.content, **_how(params))


async def _withdraw(desk: Desk, params: m.OnMessage, caller: Caller) -> bool:
    return await (await desk.agent(params.agent)).withdraw(params.message_id)


async def _replace(desk: Desk, params: m.Replace, caller: Caller) -> Any:
    check_named("new_id", params.new_id)
    check_media(params.content)
    return await (await desk.agent(params.agent)).replace(params.message_id, params.content, new_id=params.new_id)


async def _cancel(desk: Desk, params: m.Cancel, caller: Caller) -> None:
    await (await desk.agent(params.agent)).cancel(params.cause, keep_inbox=params.keep_inbox, text=params.text)


async def _timers(desk: Desk, params: m.OnAgent, caller: Caller) -> Any:
    return await (await desk.view(params.agent)).timers()


async def _remind(desk: Desk, params: m.Remind, caller: Caller) -> Any:
    check_named("id and route of a reminder", params.id, params.route)
    check_media(params.content)
    ref, when = await desk.agent(params.agent), {"after_s": params.after_s, "every_s": params.every_s}
    return await ref.remind(params.content, **when, at=params.at, id=params.id, route=params.route)


async def _cancel_timer(desk: Desk, params: m.OnTimer, caller: Caller) -> bool:
    return await (await desk.agent(params.agent)).cancel_timer(params.id)


async def _resume(desk: Desk, params: m.OnAgent, caller: Caller) -> None:
    await (await desk.agent(params.agent)).resume()


async def _compact(desk: Desk, params: m.OnAgent, caller: Caller) -> bool:
    return await (await desk.agent(params.agent)).compact()


async def _fork(desk: Desk, params: m.Fork, caller: Caller) -> m.Known:
    ref = await desk.agent(params.agent)
    id = params.id if params.id is not None else f"{params.agent}~{mint_id()}"
    desk.grant.check_agent(id)
    agent = None if params.definition is None else desk.definition(params.definition)
    return await _known(await ref.fork(at=params.at, id=id, turn=params.turn, agent=agent, rerun=params.rerun))


# -- ruling


async def _answer(desk: Desk, params: m.Answer, caller: Caller) -> None:
    desk.grant.check_agent(params.id.rpartition("!")[0])
    await desk.system.answer(params.id, params.verdict, by=params.by, text=params.text)


async def _dispose(desk: Desk, params: m.OnAgent, caller: Caller) -> None:
    await (await desk.agent(params.agent)).dispose()


async def _delete(desk: Desk, params: m.Delete, caller: Caller) -> None:
    desk.grant.check_agent(params.agent)
    await desk.system.delete(params.agent, tree=params.tree)


HANDLERS: Mapping[str, Handler] = {
    "get": _get,
    "agents": _agents,
    "usage": _usage,
    "info": _info,
    "messages": _messages,
    "pending": _pending,
    "outcome": _outcome,
    "wait_idle": _wait_idle,
    "read": _read,
    "request": _request,
    "approvals": _approvals,
    "spawn": _spawn,
    "ask": _ask,
    "followup": _followup,
    "steer": _steer,
    "inject": _inject,
    "withdraw": _withdraw,
    "replace": _replace,
    "cancel": _cancel,
    "timers": _timers,
    "remind": _remind,
    "cancel_timer": _cancel_timer,
    "resume": _resume,
    "compact": _compact,
    "fork": _fork,
    "answer": _answer,
    "dispose": _dispose,
    "delete": _delete,
}
"""Every method but those of streams, which belong to the connection."""
