"""Connections that an adapter keeps, and that the server closes just when the next request is on its way."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from providers import Provider, provider

from callboard.actors import Model, ModelError
from callboard.net.adapters import Anthropic, OpenAI, kept
from callboard.storage.messages import Message, Request, TextBlock, TextDelta

BOTH = pytest.mark.parametrize("kind", [OpenAI, Anthropic], ids=["openai", "anthropic"])
Kind = type[OpenAI] | type[Anthropic]


@asynccontextmanager
async def opened(kind: Kind, *, keeps: int) -> AsyncGenerator[tuple[Provider, Model]]:
    async with provider() as server:
        server.keeps = keeps
        model = kind(key="sk-test-0123456789", base_url=f"{server.url}/v1" if kind is OpenAI else server.url)
        yield server, model
        await model.aclose()


async def ask(model: Model, said: str = "hello") -> str:
    request = Request(model.provider, "large", messages=(Message("m", "user", (TextBlock(said),)),))
    return "".join([chunk.text async for chunk in model.stream(request) if isinstance(chunk, TextDelta)])


@BOTH
async def test_what_nobody_read_is_sent_again_over_a_new_connection(kind: Kind) -> None:
    async with opened(kind, keeps=1) as (server, model):
        assert [await ask(model) for _ in range(4)] == ["hello"] * 4
        assert len(server.asked) == 4 + 3, "each but the first went to a closed connection before"
        assert server.asked[1] == server.asked[2]


@BOTH
async def test_an_open_connection_is_kept(kind: Kind) -> None:
    async with opened(kind, keeps=9) as (server, model):
        assert [await ask(model) for _ in range(4)] == ["hello"] * 4
        assert (len(server.asked), server.open) == (4, 1)


@BOTH
async def test_a_new_connection_that_ends_without_an_answer_is_a_failure_at_once(kind: Kind) -> None:
    async with opened(kind, keeps=0) as (server, model):
        with pytest.raises(ModelError, match="Server disconnected") as caught:
            await ask(model)
        assert (caught.value.code, len(server.asked)) == ("TRANSPORT", 1)


@BOTH
async def test_what_may_have_been_worked_on_is_not_repeated(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(kind, keeps=1) as (server, model):
        await ask(model)
        monkeypatch.setattr(kept, "AT_ONCE_S", 0)
        with pytest.raises(ModelError, match="Server disconnected"):
            await ask(model)
        assert len(server.asked) == 2


@BOTH
async def test_an_answer_that_breaks_off_is_not_repeated(kind: Kind) -> None:
    async with opened(kind, keeps=9) as (server, model):
        await ask(model)
        with pytest.raises(ModelError) as caught:
            await ask(model, "drop")
        assert (caught.value.code, len(server.asked)) == ("TRANSPORT", 2)


@BOTH
async def test_what_was_answered_with_no_http_is_not_repeated(kind: Kind) -> None:
    async with opened(kind, keeps=9) as (server, model):
        await ask(model)
        with pytest.raises(ModelError) as caught:
            await ask(model, "babble")
        assert (caught.value.code, len(server.asked)) == ("TRANSPORT", 2)
