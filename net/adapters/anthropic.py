"""`anthropic:NAME`: models of Anthropic, and of servers that speak its messages."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Literal

from ...actors.models.model import Prepared
from ...storage.errors import ModelError
from ...storage.messages import Chunk, Request
from .anthropic_requests import OWN, to_body
from .anthropic_streams import MessageReader
from .base import HttpModel, checked_url, is_of, key_name, longest_prefix
from .connection import Connection
from .kept import watched
from .known import ANTHROPIC_OUTPUTS, ANTHROPIC_WINDOWS, ANTHROPIC_WITHOUT_SCHEMA
from .schemas import strict

MOST_OUTPUT = 32_000
"""Tokens that an answer may have where nobody said: the provider asks for a number, and a small one cuts long work off."""
OUTPUT = 8_192
"""The same for a model that is not known."""


class Anthropic(HttpModel):
    """Messages, streamed.

    `Anthropic()` needs nothing but `ANTHROPIC_API_KEY`, and is what `anthropic:NAME` finds by itself. What the provider has read
    of a conversation it keeps for the next step (`cache`), which for agents saves most of the price.
    """

    provider = "anthropic"
    _reserved = OWN

    def __init__(
        self,
        *,
        key: str | None = None,
        base_url: str | None = None,
        provider: str = "anthropic",
        windows: Mapping[str, int] | None = None,
        images: bool = True,
        schema: bool | None = None,
        cache: Literal["5m", "1h"] | bool | None = True,
        headers: Mapping[str, str] | None = None,
        connect_s: float | None = None,
        client: Any = None,
    ) -> None:
        """
        Args:
            key: default is whatever the SDK finds: `ANTHROPIC_API_KEY`, `ANTHROPIC_AUTH_TOKEN`, or a profile of its own; for
                another provider `NAME_API_KEY`. It is never shown.
            base_url: default is `ANTHROPIC_BASE_URL` (of the provider `anthropic` alone), then Anthropic itself.
            provider: the first half of `provider:name`; also the key of the agent's own settings.
            windows: context windows in tokens by the beginning of a model's name, over what is known.
            images: whether the models see pictures.
            schema: whether they answer by a JSON schema; default is yes for Anthropic's own that are new enough.
            cache: how long the provider keeps what it has read; True is "5m" at Anthropic itself and nothing elsewhere.
            headers: more headers for every request, such as `anthropic-beta`.
            connect_s: seconds that connecting may take at most, where that is to be less than the agents' `Limits.connect_s`. All
                other deadlines are the loop's.
            client: an `anthropic.AsyncAnthropic` (or one of its cloud variants that stream events) of your own; it stays yours to
                close.
        """
        self.provider = provider
        self._windows = {**ANTHROPIC_WINDOWS, **(windows or {})}
        self._images = images
        environment = os.environ.get("ANTHROPIC_BASE_URL") if provider == "anthropic" else None
        url = str(client.base_url) if client is not None else checked_url(base_url or environment)
        official = is_of(url, "anthropic.com")
        self._schema = official if schema is None else schema
        self._cache = ("5m" if official else None) if cache is True else cache or None

        def make(sdk: Any, httpx: Any) -> Any:
            # The SDK looks for credentials in many places; those are Anthropic's, and no other server is to see them.
            made = sdk.AsyncAnthropic(
                api_key=key if official else key or os.environ.get(key_name(provider)) or "unused",
                base_url=url,
                default_headers=headers,
                max_retries=0,
                http_client=watched(sdk, httpx.Timeout(None, connect=connect_s)),
            )
            if made.api_key is None and made.auth_token is None and made.credentials is None:
                raise ModelError(
                    "AUTH",
                    f"there is no key for {provider!r}: set ANTHROPIC_API_KEY in the environment, or pass Anthropic(key=...)",
                )
            return made

        label = "Anthropic" if provider == "anthropic" else provider
        self._connection = Connection("anthropic", label=label, make=make, given=client)

    def prepare(self, request: Request) -> Prepared:
        """Check the agent's own settings, fill in how long an answer may be, and say what is known of the model."""
        self._extra(request)
        most = longest_prefix(ANTHROPIC_OUTPUTS, request.model)
        schema = (
            self._schema
            and request.output is not None
            and not request.model.startswith(ANTHROPIC_WITHOUT_SCHEMA)
            and strict(request.output, recursive=False) is not None
        )
        return Prepared(
            request,
            defaults={"max_tokens": OUTPUT if most is None else min(most, MOST_OUTPUT)},
            context_window=longest_prefix(self._windows, request.model),
            images=self._images,
            schema=schema,
        )

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """One POST; its events as chunks."""
        body, reader = to_body(request, self._extra(request), cache=self._cache), MessageReader()
        limit = request.settings.max_tokens or OUTPUT  # a request that nobody prepared still needs one
        body["max_tokens"] = body.get("max_tokens", limit)

        def opens(client: Any) -> Any:
            # As `extra_body` the body goes out as it is; as arguments the SDK would walk through all of the history first.
            create = client.messages.with_streaming_response.create
            return create(model=request.model, max_tokens=limit, messages=(), stream=True, extra_body=body)

        async with aclosing(self._connection.chunks(opens, reader)) as chunks:
            async for chunk in chunks:
                yield chunk
