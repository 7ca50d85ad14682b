"""The connection to one server: a task that keeps it, for as long as the system lives.

One task owns the SDK's client: it opens it, lists the tools, waits, and closes it, so no scope is ever left in another task.
Whatever goes wrong ends that one client and is told to people; the task opens another, after a pause that doubles. Calls are made
by the tools' own bodies; they take the client that is up, or wait for the next one.

A server that hangs cannot be told from one that is slow by waiting. So a call that ran out of time is a suspicion: the server is
asked for its list, and if it does not answer that either, it is restarted. The same question is asked when the server says that
its tools changed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import trio

from ...actors.failures import described
from ..websocket import leaves

_log = logging.getLogger("callboard.mcp")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STEADY_S = 60.0
"""A connection that held for so long begins again with the first pause."""
CLOSE_S = 5.0
REST_S = 0.1
"""Between two looks at the list: a server that cries without end must not keep us busy."""
PAGES, LISTED = 100, 10_000
"""So much of a list is read: one that goes on for ever must not fill the memory."""

Dial = Callable[[Callable[[], None], list[str]], AbstractAsyncContextManager[tuple[Any, Any]]]
"""Opens the transport: the SDK's two streams. It calls the function when the server has gone, and lists its last words."""


class NoAnswer(Exception):
    """The server is there and does not answer."""


class Gone(Exception):
    """The server ended, or closed the connection."""


class Connection:
    """One server, kept connected by `run`."""

    def __init__(
        self, name: str, dial: Dial, on_tools: Callable[[Sequence[Any]], None], *, start_s: float, probe_s: float, mode: str
    ) -> None:
        self.name, self._dial, self._on_tools, self._mode = name, dial, on_tools, mode
        self._start_s, self._probe_s = start_s, probe_s
        self.client: Any = None
        """The SDK's client while the server is up."""
        self.problem = "it has not been started"
        """Why it is not up, as the last try found."""
        self.connected = 0
        """How often it has come up."""
        self._stir = trio.Event()
        self._changed = trio.lowlevel.ParkingLot()
        self._lost = False
        self._began = trio.current_time()

    def __repr__(self) -> str:
        return f"<Connection to {self.name!r}, {'up' if self.client is not None else f'down: {self.problem}'}>"

    # -- for calls

    async def ready(self, within_s: float, *, other_than: Any = None) -> Any:
        """The client, once there is one (and another than that which failed); None if there is none in time."""
        with trio.move_on_after(within_s):
            while self.client is None or self.client is other_than:
                await self._changed.park()
            return self.client
        return None

    async def first(self) -> None:
        """Wait for the server to come up, unless it had its time for that already."""
        if self.connected == 0:
            await self.ready(max(0.0, self._began + self._start_s - trio.current_time()))

    def stir(self) -> None:
        """Something is to be looked at: the tools changed, or the server may hang."""
        self._stir.set()

    def drop(self, client: Any) -> None:
        """This client is of no use any more: open another."""
        if client is self.client:
            self._gone()

    def _gone(self) -> None:
        # From now on calls wait for the next client, whenever the task gets to closing this one.
        self._lost = True
        self._down()
        self._stir.set()

    # -- keeping it

    async def run(self) -> None:
        """Connect, and connect again, until cancelled."""
        pauses = pauses_between()
        while True:
            began, said = trio.current_time(), list[str]()
            try:
                await self._live(said)
            except Exception as error:  # whatever it is: the server is a foreign program, and the agents go on without it
                self.problem = "; ".join(described(leaf) for leaf in leaves(error))
                self.problem += f"; it last said: {' / '.join(said)}" if said else ""
            if trio.current_time() - began > STEADY_S:
                pauses = pauses_between()
            pause = next(pauses)
            _log.warning("MCP server %r is down (%s); the next try is in %g s", self.name, self.problem, pause)
            await trio.sleep(pause)

    async def _live(self, said: list[str]) -> None:
        """One connection, from its opening to its end.

        Raises:
            NoAnswer, Gone: and whatever the transport throws.
        """
        self._lost = False
        failed: Exception | None = None
        with trio.CancelScope(deadline=trio.current_time() + self._start_s) as scope:
            try:
                async with self._opened(said) as client:
                    await self._refresh(client)
                    scope.deadline = float("inf")
                    try:
                        await self._watch(client)
                    except (NoAnswer, Gone) as error:  # raised again behind the client, whose groups would wrap it
                        failed = error
                    finally:
                        self._down()
                        scope.deadline = trio.current_time() + CLOSE_S
            finally:
                self._down()
        if failed is None:
            failed = NoAnswer(f"it did not answer in {self._start_s:g} s")
        raise failed

    @asynccontextmanager
    async def _opened(self, said: list[str]) -> AsyncGenerator[Any]:
        from mcp.client import Client

        async def hear(message: Any) -> None:
            if getattr(message, "method", None) == "notifications/tools/list_changed":
                self.stir()

        transport: Any = self._dial(self._gone, said)
        mode: Any = self._mode
        async with Client(transport, message_handler=hear, mode=mode, cache=None) as client:
            yield client

    async def _watch(self, client: Any) -> None:
        """While the server is up: look at it whenever something stirs."""
        self.client, self.problem = client, ""
        self.connected += 1
        self._changed.unpark_all()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._listen, client)
            while not self._lost:
                await self._stir.wait()
                self._stir = trio.Event()
                if not self._lost:
                    await self._look(client)
                    await trio.sleep(REST_S)
            nursery.cancel_scope.cancel()
        raise Gone("it closed the connection")

    async def _look(self, client: Any) -> None:
        with trio.move_on_after(self._probe_s) as scope:
            await self._refresh(client)
        if scope.cancelled_caught:
            raise NoAnswer(f"it did not answer in {self._probe_s:g} s")

    async def _refresh(self, client: Any) -> None:
        """Read the list of tools, all pages of it."""
        tools: list[Any] = []
        cursor: str | None = None
        for _ in range(PAGES):
            page = await client.list_tools(cursor=cursor)
            tools.extend(page.tools)
            cursor = page.next_cursor
            if cursor is None or len(tools) >= LISTED:
                break
        self._on_tools(tools)

    async def _listen(self, client: Any) -> None:
        """Newer servers tell of changes only to those who asked for it."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        tools = client.server_capabilities.tools
        while tools is not None and tools.list_changed:
            try:
                async with client.listen(tools_list_changed=True) as events:
                    async for _ in events:
                        self.stir()
            except (ListenNotSupportedError, MCPError):
                return  # an older one tells by itself; one that refuses has nothing to tell
            except SubscriptionLost:
                self.stir()  # what it had to tell meanwhile is in the list
            await trio.sleep(1)

    def _down(self) -> None:
        self.client = None
        self._changed.unpark_all()


def pauses_between() -> Iterator[float]:
    """Seconds before each new try: doubling, up to the longest."""
    pause = FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, LONGEST_PAUSE_S)
