"""From the events of both protocols to chunks: as they are written, as servers get them wrong, and as an attacker makes them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.models import Assembled, Assembler
from callboard.actors.testing.grammar import Grammar
from callboard.net.adapters.anthropic_streams import MessageReader
from callboard.net.adapters.openai_streams import ChatReader, usage_of
from callboard.net.adapters.sse import Event
from callboard.storage import ModelError
from callboard.storage.messages import (
    Chunk,
    Failure,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    Usage,
)

DONE = Event("[DONE]")


def chat(*events: Any, done: bool = True) -> list[Chunk]:
    """The chunks of a chat completion; an event is a whole one, or the delta of its choice."""
    reader, chunks = ChatReader(), list[Chunk]()
    for event in events:
        whole = event if {"choices", "error", "usage"} & event.keys() else {"choices": [{"index": 0, "delta": event}]}
        chunks += reader.feed(Event(json.dumps(whole)))
    if done:
        chunks += reader.feed(DONE)
    return [*chunks, *reader.end()]


def finish(word: Any, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": word}]}


def message(*events: dict[str, Any]) -> list[Chunk]:
    """The chunks of a message."""
    reader, chunks = MessageReader(), list[Chunk]()
    for event in events:
        chunks += reader.feed(Event(json.dumps(event), event["type"]))
    return [*chunks, *reader.end()]


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": fields}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def end(word: str = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": word}, "usage": usage}


def whole(chunks: list[Chunk]) -> Assembled:
    """The answer, from a stream that keeps the grammar but for usage, which a server may leave out."""
    grammar, assembler = Grammar(), Assembler()
    for chunk in chunks:
        grammar.feed(chunk)
        assembler.feed(chunk)
    assert [rule for rule in grammar.end() if "no usage" not in rule] == []
    return assembler.result()


def call(index: Any, id: str | None = None, name: str | None = None, arguments: Any = None) -> dict[str, Any]:
    piece = {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}
    return {"tool_calls": [piece]}


# -- chat completions


def test_text_reasoning_and_text_again_are_blocks_of_their_own() -> None:
    answer = whole(chat({"reasoning": "Hm"}, {"content": "a"}, {"content": "b"}, {"reasoning_content": "so"}, finish("stop")))
    assert answer.blocks == (ReasoningBlock("Hm"), TextBlock("ab"), ReasoningBlock("so"))


def test_parts_of_mistral() -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}
    answer = whole(chat({"content": [thinking, {"type": "text", "text": "a"}]}, finish("stop")))
    assert answer.blocks == (ReasoningBlock("Hm"), TextBlock("a"))


@pytest.mark.parametrize(
    "pieces",
    [
        [
            call(0, "c1", "f", ""),
            call(1, "c2", "g", ""),
            call(0, arguments='{"a"'),
            call(1, arguments="{}"),
            call(0, arguments=":1}"),
        ],
        [call(0, "c1", "f", '{"a":1}'), call(0, "c2", "g", "{}")],  # every call at index 0
        [call(None, "c1", "f", '{"a":1}'), call(None, "c2", "g", "{}")],  # no index at all
        [call(None, "c1", "f", '{"a"'), call(None, arguments=":1}"), call(None, "c2", "g", "{}")],
        [call(0, "c1", "f", '{"a"'), call(0, "c1", "f", ":1}"), call(1, "c2", "g", "{}")],  # id and name with every piece
        [call(0, "c1", "f", {"a": 1}), call(1, "c2", "g", {})],  # decoded
    ],
)
def test_calls_in_whatever_pieces(pieces: list[dict[str, Any]]) -> None:
    answer = whole(chat(*pieces, finish("tool_calls")))
    assert answer.calls == (ToolCallBlock("c1", "f", '{"a":1}'), ToolCallBlock("c2", "g", "{}"))
    assert answer.finish == "tool-calls"


def test_a_call_without_an_id_gets_one() -> None:
    assert whole(chat({"content": "x"}, call(0, None, "f", "{}"), finish("stop"))).calls == (ToolCallBlock("call_1", "f", "{}"),)


@pytest.mark.parametrize(
    ("word", "finish_"),
    [
        ("stop", "stop"),
        ("STOP", "stop"),
        ("length", "max-tokens"),
        ("MAX_TOKENS", "max-tokens"),
        ("content_filter", "content-filter"),
        ("function_call", "tool-calls"),
    ],
)
def test_finish_words(word: str, finish_: str) -> None:
    assert whole(chat({"content": "x"}, finish(word))).finish == finish_


def test_a_refusal_is_shown_and_is_one() -> None:
    answer = whole(chat({"refusal": "I "}, {"refusal": "cannot."}, finish("stop")))
    assert (answer.blocks, answer.finish) == ((TextBlock("I cannot."),), "refusal")


def test_a_server_that_could_not_go_on_may_be_asked_again() -> None:
    answer = whole(chat({"content": "x"}, finish("insufficient_system_resource")))
    assert answer.failure is not None and answer.failure.code == "SERVER"


def test_the_end_without_a_finish_or_a_mark() -> None:
    assert whole(chat({"content": "x"})).finish == "stop"
    assert whole(chat({"content": "x"}, finish("stop"), done=False)).finish == "stop"
    with pytest.raises(ModelError, match="in the middle") as caught:
        chat({"content": "x"}, done=False)
    assert caught.value.code == "TRANSPORT"


@pytest.mark.parametrize("word", ["stop", "tool_calls", None])
def test_nothing_said_is_no_answer(word: str | None) -> None:
    usage = {"usage": {"prompt_tokens": 5, "completion_tokens": 0}}
    answer = whole(chat({"role": "assistant", "content": ""}, finish(word), usage))
    assert answer.failure is not None and answer.failure.code == "EMPTY_RESPONSE"
    assert answer.usage == Usage(5)
    assert whole(chat({"content": ""}, finish("length"))).failure is None, "a cap that left no room is a cap"


def test_an_error_inside_the_stream() -> None:
    for error, code in (
        ({"message": "Overloaded", "type": "overloaded_error"}, "SERVER"),
        ({"message": "slow down sk-abcdefgh", "code": 429}, "RATE_LIMIT"),
        ({"message": "maximum context length is 5", "code": "x"}, "CONTEXT_OVERFLOW"),
        ("out of memory", "SERVER"),
    ):
        with pytest.raises(ModelError) as caught:
            chat({"error": error})
        assert caught.value.code == code
        assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("usage", "counts"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 4}, Usage(10, 4)),
        ({"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6}}, Usage(4, 4, 6)),
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": 2}},
            Usage(2, 4, 6, 2),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "completion_tokens_details": {"reasoning_tokens": 3}},
            Usage(10, 1, 0, 0, 3),
        ),
        (  # counted beside the completion
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "total_tokens": 17,
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(10, 4, 0, 0, 3),
        ),
        ({"prompt_tokens": 10, "completion_tokens": 4, "prompt_cache_hit_tokens": 7}, Usage(3, 4, 7)),
        ({"prompt_tokens": -5, "completion_tokens": 1e9, "prompt_tokens_details": [1]}, Usage()),
        (
            {"prompt_tokens": 1, "completion_tokens": 1, "completion_tokens_details": {"reasoning_tokens": 9}},
            Usage(1, 0, 0, 0, 1),
        ),
    ],
)
def test_counts_are_disjoint(usage: dict[str, Any], counts: Usage) -> None:
    assert usage_of(usage) == counts


# -- messages


def test_blocks_of_a_message() -> None:
    answer = whole(
        message(
            {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
            start(0, type="thinking", thinking="", signature=""),
            delta(0, type="thinking_delta", thinking="Hm."),
            delta(0, type="signature_delta", signature="sig"),
            stop(0),
            start(1, type="redacted_thinking", data="xx"),
            stop(1),
            start(2, type="text", text="a"),
            delta(2, type="text_delta", text="b"),
            stop(2),
            start(3, type="tool_use", id="c1", name="f", input={}),
            delta(3, type="input_json_delta", partial_json='{"a"'),
            delta(3, type="input_json_delta", partial_json=":1}"),
            stop(3),
            start(4, type="tool_use", id="c2", name="g", input={"b": 2}),
            stop(4),
            end("tool_use", output_tokens=8, cache_read_input_tokens=5, input_tokens=None),
            {"type": "message_stop"},
        )
    )
    assert answer.blocks == (
        ReasoningBlock("Hm.", "sig"),
        ReasoningBlock("", meta={"anthropic": {"redacted": "xx"}}),
        TextBlock("ab"),
        ToolCallBlock("c1", "f", '{"a":1}'),
        ToolCallBlock("c2", "g", '{"b":2}'),
    )
    assert (answer.finish, answer.usage) == ("tool-calls", Usage(9, 8, 5))


def test_tools_of_the_providers_own_and_citations_are_kept() -> None:
    results = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "https://x"}]}
    answer = whole(
        message(
            start(0, type="server_tool_use", id="s1", name="web_search", input={}),
            delta(0, type="input_json_delta", partial_json='{"query":'),
            delta(0, type="input_json_delta", partial_json='"x"}'),
            stop(0),
            start(1, **results),
            stop(1),
            start(2, type="text", text=""),
            delta(2, type="citations_delta", citation={"url": "https://x"}),
            delta(2, type="text_delta", text="So."),
            stop(2),
            end(),
        )
    )
    searched = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    assert answer.blocks == (
        TextBlock("", meta={"anthropic": {"block": searched}}),
        TextBlock("", meta={"anthropic": {"block": results}}),
        TextBlock("So.", meta={"anthropic": {"citations": [{"url": "https://x"}]}}),
    )


@pytest.mark.parametrize(
    ("word", "finish_"),
    [
        ("stop_sequence", "stop"),
        ("max_tokens", "max-tokens"),
        ("pause_turn", "max-tokens"),
        ("model_context_window_exceeded", "max-tokens"),
        ("refusal", "refusal"),
    ],
)
def test_stop_reasons(word: str, finish_: str) -> None:
    assert whole(message(start(0, type="text", text="x"), stop(0), end(word))).finish == finish_


def test_a_message_with_nothing_in_it_is_no_answer() -> None:
    answer = whole(message(start(0, type="text", text=""), stop(0), end(output_tokens=1)))
    assert answer.failure == Failure("EMPTY_RESPONSE", "the model ended its answer and had said nothing")
    assert whole(message(end("refusal"))).failure is None


def test_events_and_deltas_that_are_to_come_are_passed_over_and_open_blocks_are_closed() -> None:
    answer = whole(
        message({"type": "ping"}, start(0, type="text"), delta(0, type="glow"), delta(0, type="text_delta", text="x"), end())
    )
    assert answer.blocks == (TextBlock("x"),)


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}], "SERVER"),
        ([{"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}}], "RATE_LIMIT"),
        (
            [{"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 5"}}],
            "CONTEXT_OVERFLOW",
        ),
        ([{"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}], "BAD_REQUEST"),
        ([{"type": "error"}], "SERVER"),
        ([start(0, type="text", text="x")], "TRANSPORT"),
        ([start(0, type="text"), start(0, type="text")], "BAD_RESPONSE"),
        ([end("tired")], "BAD_RESPONSE"),
        ([start(0, type="server_tool_use"), delta(0, type="input_json_delta", partial_json="{"), stop(0)], "BAD_RESPONSE"),
    ],
)
def test_what_goes_wrong_in_a_message(events: list[dict[str, Any]], code: str) -> None:
    with pytest.raises(ModelError) as caught:
        message(*events)
    assert caught.value.code == code


# -- whatever comes

READERS = st.sampled_from([ChatReader, MessageReader])
NAMES = (
    "type index delta content_block text thinking partial_json signature id name input usage message stop_reason choices "
    "content reasoning tool_calls function arguments finish_reason refusal error citation output_tokens data"
)
KINDS = (
    "content_block_start content_block_delta content_block_stop message_delta message_start text tool_use thinking end_turn stop "
    "text_delta input_json_delta thinking_delta signature_delta citations_delta server_tool_use redacted_thinking"
)
KEYS, WORDS = st.sampled_from(NAMES.split()), st.sampled_from(KINDS.split())
VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.integers() | st.floats(allow_nan=False) | WORDS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)
EVENTS = st.lists(st.dictionaries(KEYS, VALUES, max_size=6).map(json.dumps) | st.text(max_size=5) | st.just("[DONE]"), max_size=6)


@given(READERS, EVENTS)
def test_no_event_is_more_than_a_model_error_and_every_chunk_is_sound(make: Any, events: list[str]) -> None:
    reader, grammar = make(), Grammar()
    try:
        for data in events:
            for chunk in reader.feed(Event(data)):
                grammar.feed(chunk)
        for chunk in reader.end():
            grammar.feed(chunk)
    except ModelError as error:
        assert error.code in ("BAD_RESPONSE", "SERVER", "TRANSPORT", "RATE_LIMIT", "BAD_REQUEST", "CONTEXT_OVERFLOW")
    assert [rule for rule in grammar.broken if "no sound chunk" in rule or "never negative" in rule] == []


@given(st.integers(0, 200), st.lists(st.integers(0, 5), max_size=12))
def test_an_answer_cut_anywhere_into_pieces_is_the_same_answer(size: int, cuts: list[int]) -> None:
    arguments = msgspec.json.encode({"a": "x" * size}).decode()
    pieces, rest = list[dict[str, Any]](), arguments
    for cut in cuts:
        pieces.append(call(0, arguments=rest[:cut]))
        rest = rest[cut:]
    answer = whole(chat(call(0, "c1", "f", ""), *pieces, call(0, arguments=rest), finish("tool_calls")))
    assert answer.calls == (ToolCallBlock("c1", "f", arguments),)
