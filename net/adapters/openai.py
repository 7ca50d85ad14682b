"""`openai:NAME`: models of OpenAI, and of every server that speaks its chat completions."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from ...actors.models.model import Prepared
from ...storage.errors import ModelError
from ...storage.messages import Chunk, Request
from .base import HttpModel, checked_url, is_of, key_name, longest_prefix
from .connection import Connection
from .kept import watched
from .known import OPENAI_EXACT, OPENAI_WINDOWS
from .openai_requests import OWN, Dialect, to_body
from .openai_streams import ChatReader
from .schemas import strict


class OpenAI(HttpModel):
    """Chat completions, streamed.

    `OpenAI()` needs nothing but `OPENAI_API_KEY`, and is what `openai:NAME` finds by itself. Another server of this protocol is
    an instance under another name: `models={"local": OpenAI(provider="local", base_url="http://127.0.0.1:8080/v1")}`.
    """

    provider = "openai"
    _reserved = OWN

    def __init__(
        self,
        *,
        key: str | None = None,
        base_url: str | None = None,
        provider: str = "openai",
        windows: Mapping[str, int] | None = None,
        images: bool = True,
        schema: bool | None = None,
        send_reasoning: bool = False,
        max_tokens_field: str | None = None,
        headers: Mapping[str, str] | None = None,
        connect_s: float | None = None,
        client: Any = None,
    ) -> None:
        """
        Args:
            key: default is the environment's `OPENAI_API_KEY`, for another provider `NAME_API_KEY`. It is never shown.
            base_url: default is `OPENAI_BASE_URL` (of the provider `openai` alone), then OpenAI itself.
            provider: the first half of `provider:name`; also the key of the agent's own settings.
            windows: context windows in tokens by the beginning of a model's name, over what is known.
            images: whether the models see pictures.
            schema: whether they answer by a JSON schema; default is yes for OpenAI itself and no for others, which then are
                offered a tool for the answer.
            send_reasoning: give reasoning back as `reasoning_content`, as some servers ask.
            max_tokens_field: what the server calls its limit; default is OpenAI's name there and `max_tokens` elsewhere.
            headers: more headers for every request.
            connect_s: seconds that connecting may take at most, where that is to be less than the agents' `Limits.connect_s`. All
                other deadlines are the loop's.
            client: an `openai.AsyncOpenAI` (or `AsyncAzureOpenAI`) of your own; it stays yours to close.
        """
        self.provider = provider
        self._windows = {**OPENAI_WINDOWS, **(windows or {})}
        self._exact = OPENAI_EXACT if windows is None else {k: v for k, v in OPENAI_EXACT.items() if k not in windows}
        self._images = images
        environment = os.environ.get("OPENAI_BASE_URL") if provider == "openai" else None
        url = str(client.base_url) if client is not None else checked_url(base_url or environment)
        official = is_of(url, "openai.com", "azure.com")
        self._schema = official if schema is None else schema
        self._dialect = Dialect(max_tokens_field or ("max_completion_tokens" if official else "max_tokens"), send_reasoning)

        def make(sdk: Any, httpx: Any) -> Any:
            return sdk.AsyncOpenAI(
                api_key=self._key(key, official),
                base_url=url,
                default_headers=headers,
                max_retries=0,
                http_client=watched(sdk, httpx.Timeout(None, connect=connect_s)),
            )

        self._connection = Connection("openai", label="OpenAI" if provider == "openai" else provider, make=make, given=client)

    def _key(self, given: str | None, official: bool) -> str:
        name = key_name(self.provider)
        key = (given or os.environ.get(name) or "").strip()
        if not key and official:
            raise ModelError(
                "AUTH", f"there is no key for {self.provider!r}: set {name} in the environment, or pass OpenAI(key=...)"
            )
        return key or "unused"  # servers on one's own machine ask for none, and the SDK for some

    def prepare(self, request: Request) -> Prepared:
        """Check the agent's own settings, and say what is known of the model."""
        self._extra(request)
        schema = self._schema and request.output is not None and strict(request.output, recursive=True) is not None
        window = self._exact.get(request.model) or longest_prefix(self._windows, request.model)
        return Prepared(request, context_window=window, images=self._images, schema=schema)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        """One POST; its events as chunks."""
        body, reader = to_body(request, self._dialect, self._extra(request)), ChatReader()

        def opens(client: Any) -> Any:
            # As `extra_body` the body goes out as it is; as arguments the SDK would walk through all of the history first.
            create = client.chat.completions.with_streaming_response.create
            return create(model=request.model, messages=(), stream=True, extra_body=body)

        async with aclosing(self._connection.chunks(opens, reader)) as chunks:
            async for chunk in chunks:
                yield chunk
