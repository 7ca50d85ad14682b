"""The scripted model: what its replies stream, and how a script is used up."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
import trio
from trio.testing import assert_no_checkpoints, wait_all_tasks_blocked

from callboard.actors.models import Assembled, Assembler, Model, RetryPolicy
from callboard.actors.testing import Reply, ScriptedModel
from callboard.storage import chunks as c
from callboard.storage.errors import ModelError, UsageError
from callboard.storage.messages import (
    Chunk,
    FinishChunk,
    Message,
    ReasoningBlock,
    Request,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    Usage,
)

ASK = Request("scripted", "demo", messages=(Message("m1", "user", (TextBlock("hi"),)),))


async def played(model: Model, request: Request = ASK) -> list[Chunk]:
    return [chunk async for chunk in model.stream(request)]


async def answer(reply: Reply) -> Assembled:
    assembler = Assembler()
    for chunk in await played(ScriptedModel([reply])):
        assembler.feed(chunk)
    return assembler.result()


async def test_c003_a_text_in_three_parts_is_exactly_seven_chunks() -> None:
    assert await played(ScriptedModel([Reply.text("abc", parts=3)])) == [
        c.block_start(0, "text"),
        c.text_delta(0, "a"),
        c.text_delta(0, "b"),
        c.text_delta(0, "c"),
        c.block_end(0),
        c.usage(input=1, output=3),
        c.finish("stop"),
    ]


@pytest.mark.parametrize(("text", "parts"), [("", 1), ("ab", 3), ("a longer text", 5), ("x" * 100, 20)])
async def test_parts_are_as_many_as_asked_and_join_to_the_text(text: str, parts: int) -> None:
    deltas = [x.text for x in await played(ScriptedModel([Reply.text(text, parts=parts)])) if isinstance(x, TextDelta)]
    assert (len(deltas), "".join(deltas)) == (parts, text)


async def test_no_parts_is_refused() -> None:
    with pytest.raises(UsageError, match="at least one part"):
        Reply.text("a", parts=0)


async def test_text_may_follow_reasoning_and_bring_its_own_usage() -> None:
    got = await answer(Reply.text("a", reasoning="hm", usage=Usage(7, 8)))
    assert got == Assembled((ReasoningBlock("hm"), TextBlock("a")), "stop", Usage(7, 8))


async def test_tools_are_calls_with_json_arguments_after_a_text() -> None:
    got = await answer(Reply.tools(("c1", "lookup", {"city": "Oslo"}), ("c2", "broken", "{not json"), text="Let me see"))
    assert got.finish == "tool-calls"
    assert got.blocks == (
        TextBlock("Let me see"),
        ToolCallBlock("c1", "lookup", '{"city":"Oslo"}'),
        ToolCallBlock("c2", "broken", "{not json"),
    )


async def test_c069_c071_max_tokens_cuts_text_or_a_call() -> None:
    assert (await answer(Reply.max_tokens("half"))).content == (TextBlock("half"),)
    lone = await answer(Reply.max_tokens("", ("c1", "t", {})))
    assert (lone.finish, len(lone.blocks), lone.content) == ("max-tokens", 1, ())


async def test_a_refusal_says_its_text() -> None:
    got = await answer(Reply.refusal("No."))
    assert (got.finish, got.content) == ("refusal", (TextBlock("No."),))


async def test_an_output_is_the_json_of_a_value_without_fences() -> None:
    class Trip(msgspec.Struct):
        city: str
        nights: int

    (block,) = (await answer(Reply.output(Trip("Oslo", 3)))).blocks
    assert isinstance(block, TextBlock)
    assert json.loads(block.text) == {"city": "Oslo", "nights": 3}


async def test_chunks_are_streamed_as_they_are() -> None:
    chunks: list[Chunk] = [c.text_delta(3, "a"), FinishChunk("aborted")]
    assert await played(ScriptedModel([Reply.chunks(chunks)])) == chunks


async def test_c081_a_failure_is_exact_and_may_come_after_text_and_usage() -> None:
    model = ScriptedModel(
        [Reply.fail("RATE_LIMIT", "slow", status=429, retry_after_s=2, request_id="r", after="a", usage=Usage(1))]
    )
    seen: list[Chunk] = []
    with pytest.raises(ModelError) as caught:
        async for chunk in model.stream(ASK):
            seen.append(chunk)
    error = caught.value
    assert (error.code, error.message, error.status, error.retry_after_s, error.request_id) == ("RATE_LIMIT", "slow", 429, 2, "r")
    assert seen == [c.block_start(0, "text"), c.text_delta(0, "a"), c.usage(input=1)]


async def test_a_failure_is_a_new_error_each_time() -> None:
    model = ScriptedModel(lambda request: reply)
    reply = Reply.fail("SERVER")
    errors: list[ModelError] = []
    for _ in range(2):
        with pytest.raises(ModelError) as caught:
            await played(model)
        errors.append(caught.value)
    assert errors[0] is not errors[1]


async def test_c096_a_reply_may_raise_any_exception() -> None:
    with pytest.raises(KeyError, match="odd"):
        await played(ScriptedModel([Reply.raises(KeyError("odd"), after="text")]))


async def test_c050_a_hanging_reply_stays_open_until_it_is_cancelled() -> None:
    seen: list[Chunk] = []

    async def read() -> None:
        async for chunk in ScriptedModel([Reply.hang("partial")]).stream(ASK):
            seen.append(chunk)
        raise AssertionError("the stream ended")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        assert seen == [c.block_start(0, "text"), c.text_delta(0, "partial")]
        nursery.cancel_scope.cancel()


async def test_a_waiting_reply_streams_once_its_event_is_set() -> None:
    event = trio.Event()
    model = ScriptedModel([Reply.wait(event, Reply.text("now"))])
    got: list[Chunk] = []

    async def read() -> None:
        got.extend(await played(model))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(read)
        await wait_all_tasks_blocked()
        assert got == []
        assert len(model.requests) == 1
        event.set()
    assert c.text_delta(0, "now") in got


async def test_a_paced_model_gives_others_a_turn_before_each_chunk_and_an_unpaced_one_none() -> None:
    with assert_no_checkpoints():
        await played(ScriptedModel([Reply.text("abc", parts=3)]))
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            await trio.lowlevel.checkpoint()
            passes += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        assert len(await played(ScriptedModel([Reply.text("abc", parts=3)], paced=True))) == 7
        nursery.cancel_scope.cancel()
    assert passes >= 5  # which of two tasks a pass runs first is random


# -- scripts


async def test_requests_are_kept_in_order_as_they_were() -> None:
    model = ScriptedModel([Reply.text("a"), Reply.text("b")])
    other = msgspec.structs.replace(ASK, model="large")
    await played(model)
    await played(model, other)
    assert model.requests == [ASK, other]
    assert model.requests[1] is other


async def test_a_place_in_the_script_is_taken_when_the_stream_is_read() -> None:
    model = ScriptedModel([Reply.text("first"), Reply.text("second")])
    early, late = model.stream(ASK), model.stream(ASK)
    assert c.text_delta(0, "first") in [x async for x in late]
    assert c.text_delta(0, "second") in [x async for x in early]


async def test_c093_a_script_that_ran_out_fails_and_says_how_long_it_was() -> None:
    model = ScriptedModel([Reply.text("a")])
    await played(model)
    with pytest.raises(ModelError, match="holds 1 replies and this is request 2") as caught:
        await played(model)
    assert caught.value.code == "SCRIPT_EXHAUSTED"
    assert not caught.value.transient
    assert len(model.requests) == 2


async def test_a_script_may_be_a_function_or_hold_some() -> None:
    def echo(request: Request) -> Reply:
        return Reply.text(request.messages[-1].text)

    for model in (ScriptedModel(echo), ScriptedModel([echo])):
        assert c.text_delta(0, "hi") in await played(model)
        model.assert_used_up()


async def test_what_was_not_played_is_named() -> None:
    model = ScriptedModel([Reply.text("a"), Reply.text("b"), Reply.fail("X")])
    await played(model)
    with pytest.raises(
        AssertionError, match=re.escape("2 replies of the script were never played: Reply.text('b'), Reply.fail(X)")
    ):
        model.assert_used_up()
    await played(model)
    with pytest.raises(ModelError):
        await played(model)
    model.assert_used_up()


async def test_copies_share_the_script_and_its_requests() -> None:
    model = ScriptedModel([Reply.text("a"), Reply.text("b")])
    large = model.named("large")
    await played(large)
    await played(model)
    assert (model.name, large.name, len(large.requests)) == ("demo", "large", 2)
    model.assert_used_up()


async def test_a_long_run_need_not_keep_its_requests() -> None:
    model = ScriptedModel(lambda request: Reply.text("a"), keep_requests=False)
    await played(model)
    assert model.requests == []


async def test_what_is_no_reply_is_refused_with_a_guess() -> None:
    with pytest.raises(UsageError, match=re.escape("write Reply.text('hello')")):
        ScriptedModel(["hello"])  # type: ignore[list-item] # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="not None"):
        await played(ScriptedModel(lambda request: None))  # type: ignore[arg-type,return-value] # pyright: ignore


def test_prepare_answers_what_the_model_was_told_and_is_pure() -> None:
    policy = RetryPolicy(tries=2)
    model = ScriptedModel([], defaults={"max_tokens": 7}, context_window=1000, retry=policy, images=False, schema=True)
    first, second = model.prepare(ASK), model.prepare(ASK)
    assert first == second
    assert (first.request, first.defaults, first.context_window) == (ASK, {"max_tokens": 7}, 1000)
    assert (first.retry, first.images, first.schema) == (policy, False, True)
    assert model.requests == []


def test_all_of_it_can_be_read() -> None:
    assert repr(Reply.text("hello")) == "Reply.text('hello')"
    assert repr(Reply.tools(("c1", "lookup", {}))) == "Reply.tools(lookup:c1)"
    assert repr(Reply.wait(trio.Event(), Reply.hang("x"))) == "Reply.wait(Reply.hang('x'))"
    assert repr(Reply.text("x" * 99)) == f"Reply.text('{'x' * 39}…')"
    assert repr(ScriptedModel([Reply.text("a")])) == "<ScriptedModel scripted:demo, 0 of 1 played>"
    assert repr(ScriptedModel(lambda r: Reply.text("a"), provider="p", name="n")) == "<ScriptedModel p:n, 0 played>"
