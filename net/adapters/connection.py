"""The connection of an adapter: the provider's SDK as the way there, and everything that goes wrong on it as a `ModelError`.

The SDKs are used for what they know best: credentials and where they come from, base URLs, proxies, TLS, pools, cloud variants
of the service. Their retries are off, because the loop owns those and hides none from the log (what nobody can have read is sent
again, see `kept`); so are their deadlines, but for that of connecting; and what streams back is read here as plain events (see
`sse`).

One adapter may serve several trio runs, one after the other or in threads (`run_sync`), and a pool of sockets belongs to one of
them: so there is a client for each run. It is made at the first request. Importing an SDK takes half a second to one second,
which a thread does while the other agents go on.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from typing import Any, Protocol, cast

import trio

from ...actors.failures import causes
from ...storage.errors import ModelError
from ...storage.messages import Chunk
from .failures import from_response, scrubbed
from .kept import unread
from .sse import Event, SseParser

DRAIN_S = 0.5
"""How long the end of a whole answer may take to come: a connection that was read to its end can be used again."""

Opens = Callable[[Any], AbstractAsyncContextManager[Any]]
"""From the SDK's client to a streamed response."""


class Reader(Protocol):
    """What makes chunks of events: one for each response."""

    def feed(self, event: Event) -> Iterator[Chunk]:
        """The chunks in one event."""
        ...

    def end(self) -> Iterator[Chunk]:
        """What is left when the stream is over, or why it may not be over yet."""
        ...

    def ends(self, event: Event) -> bool:
        """Whether this event is the last."""
        ...


