"""Connections that are kept for the next request, and the one case in which a request is sent again below the loop; and how long
a new one may take to be there, which is the agent's to say.

A new connection costs round trips, so one is kept after an answer. The server may close it at any moment, and a request that is
on its way just then gets an end instead of an answer. Servers that promise to keep connections and close them after each stream
(llama.cpp does) make that common: an agent whose next step comes within a millisecond meets it every few steps.

Nobody has read such a request: the connection had served another, no answer came, and the end came at once. Only then it is sent
again, as browsers do it. Whatever came that is no HTTP was somebody's answer. (The HTTP library does not tell an end before the
first byte of a head from one within the head; servers write a head at once.) A request that the provider may have worked on is
never repeated here: that costs money, is the loop's to decide, and is in the log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import trio

from ...actors.models.connecting import connect_s

AT_ONCE_S = 1.0
"""An end that takes longer may be that of a provider that read the request and failed. It is not repeated here."""

_KEPT = "callboard.kept"
_NO_ANSWER = "without sending a response"
"""How the HTTP library says it; a protocol error without these words is about what came."""


def watched(sdk: Any, timeout: Any) -> Any:
    """The SDK's own kind of HTTP client, which knows of each request whether it went over a kept connection."""
    return sdk.DefaultAsyncHttpxClient(timeout=timeout, event_hooks={"request": [_watch]})


def unread(error: Exception, httpx: Any, *, since: float) -> bool:
    """Whether the request of this error of the SDK's, sent at `since` on trio's clock, was read by nobody."""
    cause = error.__cause__
    if isinstance(cause, httpx.RemoteProtocolError):
        ended = _NO_ANSWER in str(cause)
    else:
        ended = isinstance(cause, httpx.ReadError | httpx.WriteError)
    if not ended:
        return False
    request = getattr(error, "request", None)
    return request is not None and request.extensions.get(_KEPT, False) and trio.current_time() - since < AT_ONCE_S


def _connecting(timeout: Mapping[str, float | None]) -> Mapping[str, float | None]:
    """A request's timeouts, connecting within what the agent allows and the adapter does."""
    bounds = [bound for bound in (timeout.get("connect"), connect_s()) if bound is not None and bound < math.inf]
    return {**timeout, "connect": min(bounds, default=None)}


async def _watch(request: Any) -> None:
    """Mark a request as one over a kept connection, until one is made for it."""

    async def trace(event: str, details: Mapping[str, Any]) -> None:
        if ".connect_" in event:
            request.extensions[_KEPT] = False

    timeout = _connecting(request.extensions.get("timeout", {}))
    request.extensions |= {_KEPT: True, "trace": trace, "timeout": timeout}
