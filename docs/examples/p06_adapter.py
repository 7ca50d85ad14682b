"""An adapter for a provider of its own protocol: what `Model` asks for, and nothing of it left to the runtime's guess.

`prepare` is pure and fails early; `stream` translates events to chunks as they come. No retry, no deadline, no caught
cancellation: those are the loop's. `check_model` says whether the rest is right.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

import httpx

from callboard.actors import Model, ModelError, Prepared
from callboard.storage import Message, Request
from callboard.storage import chunks as c
from callboard.storage.messages import Chunk, Finish

WINDOWS = {"large": 200_000, "small": 32_000}
ENDS: dict[str, Finish] = {"eot": "stop", "tool": "tool-calls", "len": "max-tokens"}


class Acme(Model):
    """Models of Acme; `Acme().named("large")` is one of them. The key comes from ACME_API_KEY."""

    provider = "acme"

    def __init__(self, *, key: str | None = None, base_url: str = "https://api.acme.test") -> None:
        headers = {"authorization": f"Bearer {key or os.environ.get('ACME_API_KEY', '')}"}
        self._http = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=None)  # the loop owns the deadlines

    def prepare(self, request: Request) -> Prepared:
        """Refuse what Acme does not have, and say what is known of what it has."""
        if request.model not in WINDOWS:
            raise ModelError("BAD_REQUEST", f"acme has no model {request.model!r}; there are {', '.join(WINDOWS)}")
        return Prepared(request, defaults={"max_tokens": 8192}, context_window=WINDOWS[request.model])

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """One POST, whose events come back as chunks."""
        try:
            async with self._http.stream("POST", "/v1/chat", json=to_acme(request)) as r:
                if r.status_code != 200:
                    raise ModelError.from_http(r.status_code, await r.aread(), r.headers)  # code, retry_after_s, request_id
                async with aclosing(sse(r)) as events:
                    async for event in events:
                        yield to_chunk(event)
        except httpx.TransportError as error:
            raise ModelError("TRANSPORT", f"the connection to acme failed: {error}") from error

    async def aclose(self) -> None:
        """Give up the connections."""
        await self._http.aclose()


def to_chunk(event: dict[str, Any]) -> Chunk:
    """What an event of Acme's means."""
    match event["type"]:
        case "open":
            return c.block_start(event["i"], event["block"])
        case "text":
            return c.text_delta(event["i"], event["d"])
        case "args":
            return c.tool_call_delta(event["i"], id=event.get("id"), name=event.get("name"), arguments=event["d"])
        case "close":
            return c.block_end(event["i"])
        case "usage":
            return c.usage(input=event["in"], output=event["out"])
        case "stop":
            return c.finish(ENDS[event["why"]])
        case other:
            raise ModelError("BAD_RESPONSE", f"acme sent an event of type {other!r}, which this adapter does not know")


def to_acme(request: Request) -> dict[str, Any]:
    """The request in Acme's words."""
    return {
        "model": request.model,
        "system": request.system,
        "max_tokens": request.settings.max_tokens,
        "temperature": request.settings.temperature,
        "tools": [{"name": tool.name, "about": tool.description, "schema": tool.schema} for tool in request.tools],
        "messages": [to_acme_message(message) for message in request.messages],
    }


def to_acme_message(message: Message) -> dict[str, Any]:
    """A message: its text, the calls in it, and the results. Acme takes no reasoning back."""
    return {
        "role": message.role,
        "text": "" if message.role == "tool" else message.text,
        "calls": [{"id": call.id, "name": call.name, "args": call.arguments} for call in message.calls],
        "results": message.results,
    }


async def sse(response: httpx.Response) -> AsyncGenerator[dict[str, Any]]:
    """The events of a response."""
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
