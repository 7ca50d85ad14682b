"""From a request to the body of a message to Anthropic."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given
from test_openai_requests import HISTORIES, LOOK, PNG

from callboard.net.adapters.anthropic import Anthropic
from callboard.net.adapters.anthropic_requests import to_body
from callboard.storage.messages import (
    File,
    Image,
    Message,
    ModelSource,
    ReasoningBlock,
    Request,
    Settings,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
)

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}}
SCHEMA = {"type": "object", "properties": {"word": {"type": "string", "minLength": 1}}}


def body(*messages: Message, model: str = "claude-sonnet-5", extra: Any = None, cache: str | None = None, **more: Any) -> Any:
    return to_body(Request("anthropic", model, messages=messages, **more), extra or {}, cache=cache)


def user(*blocks: Any) -> Message:
    return Message("u", "user", tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks))


def assistant(*blocks: Any, by: str = "anthropic") -> Message:
    return Message("a", "assistant", tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks), ModelSource(by, "m"))


def result(id: str, *blocks: Any, is_error: bool = False) -> Message:
    content = tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks)
    return Message(f"r-{id}", "tool", (ToolResultBlock(id, content, is_error),))


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


def test_the_smallest_body() -> None:
    assert body(user("hi"), settings=Settings(max_tokens=9)) == {
        "model": "claude-sonnet-5",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": [text("hi")]}],
        "stream": True,
    }


def test_settings_tools_system_and_cache() -> None:
    settings = Settings(temperature=0.0, max_tokens=9, stop=("END", " "))
    made = body(user("hi"), settings=settings, system="Be brief.", tools=(LOOK,), cache="1h", extra={"top_k": 3})
    assert (made["system"], made["temperature"], made["stop_sequences"], made["top_k"]) == ("Be brief.", 0.0, ["END"], 3)
    assert made["tools"] == [{"name": "look", "description": "Look.", "input_schema": LOOK.schema}]
    assert made["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    with_server_tool = body(user("hi"), tools=(LOOK,), extra={"tools": [{"type": "web_search_20260209", "name": "web_search"}]})
    assert [t["name"] for t in with_server_tool["tools"]] == ["look", "web_search"]


def test_results_of_a_batch_and_what_was_said_meanwhile_are_one_message() -> None:
    calls = [ToolCallBlock("c1", "look", '{"city":"Oslo"}'), ToolCallBlock("c~2", "look", "nonsense")]
    made = body(
        user("look"), assistant("Let me.", *calls), result("c1", "rain", PNG), result("c~2", is_error=True), user("Quick!")
    )
    asked, said, answered = made["messages"]
    assert asked == {"role": "user", "content": [text("look")]}
    first, second = said["content"][1:]
    assert first == {"type": "tool_use", "id": "c1", "name": "look", "input": {"city": "Oslo"}}
    assert second["input"] == {"INVALID_JSON": "nonsense"}
    assert answered["content"] == [
        {"type": "tool_result", "tool_use_id": "c1", "content": [text("rain"), PICTURE]},
        {"type": "tool_result", "tool_use_id": second["id"], "content": [], "is_error": True},
        text("Quick!"),
    ]
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", second["id"]) and second["id"] != "c_2"


def test_a_history_that_does_not_begin_with_the_user_or_is_blank_is_mended() -> None:
    made = body(assistant("Summary."), user(" "), user("Go on."))
    assert [m["role"] for m in made["messages"]] == ["user", "assistant", "user"]
    assert made["messages"][2]["content"] == [text("Go on.")]
    assert body()["messages"] == [{"role": "user", "content": [text("(The conversation goes on.)")]}]


def test_thoughts_go_back_to_who_had_them_signed_or_blacked_out_and_to_nobody_else() -> None:
    thoughts = [
        ReasoningBlock("Hm.", "sig"),
        ReasoningBlock("unsigned"),
        ReasoningBlock("", meta={"anthropic": {"redacted": "xx"}}),
    ]
    assert body(user("x"), assistant(*thoughts, "So."))["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "redacted_thinking", "data": "xx"},
        text("So."),
    ]
    assert body(user("x"), assistant(*thoughts, "So.", by="openai"))["messages"][1]["content"] == [text("So.")]


def test_blocks_of_the_providers_own_tools_go_back_as_they_came() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    kept = TextBlock("", meta={"anthropic": {"block": search}})
    assert body(user("x"), assistant(kept, "So."))["messages"][1]["content"] == [search, text("So.")]
    assert body(user("x"), assistant(kept, "So.", by="openai"))["messages"][1]["content"] == [text("So.")]
    forged = Message("u", "user", (kept, TextBlock("hi")))
    assert body(forged)["messages"][0]["content"] == [text("hi")], "only a model's own answer can hold them"


def test_tools_that_are_gone_are_named_for_the_sake_of_their_calls() -> None:
    made = body(user("x"), assistant(ToolCallBlock("c1", "look", "{}")), result("c1", "rain"))
    assert ([t["name"] for t in made["tools"]], made["tool_choice"]) == (["look"], {"type": "none"})


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (PNG, PICTURE),
        (Image("image/png", url="https://x/y"), {"type": "image", "source": {"type": "url", "url": "https://x/y"}}),
        (
            File("application/pdf", name="a.pdf", data=b"pdf"),
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
                "title": "a.pdf",
            },
        ),
        (
            File("application/pdf", url="https://x/y"),
            {"type": "document", "source": {"type": "url", "url": "https://x/y"}},
        ),
        (File("application/json", data=b"{}"), text('<file name="file">\n{}\n</file>')),
        (Image("image/svg+xml", data=b"<svg/>"), text("[a picture of type image/svg+xml, which this model cannot see]")),
        (File("a/b", data=b"z"), text("[a file of type a/b, which this model cannot read]")),
    ],
)
def test_media(block: Any, part: dict[str, Any]) -> None:
    assert body(user("see", block))["messages"][0]["content"][1] == part


# -- effort and schemas


@pytest.mark.parametrize(
    ("model", "effort", "fields"),
    [
        ("claude-sonnet-5", "high", {"output_config": {"effort": "high"}, "thinking": {"type": "adaptive"}}),
        ("claude-opus-4-5", "minimal", {"output_config": {"effort": "low"}}),
        ("claude-sonnet-4-5", "low", {"thinking": {"type": "enabled", "budget_tokens": 4_096}}),
        ("claude-sonnet-4-5-20250929", "max", {"thinking": {"type": "enabled", "budget_tokens": 8_976}}),
        ("claude-sonnet-5", "none", {"thinking": {"type": "disabled"}}),
    ],
)
def test_effort(model: str, effort: str, fields: dict[str, Any]) -> None:
    made = body(user("x"), model=model, settings=Settings(max_tokens=10_000, effort=effort))
    assert {name: made[name] for name in ("output_config", "thinking") if name in made} == fields


def test_no_budget_for_thinking_where_there_is_no_room_or_another_model_called() -> None:
    call, settings = ToolCallBlock("c1", "look", "{}"), Settings(max_tokens=10_000, effort="low")
    small = body(user("x"), model="claude-haiku-4-5", settings=Settings(max_tokens=2_000, effort="low"))
    foreign = body(user("x"), assistant(call), result("c1", "y"), model="claude-haiku-4-5", settings=settings)
    own = body(user("x"), assistant(ReasoningBlock("H", "s"), call), result("c1"), model="claude-haiku-4-5", settings=settings)
    assert ["thinking" in made for made in (small, foreign, own)] == [False, False, True]


def test_an_answer_by_a_schema_beside_an_effort_and_the_agents_own_output_config() -> None:
    made = body(user("x"), output=SCHEMA, settings=Settings(effort="low"), extra={"output_config": {"effort": "max"}})
    schema = {"type": "object", "properties": {"word": {"type": "string", "description": "(minLength: 1)"}}}
    closed = {**schema, "required": ["word"], "additionalProperties": False}
    assert made["output_config"] == {"format": {"type": "json_schema", "schema": closed}, "effort": "max"}


# -- what an adapter says of a request


@pytest.mark.parametrize(
    ("name", "window", "most", "schema"),
    [
        ("claude-opus-4-5", 200_000, 32_000, True),
        ("claude-sonnet-4-6", 1_000_000, 32_000, True),
        ("claude-opus-4-1", 200_000, 32_000, True),
        ("claude-opus-4-20250514", 200_000, 32_000, False),
        ("claude-3-haiku-20240307", 200_000, 4_096, False),
        ("claude-haiku-5-5", 1_000_000, 32_000, True),
        ("somebody-elses", None, 8_192, True),
    ],
)
def test_what_is_known_of_models(name: str, window: int | None, most: int, schema: bool) -> None:
    prepared = Anthropic(key="k").prepare(Request("anthropic", name, output=SCHEMA))
    assert (prepared.context_window, prepared.defaults, prepared.schema) == (window, {"max_tokens": most}, schema)


def test_other_servers_keep_nothing_and_know_no_schema() -> None:
    other = Anthropic(base_url="http://x", provider="x")
    assert not other.prepare(Request("x", "m", output=SCHEMA)).schema
    caches = [
        model._cache  # pyright: ignore[reportPrivateUsage]
        for model in (Anthropic(), Anthropic(cache="1h"), Anthropic(cache=None), Anthropic(cache=False), other)
    ]
    assert caches == ["5m", "1h", None, None, None]


# -- whatever a history holds


@given(HISTORIES)
def test_every_history_has_a_body_that_is_json_and_takes_turns(messages: tuple[Message, ...]) -> None:
    request = Request("anthropic", "claude-haiku-4-5", messages=messages, settings=Settings(max_tokens=9_000, effort="low"))
    before = msgspec.json.encode(request)
    made = to_body(request, {}, cache="5m")
    assert json.loads(json.dumps(made)) == made
    assert msgspec.json.encode(request) == before
    roles = [m["role"] for m in made["messages"]]
    assert roles == ["user" if place % 2 == 0 else "assistant" for place in range(len(roles))]
    for message in made["messages"]:
        assert message["content"]
        for part in message["content"]:
            assert part["type"] != "text" or part["text"].strip()
            assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", part.get("id") or part.get("tool_use_id") or "ok")
