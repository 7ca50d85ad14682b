"""From a request to the body of a chat completion."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.net.adapters.openai import OpenAI
from callboard.net.adapters.openai_requests import Dialect, to_body
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
    ToolSpec,
)

LOOK = ToolSpec("look", "Look.", {"type": "object", "properties": {"city": {"type": "string"}}})
PNG = Image("image/png", blob="d", data=b"png")
PNG_URL = {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}


def body(
    *messages: Message, dialect: Dialect | None = None, extra: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    return to_body(Request("openai", "gpt-5", messages=messages, **fields), dialect or Dialect(), extra or {})


def user(*blocks: Any) -> Message:
    return Message("u", "user", tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks))


def assistant(*blocks: Any) -> Message:
    blocks = tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks)
    return Message("a", "assistant", blocks, ModelSource("openai", "gpt-5"))


def result(id: str, *blocks: Any) -> Message:
    return Message(f"r-{id}", "tool", (ToolResultBlock(id, tuple(TextBlock(b) if isinstance(b, str) else b for b in blocks)),))


def test_the_smallest_body() -> None:
    assert body(user("hi")) == {
        "model": "gpt-5",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_settings_tools_and_system() -> None:
    settings = Settings(temperature=0.0, max_tokens=9, stop=("END",), effort="low")
    made = body(user("hi"), settings=settings, system="Be brief.", tools=(LOOK,))
    assert made["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (made["temperature"], made["max_completion_tokens"], made["stop"], made["reasoning_effort"]) == (
        0.0,
        9,
        ["END"],
        "low",
    )
    assert made["tools"] == [
        {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": LOOK.schema}}
    ]
    assert body(user("hi"), settings=settings, dialect=Dialect("max_tokens"))["max_tokens"] == 9


def test_the_agents_own_settings_go_over_it_and_none_takes_out() -> None:
    extra = {"seed": 7, "temperature": 1.0, "stream_options": None, "tools": [{"type": "custom"}]}
    made = body(user("hi"), settings=Settings(temperature=0.0), tools=(LOOK,), extra=extra)
    assert (made["seed"], made["temperature"], len(made["tools"])) == (7, 1.0, 2)
    assert "stream_options" not in made


def test_calls_their_results_and_the_pictures_that_came_with_them() -> None:
    calls = [ToolCallBlock("c1", "look", '{"city":"Oslo"}'), ToolCallBlock("c2", "look", '{"city":')]
    made = body(
        user("look"), assistant("Let me.", *calls), result("c1", "rain", PNG), result("c2", PNG), user("And?"), assistant("So.")
    )
    said, first, second, pictures, asked, last = made["messages"][1:]
    assert said["content"] == "Let me."
    assert [(c["id"], c["function"]["arguments"]) for c in said["tool_calls"]] == [
        ("c1", '{"city":"Oslo"}'),
        ("c2", '{"INVALID_JSON":"{\\"city\\":"}'),
    ]
    assert first == {
        "role": "tool",
        "tool_call_id": "c1",
        "content": "rain\n[what came with this result follows as part 1 of the next message]",
    }
    assert second["content"] == "[what came with this result follows as part 2 of the next message]"
    assert pictures == {"role": "user", "content": [PNG_URL, PNG_URL]}
    assert (asked["content"], last["content"]) == ("And?", "So.")


def test_pictures_at_the_end_of_the_history_are_not_forgotten() -> None:
    made = body(user("look"), assistant(ToolCallBlock("c1", "look", "{}")), result("c1", PNG))
    assert made["messages"][1]["content"] is None
    assert made["messages"][-1] == {"role": "user", "content": [PNG_URL]}


@pytest.mark.parametrize(
    ("block", "part"),
    [
        (PNG, PNG_URL),
        (Image("image/png", url="https://x/y.png"), {"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
        (
            File("application/pdf", name="a.pdf", data=b"pdf"),
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}},
        ),
        (File("audio/mpeg", data=b"mp3"), {"type": "input_audio", "input_audio": {"data": "bXAz", "format": "mp3"}}),
        (File("text/csv", name='a".csv', data=b"a,b"), {"type": "text", "text": '<file name="a\'.csv">\na,b\n</file>'}),
        (File("application/zip", name="a.zip", data=b"z"), None),
        (File("application/pdf", url="https://x/y.pdf"), None),
        (Image("image/png", blob="lost"), None),
    ],
)
def test_media(block: Any, part: dict[str, Any] | None) -> None:
    (_, made) = body(user("see", block))["messages"][0]["content"]
    assert made == part or (part is None and "which this model cannot" in made["text"])


def test_a_message_with_nothing_to_show_is_left_out_and_reasoning_goes_back_only_if_asked() -> None:
    thought = assistant(ReasoningBlock("Hm."), "So.")
    assert body(user(""), assistant(ReasoningBlock("Hm.")), user("x"))["messages"] == [{"role": "user", "content": "x"}]
    assert "reasoning_content" not in body(user("x"), thought)["messages"][1]
    assert body(user("x"), thought, dialect=Dialect(send_reasoning=True))["messages"][1]["reasoning_content"] == "Hm."


def test_ids_and_names_that_no_provider_takes_are_spelt_anew_on_both_sides() -> None:
    odd = "tölä~" * 20
    said, answered = body(user("x"), assistant(ToolCallBlock(odd, "no such.tool", "")), result(odd, "ok"))["messages"][1:]
    call = said["tool_calls"][0]
    assert call["id"] == answered["tool_call_id"] and len(call["id"]) <= 40 and call["id"].isascii()
    assert (call["function"]["name"], call["function"]["arguments"]) == ("no_such_tool", "{}")


def test_the_preview_of_a_long_result_goes_without_the_whole() -> None:
    whole = File("text/plain", blob="d", data=b"long" * 1000)
    named = File("text/plain", blob="d", name="a.txt", data=b"short")
    made = body(user("x"), assistant(ToolCallBlock("c1", "look", "{}")), result("c1", "lo[...]ng", whole, named))
    assert made["messages"][-1]["content"] == 'lo[...]ng\n<file name="a.txt">\nshort\n</file>'


def test_an_answer_by_a_schema() -> None:
    schema = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
    assert body(user("x"), output=schema)["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "answer", "strict": True, "schema": {**schema, "additionalProperties": False}},
    }


# -- what an adapter says of a request


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-5", 400_000),
        ("gpt-5-mini", 400_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-5.4-2026-03-05", 1_050_000),
        ("gpt-4", 8_192),
        ("gpt-4o-mini", 128_000),
        ("o1", 200_000),
        ("o1-mini", 128_000),
        ("gpt-7", None),
        ("llama", None),
    ],
)
def test_windows_are_those_of_known_models_and_nobody_elses(model: str, window: int | None) -> None:
    assert OpenAI(key="k").prepare(Request("openai", model)).context_window == window


def test_windows_can_be_said() -> None:
    model = OpenAI(key="k", windows={"gpt-5": 7, "llama": 8})
    assert [model.prepare(Request("openai", name)).context_window for name in ("gpt-5", "llama-3")] == [7, 8]


def test_other_servers_are_offered_a_tool_for_the_answer_and_the_old_name_of_the_limit() -> None:
    output = {"type": "object", "properties": {"word": {"type": "string"}}}
    free = {"type": "object", "additionalProperties": {"type": "string"}}

    def schema(model: OpenAI, output: dict[str, Any] | None) -> bool:
        return model.prepare(Request(model.provider, "m", output=output)).schema

    own, other = OpenAI(key="k", base_url="https://eu.api.openai.com/v1"), OpenAI(base_url="http://x/v1", provider="x")
    assert (schema(own, output), schema(own, free), schema(own, None), schema(other, output)) == (True, False, False, False)
    assert schema(OpenAI(base_url="http://x/v1", schema=True), output)
    assert (own._dialect.max_tokens, other._dialect.max_tokens) == ("max_completion_tokens", "max_tokens")  # pyright: ignore[reportPrivateUsage]
    assert not OpenAI(images=False).prepare(Request("openai", "m")).images


# -- whatever a history holds

TEXTS = st.text(max_size=8)
RESULT_BLOCKS = st.one_of(
    TEXTS.map(TextBlock),
    st.builds(
        Image, st.sampled_from(["image/png", "image/svg+xml", ""]), blob=st.just("d"), data=st.binary(max_size=4) | st.none()
    ),
    st.builds(
        File, st.sampled_from(["application/pdf", "text/plain", "a/b"]), name=st.none() | TEXTS, data=st.binary(max_size=4)
    ),
)
BLOCKS = st.one_of(
    RESULT_BLOCKS,
    st.builds(ReasoningBlock, TEXTS, signature=st.none() | TEXTS),
    st.builds(ToolCallBlock, TEXTS, TEXTS, st.sampled_from(["", "{}", "[1]", '{"a":1}', "nonsense", "[" * 2000])),
    st.builds(ToolResultBlock, TEXTS, st.lists(RESULT_BLOCKS, max_size=2).map(tuple), is_error=st.booleans()),
)
SOURCES = st.sampled_from([ModelSource("openai", "m"), ModelSource("anthropic", "m")])
MESSAGES = st.builds(
    Message, TEXTS, st.sampled_from(["user", "assistant", "tool"]), st.lists(BLOCKS, max_size=4).map(tuple), SOURCES
)
HISTORIES = st.lists(MESSAGES, max_size=6).map(tuple)


@given(HISTORIES)
def test_every_history_has_a_body_that_is_json_and_the_request_stays_as_it_is(messages: tuple[Message, ...]) -> None:
    request = Request("openai", "gpt-5", messages=messages)
    before = msgspec.json.encode(request)
    made = to_body(request, Dialect(send_reasoning=True), {})
    assert json.loads(json.dumps(made)) == made
    assert made == to_body(request, Dialect(send_reasoning=True), {})
    assert msgspec.json.encode(request) == before
    for message in made["messages"]:
        for call in message.get("tool_calls", ()):
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
