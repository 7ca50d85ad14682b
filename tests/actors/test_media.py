"""Pictures and files reach the adapter with their bytes; the log, the digest and plugins see them by digest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import Any

import pytest
from helpers import check, make, opened, records, scripted

from callboard import tool
from callboard.actors import Plugin, ToolOutput
from callboard.actors.models.media import with_media
from callboard.actors.plugins import Invariants
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import StoreError
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.messages import Chunk, File, Image, Message, Request, TextBlock, ToolResultBlock

PIXEL, PAGES = b"\x89PNG", b"%PDF"
DIGEST = sha256(PIXEL).hexdigest()


@tool(replay="safe")
async def snap() -> ToolOutput:
    """Take a picture."""
    return ToolOutput([TextBlock("Here:"), Image.from_bytes(PIXEL, "image/png")])


class Sees(Plugin):
    """Keeps what middleware is shown."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    async def stream(self, ctx: Any, request: Request, next: Any) -> AsyncIterator[Chunk]:
        self.requests.append(request)
        async for chunk in next(request):
            yield chunk


async def test_the_adapter_gets_bytes_and_everybody_else_a_digest() -> None:
    model, sees = scripted("a cat"), Sees()
    async with opened(make(model, plugins=[sees, Invariants()])) as (system, ref):
        await ref.ask(
            [TextBlock("What is this?"), Image.from_bytes(PIXEL, "image/png"), File.from_bytes(PAGES, "application/pdf")]
        )
        _, image, file = model.requests[0].messages[0].content
        assert image == Image("image/png", blob=DIGEST, data=PIXEL)
        assert isinstance(file, File) and file.data == PAGES
        assert sees.requests[0].messages[0].content[1] == Image("image/png", blob=DIGEST)
        (put,) = [r.event for r in await records(system.store) if isinstance(r.event, e.InboxPut)]
        assert put.message.content[1] == Image("image/png", blob=DIGEST)


async def test_pictures_in_results_reach_it_too_also_after_a_restart() -> None:
    store = MemoryStore()
    agent = make(scripted(Reply.tools(("c1", "snap", {})), "a dog"), tools=[snap])
    async with opened(agent, store) as (_, ref):
        assert (await ref.ask("look")).text == "a dog"
    model = scripted("still a dog")
    async with opened(agent.replace(model=model), store) as (_, ref):
        await ref.ask("and now?")
        (result,) = [b for m in model.requests[0].messages for b in m.content if isinstance(b, ToolResultBlock)]
        assert result.content == (TextBlock("Here:"), Image("image/png", blob=DIGEST, data=PIXEL))
    await check(store)


async def test_c110_a_model_that_sees_no_pictures_is_shown_none_in_results_either() -> None:
    replies = [Reply.tools(("c1", "snap", {})), Reply.text("I cannot see.")]
    model = ScriptedModel(replies, images=False)
    async with opened(make(model, tools=[snap], plugins=[Invariants()])) as (_, ref):
        assert (await ref.ask([TextBlock("look"), Image.from_bytes(PIXEL, "image/png")])).text == "I cannot see."
    blocks = [b for m in model.requests[1].messages for b in m.content]
    results = [b.content for b in blocks if isinstance(b, ToolResultBlock)]
    assert results == [(TextBlock("Here:"), TextBlock("[a picture, which this model cannot see]"))]
    assert not any(isinstance(b, Image) for b in blocks)


async def test_a_model_call_of_a_plugins_own_gets_them() -> None:
    class Describes(Plugin):
        async def pre_step(self, ctx: Any, boundary: Any, next: Any) -> Any:
            if boundary.messages:
                await ctx.model(boundary.messages)
            return await next(boundary)

    model = scripted("a cat", "yes")
    async with opened(make(model, plugins=[Describes()])) as (_, ref):
        await ref.ask([Image.from_bytes(PIXEL, "image/png")])
    assert [r.messages[0].content for r in model.requests] == [(Image("image/png", blob=DIGEST, data=PIXEL),)] * 2


async def test_a_lost_blob_fails_the_request_and_closes_it() -> None:
    store, model = MemoryStore(), scripted("a cat")
    async with opened(make(model), store) as (_, ref):
        await ref.ask([Image.from_bytes(PIXEL, "image/png")])
        store._data.blobs.clear()  # pyright: ignore[reportPrivateUsage]
        outcome = await ref.ask("sure?")
        assert isinstance(outcome.reason, e.Errored)
        assert f"there is no blob {DIGEST}" in outcome.reason.error.message
    assert len(model.requests) == 1
    assert [r.event.action for r in await records(store) if isinstance(r.event, e.RequestFailed)] == ["raise"]


async def test_a_request_without_media_is_left_alone() -> None:
    async def no(digest: str) -> bytes:
        raise StoreError(digest)

    async def streams(request: Request) -> AsyncIterator[Chunk]:
        raise AssertionError
        yield

    plain = Request("p", "m", messages=(Message("1", "user", (TextBlock("hi"), Image("image/png", url="https://x/y.png"))),))
    assert await with_media(plain, streams, no) is streams
    with pytest.raises(StoreError, match="abc"):
        await with_media(Request("p", "m", messages=(Message("1", "user", (File("a/b", blob="abc"),)),)), streams, no)
