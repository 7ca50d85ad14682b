"""The client: a service's agents, with the surface of a local system.

    async with connect("ws://127.0.0.1:8000", token=TOKEN) as client:
        ref = await client.open("trip-42")
        print((await ref.ask("Three days in Oslo")).result())

The connection may break and come back within the block: calls wait for it, streams go on where they were.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Literal

import msgspec
import trio

from ..actors.content import mint_id
from ..actors.values import AgentSummary, Approval, Status
from ..storage.messages import Usage
from .link import Link
from .remote import RemoteRef
from .remote_streams import RemoteListing
from .websocket import Dial, dialer
from .wire import methods as m


class Client:
    """A connected client. Made by `connect` alone."""

    def __init__(self, link: Link) -> None:
        self._link = link

    # -- agents

    async def open(self, id: str) -> RemoteRef:
        """The agent with this id; the same as `get`.

        Raises:
            AgentNotFound: there is none; this never creates one.
        """
        return await self.get(id)

    async def get(self, id: str) -> RemoteRef:
        """The agent with this id.

        Raises:
            AgentNotFound: there is none; this never creates one.
        """
        return RemoteRef(self._link, await self._link.call("get", m.OnAgent(agent=id)))

    async def spawn(self, name: str, *, id: str | None = None, labels: Mapping[str, str] | None = None) -> RemoteRef:
        """The agent `id` of the definition `name`: created if there is none, opened if there is. Durable on return.

        Raises:
            DefinitionMissing: the service knows no such definition.
            NameMismatch: the id belongs to an agent of another one.
        """
        new = id if id is not None else f"{await self._prefix()}{name}-{mint_id()}"
        params = m.Spawn(name=name, id=new, labels=None if labels is None else dict(labels))
        return RemoteRef(self._link, await self._link.call("spawn", params))

    async def _prefix(self) -> str:
        hello = (await self._link.line()).hello
        return "" if hello is None else hello.prefix

    async def delete(self, id: str, *, tree: bool = True) -> None:
        """Stop the agent and remove every trace of it (and, with `tree`, of its children)."""
        await self._link.call("delete", m.Delete(agent=id, tree=tree))

    def agents(
        self,
        prefix: str = "",
        *,
        labels: Mapping[str, str] | None = None,
        waiting: str | None = None,
        status: Status | None = None,
        after: str | None = None,
    ) -> AsyncIterator[AgentSummary]:
        """All agents that the token is for (those behind the id `after`), in order of their ids; `waiting` picks those that wait
        for that kind, `status` those of one status. Break off whenever you like."""
        selected = m.Agents(prefix=prefix, labels=_plain(labels), waiting=waiting, status=status)

        async def turn(last: str | None) -> tuple[Sequence[AgentSummary], str | None]:
            page: m.AgentsPage = await self._link.call("agents", msgspec.structs.replace(selected, after=last or after))
            return page.agents, page.upto if page.more else None

        return RemoteListing(turn)

    async def usage(self, prefix: str = "", *, labels: Mapping[str, str] | None = None) -> Usage:
        """Tokens of all these agents."""
        total: Usage = await self._link.call("usage", m.Selection(prefix=prefix, labels=_plain(labels)))
        return total

    # -- people

    def approvals(self, prefix: str = "", *, labels: Mapping[str, str] | None = None) -> AsyncIterator[Approval]:
        """Calls that wait for a person's word. Break off whenever you like."""
        selected = m.Selection(prefix=prefix, labels=_plain(labels))

        async def turn(after: str | None) -> tuple[Sequence[Approval], str | None]:
            return await self._link.call("approvals", selected), None

        return RemoteListing(turn)

    async def answer(self, id: str, verdict: Literal["allow", "deny", "reply"], *, by: str, text: str | None = None) -> None:
        """Answer a question: the call runs, is refused, or (`reply`) has `text` as its result without being run.

        Raises:
            ApprovalExpired: it was answered, withdrawn, or has expired.
            Disconnected: the connection broke before the service said that it has the answer; look at `approvals` again.
        """
        await self._link.call("answer", m.Answer(id=id, verdict=verdict, by=by, text=text))


def _plain(labels: Mapping[str, str] | None) -> dict[str, str] | None:
    return None if labels is None else dict(labels)


@asynccontextmanager
async def connect(
    url: str, token: str | None = None, *, patience: float | None = 60, ssl_context: SSLContext | None = None
) -> AsyncGenerator[Client]:
    """A client of the service at `url`, for the length of a block.

    Args:
        url: `ws://HOST:PORT`, or `wss://` with TLS.
        token: what the service knows this client by.
        patience: seconds that calls and streams wait for a lost connection to come back; None for ever. The first connection
            is tried once.
        ssl_context: for certificates that this machine does not trust by itself.

    Raises:
        Disconnected: nobody answers there.
        Unauthorized: the token is missing or wrong.
        UsageError: that is no address, or the extra `net` is not installed.
    """
    async with connected(dialer(url, token, ssl_context), patience) as client:
        yield client


@asynccontextmanager
async def connected(dial: Dial, patience: float | None = 60) -> AsyncGenerator[Client]:
    """A client over connections that `dial` opens: `connect` for those who bring their own sockets."""
    inner: BaseException | None = None
    link = Link(dial, patience=patience)
    async with trio.open_nursery() as nursery:
        try:
            await nursery.start(link.run)
            yield Client(link)
        except trio.Cancelled:
            raise
        except BaseException as error:  # raised again outside the nursery, which would wrap it
            inner = error
        await link.close()
        nursery.cancel_scope.cancel()
    if inner is not None:
        raise inner
