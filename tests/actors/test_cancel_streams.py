"""What a cut stream leaves in the log, and a cancel in the same instant as the model's own end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from helpers import events, history, make, opened, order, records, scripted
from trio.testing import wait_all_tasks_blocked

from callboard.actors.answers import Failed, Resend
from callboard.actors.models.model import Model, Prepared
from callboard.actors.seams import Plugin, SeamContext
from callboard.actors.testing.scripted import Reply
from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.engines.memory import MemoryStore
from callboard.storage.errors import ModelError
from callboard.storage.messages import Chunk, Failure, ReasoningBlock, Request, TextBlock, ToolCallBlock, Usage, UsageChunk

SENT = "put[t](one) TS1 claim(one) SS1.1 U(one) H{initial} X Q1 "
USAGE = Usage(input=3, output=2)
TEXT = (c.block_start(0, "text"), c.text_delta(0, "partial"))
CALL = (c.block_start(1, ToolCallBlock("c1", "echo")), c.tool_call_delta(1, arguments='{"te'))


async def _cut(*chunks: Chunk) -> tuple[str, list[e.AssistantMessage], MemoryStore]:
    """Cancel a turn whose stream has shown these chunks; its log, and its messages."""
    store = MemoryStore()
    async with opened(make(scripted(Reply.chunks(chunks, hang=True))), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
    return await order(store), await events(store, e.AssistantMessage), store


async def test_c050_a_cut_stream_keeps_its_text_and_the_next_request_has_it() -> None:
    store, model = MemoryStore(), scripted(Reply.hang("partial"), "whole")
    async with opened(make(model), store) as (_, ref):
        for text in ("one", "two"):
            await ref.followup(text)
            await wait_all_tasks_blocked()
            await ref.cancel()
            await ref.wait_idle()
        assert await history(ref) == ["user one", "assistant partial", "user two", "assistant whole"]
    assert await order(store) == (
        f"{SENT}C* TC1 A{{cut}} SE TE1{{aborted user}} put[t](two) TS2 claim(two) SS2.1 U(two) Q1 C* A SE TE2{{completed}}"
    )
    chunks = [r.seq for r in await records(store) if isinstance(r.event, e.AssistantChunk) and r.event.turn == 1]
    assert list((await events(store, e.AssistantMessage))[0].sources) == chunks
    assert [message.text for message in model.requests[1].messages] == ["one", "partial", "two"]


async def test_c051_a_cut_stream_keeps_reasoning_and_usage() -> None:
    whole, messages, store = await _cut(c.block_start(0, "reasoning"), c.reasoning_delta(0, "hm"), UsageChunk(USAGE))
    assert whole == f"{SENT}C* TC1 A{{cut}} SE TE1{{aborted user}}"
    assert messages[0].message.content == (ReasoningBlock("hm"),)
    assert messages[0].usage == USAGE
    assert (await events(store, e.TurnEnd))[0].usage == USAGE


async def test_c052_half_a_call_is_left_out_of_a_cut_message() -> None:
    whole, messages, _ = await _cut(*TEXT, c.block_end(0), *CALL)
    assert whole == f"{SENT}C* TC1 A{{cut}} SE TE1{{aborted user}}"
    assert messages[0].message.content == (TextBlock("partial"),)


@pytest.mark.parametrize("chunks", [(c.block_start(0, "text"), c.text_delta(0, "  \n")), CALL, (UsageChunk(USAGE),)])
async def test_c053_what_shows_nothing_leaves_no_message(chunks: tuple[Chunk, ...]) -> None:
    whole, messages, store = await _cut(*chunks)
    assert whole == f"{SENT}C* TC1 SE TE1{{aborted user}}"
    assert messages == []
    spent = USAGE if isinstance(chunks[-1], UsageChunk) else Usage()
    assert (await events(store, e.TurnEnd))[0].usage == spent


class Racing(Model):
    """Shows half an answer, cancels the agent that asks, and goes on in the same instant: with an end, or with an error."""

    provider, name = "racing", "demo"

    def __init__(self, *, ends: bool, error: Exception | None = None) -> None:
        self.ends, self.error = ends, error
        self.ref: Any = None

    def prepare(self, request: Request) -> Prepared:
        return Prepared(request)

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        for chunk in TEXT:
            yield chunk
        await self.ref.cancel()
        yield c.text_delta(0, " too late")
        if self.error is not None:
            raise self.error
        yield c.block_end(0)
        if self.ends:
            yield c.finish("stop")


@pytest.mark.parametrize("error", [ModelError("SERVER", "down", status=500), ValueError("broken adapter")])
async def test_c067_a_cancel_in_the_instant_of_a_providers_error(error: Exception) -> None:
    store, model = MemoryStore(), Racing(ends=False, error=error)
    async with opened(make(model), store) as (_, ref):
        model.ref = ref
        await ref.followup("one")
        await ref.wait_idle()
    assert await order(store) == f"{SENT}C* TC1 A{{cut}} SE TE1{{aborted user}}"
    reason: Any = (await events(store, e.TurnEnd))[0].reason
    assert reason.error.code == ("SERVER" if isinstance(error, ModelError) else "UNKNOWN")
    assert str(error) in reason.error.message


@pytest.mark.parametrize("ends", [True, False])
async def test_c054_an_answer_that_ends_in_the_instant_of_a_cancel_is_cut(ends: bool) -> None:
    store, model = MemoryStore(), Racing(ends=ends)
    async with opened(make(model), store) as (_, ref):
        model.ref = ref
        await ref.followup("one")
        await ref.wait_idle()
    assert await order(store) == f"{SENT}C* TC1 A{{cut}} SE TE1{{aborted user}}"
    assert [message.message.text for message in await events(store, e.AssistantMessage)] == ["partial"]


async def test_c067_a_finish_that_is_an_error_in_the_instant_of_a_cancel() -> None:
    store = MemoryStore()

    class Failing(Racing):
        async def stream(self, request: Request) -> AsyncIterator[Chunk]:
            await self.ref.cancel()
            yield c.finish("error", failure=Failure("SERVER", "down"))

    model = Failing(ends=False)
    async with opened(make(model), store) as (_, ref):
        model.ref = ref
        await ref.followup("one")
        await ref.wait_idle()
    assert await order(store) == f"{SENT}TC1 SE TE1{{aborted user}}"
    reason: Any = (await events(store, e.TurnEnd))[0].reason
    assert reason.error.code == "SERVER"


async def test_c091_a_cancel_while_a_retry_waits() -> None:
    store = MemoryStore()

    class Retries(Plugin):
        async def request_error(self, ctx: SeamContext, failed: Failed, next: Any, /) -> Resend | None:
            return Resend(after_s=1000)

    async with opened(make(scripted(Reply.fail("SERVER", "down")), plugins=[Retries()]), store) as (_, ref):
        await ref.followup("one")
        await wait_all_tasks_blocked()
        await ref.cancel()
        await ref.wait_idle()
    assert await order(store) == f"{SENT}F1{{retry}} TC1 SE TE1{{aborted user}}"
    reason: Any = (await events(store, e.TurnEnd))[0].reason
    assert (reason.error.code, reason.error.message) == ("SERVER", "down")