class Connection:
    """The way to one provider, shared by all copies of its adapter."""

    def __init__(self, sdk: str, *, label: str, make: Callable[[Any, Any], Any], given: Any = None) -> None:
        """`sdk` is the package and the extra that brings it, `label` the provider's name in errors.

        `make(sdk, httpx)` makes a client out of the two modules; `given` is one that the user made, which is not closed.
        """
        self._sdk, self._label, self._make, self._given = sdk, label, make, given
        self._clients: dict[trio.lowlevel.TrioToken, Any] = {}
        self._secrets: set[str] = set()

    def __repr__(self) -> str:
        return f"<Connection {self._label}>"  # and nothing of its keys

    async def chunks(self, opens: Opens, reader: Reader) -> AsyncGenerator[Chunk]:
        """What the reader makes of one streamed response.

        Raises:
            ModelError: whatever went wrong, by its code; a connection that broke is TRANSPORT, an SDK that is not installed
                NO_ADAPTER.
        """
        client = await self._client()
        try:
            async with AsyncExitStack() as stack:
                response = await self._answer(client, opens, stack)
                self._refuse_other_than_events(response)
                parser, over, pieces = SseParser(), False, response.iter_bytes()
                try:
                    async for piece in pieces:
                        for event in parser.feed(piece):
                            for chunk in reader.feed(event):
                                yield chunk
                            over = over or reader.ends(event)
                        if over:
                            await _drain(pieces)
                            break
                finally:
                    await self._unwind(response, pieces)
            for chunk in reader.end():
                yield chunk
        except Exception as error:
            failure = self._failure(error)
            if failure is None:
                raise
            # What the SDK raised holds the request with its headers, and its text may hold what the provider echoed.
            raise failure from None

    async def aclose(self) -> None:
        """Give up the sockets of this run. The next request makes new ones. A client that the user made stays the user's."""
        client = self._clients.pop(trio.lowlevel.current_trio_token(), None)
        if client is not None and self._given is None:
            await client.close()
        else:
            await trio.lowlevel.checkpoint()

    async def _answer(self, client: Any, opens: Opens, stack: AsyncExitStack) -> Any:
        """The head of an answer. Each further round uses up one connection that the server had closed."""
        httpx = importlib.import_module("httpx2")
        while True:
            since = trio.current_time()
            try:
                return await stack.enter_async_context(opens(client))
            except Exception as error:
                if not unread(error, httpx, since=since):
                    raise

    async def _unwind(self, response: Any, pieces: AsyncIterator[bytes]) -> None:
        """Close the socket, then let the generators below find out. The HTTP library has four of them, one in the other, and who
        closes the outermost leaves the rest to the garbage collector: resumed, they fail on the closed socket and are over."""
        httpx = importlib.import_module("httpx2")
        await response.close()
        with suppress(StopAsyncIteration, httpx.HTTPError, httpx.StreamError, OSError):
            while True:
                await anext(pieces)

    async def _client(self) -> Any:
        run = trio.lowlevel.current_trio_token()
        if run not in self._clients:
            sdk, httpx = await self._modules()
            # Made after the wait, with no checkpoint before it is kept: two first requests share one client.
            if run not in self._clients:
                self._clients[run] = self._new(sdk, httpx)
        return self._clients[run]

    async def _modules(self) -> tuple[Any, Any]:
        names = (self._sdk, "httpx2")
        if missing := [name for name in names if importlib.util.find_spec(name) is None]:
            raise ModelError(  # of a turn, whose end keeps the code: nothing that an agent did is to blame
                "NO_ADAPTER",
                f"models of {self._label} need the package {missing[0]}, which is not installed: "
                f"pip install 'callboard[{self._sdk}]'",
            )
        sdk, httpx = [await trio.to_thread.run_sync(importlib.import_module, name) for name in names]
        return sdk, httpx

    def _new(self, sdk: Any, httpx: Any) -> Any:
        refusals: tuple[type[Exception], ...] = (ValueError, getattr(sdk, "OpenAIError", None) or sdk.AnthropicError)
        try:
            client = self._make(sdk, httpx) if self._given is None else self._given.with_options(max_retries=0)
        except refusals as error:
            raise ModelError("AUTH", scrubbed(f"{self._label}: {error}")) from None
        for name in ("api_key", "auth_token"):
            secret = getattr(client, name, None)
            if isinstance(secret, str) and len(secret) >= 8:  # "unused" and the like are words, no secrets
                self._secrets.add(secret)
        return client

    def _refuse_other_than_events(self, response: Any) -> None:
        kind = str(response.headers.get("content-type", ""))
        if kind and not kind.startswith(("text/event-stream", "text/plain", "application/octet-stream")):
            raise ModelError(
                "BAD_RESPONSE",
                f"{self._label} answered with {kind.partition(';')[0]} instead of a stream of events; "
                "check the base URL, which for most servers ends in /v1",
                request_id=response.headers.get("x-request-id") or response.headers.get("request-id"),
            )

    def _failure(self, error: Exception) -> ModelError | None:
        """The error in our words; None for one that no provider made."""
        if isinstance(error, ModelError):
            return ModelError(
                error.code,
                scrubbed(error.message, self._secrets),
                status=error.status,
                retry_after_s=error.retry_after_s,
                request_id=error.request_id,
            )
        sdk, httpx = importlib.import_module(self._sdk), importlib.import_module("httpx2")
        if isinstance(error, sdk.APIStatusError):
            answer: Any = cast("Any", error).response
            return from_response(answer.status_code, answer.content, answer.headers, secrets=self._secrets)
        text = scrubbed(causes(error.__cause__ or error), self._secrets)
        if isinstance(error, sdk.APITimeoutError | httpx.TimeoutException):
            return ModelError("TIMEOUT", f"connecting to {self._label} took too long ({text})")
        if isinstance(error, sdk.APIConnectionError | httpx.TransportError | httpx.StreamError | OSError):
            return ModelError("TRANSPORT", f"the connection to {self._label} failed: {text}")
        if isinstance(error, httpx.HTTPError):
            return ModelError("BAD_RESPONSE", f"{self._label} sent what cannot be read: {text}")
        if isinstance(error, sdk.APIError):
            return ModelError("BAD_RESPONSE", f"{self._label}: {text}")
        return None


async def _drain(pieces: AsyncIterator[bytes]) -> None:
    """Read what little is left after the last event. No `yield` is in this scope."""
    with trio.move_on_after(DRAIN_S):
        async for _ in pieces:
            pass
