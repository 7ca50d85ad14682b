"""What both adapters share: events out of bytes, schemas in a strict dialect, errors by what their bodies say, names and ids."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.net.adapters import Anthropic, OpenAI
from callboard.net.adapters.base import checked_url, is_of
from callboard.net.adapters.failures import from_response, scrubbed
from callboard.net.adapters.parts import wire_id, wire_name
from callboard.net.adapters.schemas import strict
from callboard.net.adapters.sse import LARGEST, Event, SseParser
from callboard.storage import ModelError, UsageError

# -- server-sent events

STREAM = 'event: a\ndata: {"x": 1}\n\n: a comment\r\ndata: äö\r\ndata:two\r\n\r\nid: 7\rretry: 3\rdata\r\rdata: [DONE]\n\n'
EVENTS = [Event('{"x": 1}', "a"), Event("äö\ntwo"), Event(""), Event("[DONE]")]


def parsed(*pieces: bytes) -> list[Event]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)]


@given(st.lists(st.integers(0, len(STREAM.encode())), max_size=20))
def test_events_are_the_same_wherever_the_bytes_are_cut(cuts: list[int]) -> None:
    data, places = STREAM.encode(), sorted(cuts)
    bounds = zip([0, *places], [*places, None], strict=True)
    assert parsed(*(data[start:end] for start, end in bounds)) == EVENTS


def test_a_mark_of_the_byte_order_is_none_and_an_event_without_its_end_neither() -> None:
    assert parsed(b"\xef\xbb\xbfdata: x\n\ndata: cut") == [Event("x")]
    assert parsed(b"data: \xff\n\n") == [Event("\ufffd")]


@pytest.mark.parametrize("piece", [b"x" * 2**20, b"data: " + b"x" * 2**20 + b"\n"])
def test_an_event_that_never_ends_fills_no_memory(piece: bytes) -> None:
    parser = SseParser()
    with pytest.raises(ModelError, match="more than 16 MiB") as caught:
        for _ in range(LARGEST // 2**20 + 1):
            parser.feed(piece)
    assert caught.value.code == "BAD_RESPONSE"


@given(st.lists(st.binary(max_size=30)))
def test_no_bytes_break_it(pieces: list[bytes]) -> None:
    parsed(*pieces)


# -- schemas


class Room(msgspec.Struct):
    name: str
    beds: int = 1
    kind: str | None = None


class Tree(msgspec.Struct):
    leaves: list[Tree] = []


def schema_of(shape: Any) -> dict[str, Any]:
    (root,), defs = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    return {**root, "$defs": defs}


def test_objects_are_closed_and_ask_for_everything() -> None:
    made = strict(schema_of(Room), recursive=False)
    assert made is not None
    assert made["$defs"]["Room"] == {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "beds": {"type": "integer"},
            "kind": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "required": ["name", "beds", "kind"],
        "additionalProperties": False,
    }
    assert made["$ref"] == "#/$defs/Room" and "description" not in made


def test_rules_that_the_dialect_lacks_are_told_in_words() -> None:
    made = strict(
        {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "description": "How many"}}}, recursive=False
    )
    assert made is not None and made["properties"]["n"] == {"type": "integer", "description": "How many (minimum: 1)"}


@pytest.mark.parametrize(
    ("schema", "made"),
    [
        ({"enum": ["a", "b"]}, {"enum": ["a", "b"], "type": "string"}),
        ({"const": 3}, {"enum": [3], "type": "integer"}),
        ({"enum": ["a", None]}, {"enum": ["a", None], "type": ["string", "null"]}),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"type": "array", "items": {"type": "string"}, "title": "T"}, {"type": "array", "items": {"type": "string"}}),
    ],
)
def test_other_shapes(schema: dict[str, Any], made: dict[str, Any]) -> None:
    assert strict(schema, recursive=False) == made


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object", "properties": {"a": {}}},
        {"type": "array"},
        {"type": "array", "prefixItems": [{"type": "string"}]},
        {"allOf": [{"type": "string"}]},
        {"enum": [[1]]},
        {"anyOf": [True]},
    ],
)
def test_what_has_no_strict_form(schema: dict[str, Any]) -> None:
    assert strict(schema, recursive=True) is None


def test_a_schema_that_holds_itself() -> None:
    assert strict(schema_of(Tree), recursive=False) is None
    assert strict(schema_of(Tree), recursive=True) is not None


# -- errors


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (400, {"message": "too long", "code": "context_length_exceeded"}, "CONTEXT_OVERFLOW"),
        (400, {"message": "prompt is too long: 5 tokens > 4 maximum", "type": "invalid_request_error"}, "CONTEXT_OVERFLOW"),
        (
            400,
            {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"},
            "CONTEXT_OVERFLOW",
        ),
        (413, {"type": "request_too_large", "message": "Request exceeds the maximum size"}, "CONTEXT_OVERFLOW"),
        (400, {"message": "Your credit balance is too low", "type": "invalid_request_error"}, "QUOTA"),
        (429, {"message": "You exceeded your current quota", "code": "insufficient_quota"}, "QUOTA"),
        (429, {"message": "Rate limit reached: too many tokens", "code": "rate_limit_exceeded"}, "RATE_LIMIT"),
        (401, {"message": "bad", "type": "invalid_request_error"}, "AUTH"),
        (404, {"message": "no such model", "code": "model_not_found"}, "NOT_FOUND"),
        (400, {"message": "filtered", "code": "content_filter"}, "CONTENT_FILTER"),
        (529, {"message": "Overloaded", "type": "overloaded_error"}, "SERVER"),
        (400, {"message": "temperature: no", "type": "invalid_request_error"}, "BAD_REQUEST"),
        (500, {"message": "oops", "type": "api_error"}, "SERVER"),
        (418, None, "BAD_REQUEST"),
    ],
)
def test_the_body_of_an_error_says_more_than_its_status(status: int, error: Any, code: str) -> None:
    for body in ({"error": error}, {"type": "error", "error": error}, [{"error": error}]):
        got = from_response(status, json.dumps(body).encode(), {"retry-after": "3"})
        assert (got.code, got.status, got.retry_after_s) == (code, status, 3)
        assert got.message == (error["message"] if error else json.dumps(body))


@given(st.integers(400, 599), st.binary(max_size=60))
def test_no_body_breaks_it(status: int, body: bytes) -> None:
    assert from_response(status, body, {}).message


def test_no_key_leaves() -> None:
    told = "Incorrect API key provided: sk-proj-a***b and my-key-123 in Bearer abc.def"
    assert scrubbed(told, ["my-key-123", ""]) == "Incorrect API key provided: [key] and [key] in [key]"
    assert len(scrubbed("x" * 9_999)) == 2_000


# -- addresses


@pytest.mark.parametrize("make", [OpenAI, Anthropic])
@pytest.mark.parametrize("url", ["localhost:8080/v1", "ftp://x/v1", "http://[bad/v1", "http:///v1", "http://x:99999/v1"])
def test_an_address_that_is_none_is_refused_at_once(make: Any, url: str) -> None:
    with pytest.raises(UsageError, match="is no address of a server"):
        make(base_url=url)


def test_what_is_the_providers_own() -> None:
    assert checked_url(" ") is None and checked_url(" http://x/v1\n") == "http://x/v1"
    own = (None, "https://api.openai.com/v1", "https://eu.api.openai.com/v1")
    others = ("http://127.0.0.1/v1", "https://openai.com.evil.test/v1", "https://notopenai.com")
    assert [is_of(url, "openai.com", "azure.com") for url in (*own, *others)] == [True] * 3 + [False] * 3


# -- ids and names


@given(st.text(max_size=80), st.text(max_size=80))
def test_ids_stay_different_and_are_taken_everywhere(one: str, two: str) -> None:
    for longest in (40, 64):
        first, second = wire_id(one, longest=longest), wire_id(two, longest=longest)
        assert 1 <= len(first) <= longest and first.isascii()
        assert (first == second) == (one == two)
    assert wire_id("call_1-A") == "call_1-A"
    assert 1 <= len(wire_name(one)) <= 64
