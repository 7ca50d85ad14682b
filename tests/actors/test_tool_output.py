"""Results: values to blocks, big ones to blobs, impossible ones to errors that the model reads."""

from __future__ import annotations

import dataclasses
import math
import tracemalloc
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from callboard.actors.tools import context_messages, limit_output, to_content
from callboard.actors.tools import output as outputs
from callboard.storage.errors import ToolError
from callboard.storage.messages import File, Image, Message, ReasoningBlock, TextBlock, ToolSource

LIMIT = 262_144


class Trip(Struct):
    city: str
    nights: int


@dataclasses.dataclass
class Point:
    x: int


class Row(Mapping[str, int]):
    """As database drivers have them: a mapping that is no dict."""

    def __getitem__(self, key: str) -> int:
        return {"a": 1}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(["a"])

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("Error: no", "Error: no"),
        (None, "null"),
        (True, "true"),
        (3.5, "3.5"),
        ([], "[]"),
        ({"a": [1, "ø"]}, '{"a":[1,"ø"]}'),
        (Trip("Oslo", 3), '{"city":"Oslo","nights":3}'),
        ([Trip("Oslo", 3)], '[{"city":"Oslo","nights":3}]'),
        (Point(1), '{"x":1}'),
        ([Row()], '[{"a":1}]'),
        ({"at": Path("a/b")}, '{"at":"a/b"}'),
    ],
)
def test_values_become_text(value: Any, text: str) -> None:
    assert to_content(value) == (TextBlock(text),)


def test_blocks_stay_blocks() -> None:
    image = Image("image/png", url="https://x.test/a.png")
    assert to_content(image) == (image,)
    assert to_content([TextBlock("a"), image, "b"]) == (TextBlock("a"), image, TextBlock("b"))


class Hostile:
    def __fspath__(self) -> str:
        raise ZeroDivisionError("looked at")


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (object(), "objects of type object are not supported"),
        ([{"deep": object()}], "returned a list that JSON cannot carry"),
        (b"\x00", "returned bytes; return text, or File.from_bytes(data, media_type)"),
        (cycle(), "RecursionError"),
        (Hostile(), "ZeroDivisionError: looked at"),
        ("\udc00", "text that is not Unicode"),
        (["\udc00"], "JSON cannot carry"),
        ([TextBlock("a"), ReasoningBlock("b")], "returned a ReasoningBlock among its blocks"),
        ([TextBlock("a"), 3], "returned a int among its blocks"),
    ],
)
def test_c120_what_cannot_be_stored_is_an_error_for_the_model(value: Any, says: str) -> None:
    with pytest.raises(ToolError) as caught:
        to_content(value, tool="lookup")
    assert caught.value.code == "INVALID_OUTPUT"
    assert str(caught.value).startswith("lookup returned")
    assert says in str(caught.value)
    assert str(caught.value).endswith("do not repeat it blindly.")


def test_nothing_is_larger_than_the_ceiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "CEILING", 10)
    assert to_content("x" * 10)
    for value in ("x" * 11, ["x" * 9], File.from_bytes(b"x" * 11, "text/plain"), [TextBlock("123456"), TextBlock("123456")]):
        with pytest.raises(ToolError, match="more than 10") as caught:
            to_content(value)
        assert caught.value.code == "INVALID_OUTPUT"


def test_a_result_within_the_limit_is_left_alone() -> None:
    content = to_content("x" * LIMIT)
    assert limit_output(content, LIMIT) == (content, {})
    assert limit_output((), 0) == ((), {})


def test_c133_a_big_text_becomes_a_preview_and_a_blob() -> None:
    text = "".join(f"line {number}\n" for number in range(30_000))
    content, blobs = limit_output(to_content(text), LIMIT)
    preview, reference = content
    digest = sha256(text.encode()).hexdigest()
    assert blobs == {digest: text.encode()}
    assert reference == File("text/plain", blob=digest)
    assert isinstance(preview, TextBlock)
    assert preview.text.startswith("line 0\nline 1\n")
    assert preview.text.endswith("line 29999\n")
    assert f"[{len(text) - 4096 - 2048} of {len(text)} bytes left out here; the whole text is blob {digest}]" in preview.text


def test_the_limit_counts_bytes_and_the_preview_cuts_between_characters() -> None:
    text = "€" * 5000  # three bytes each, which neither 4096 nor 2048 is a multiple of
    content, blobs = limit_output(to_content(text), 14_999)
    assert blobs
    assert isinstance(content[0], TextBlock)
    head, _, tail = content[0].text.split("\n")
    assert set(head + tail) == {"€"}
    assert limit_output(to_content(text), 15_000)[1] == {}


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_tiny_limit_leaves_the_reference_alone(limit: int) -> None:
    content, blobs = limit_output(to_content("0123456789"), limit)
    (digest,) = blobs
    assert isinstance(content[0], TextBlock)
    assert content[1] == File("text/plain", blob=digest)
    shown = [
        line
        for line in content[0].text.split("\n")
        if not line.endswith(f"of 10 bytes left out here; the whole text is blob {digest}]")
    ]
    assert len("".join(shown)) <= limit
    assert len(content[0].text.split("\n")) == len(shown) + 1


def test_many_texts_are_limited_together_and_other_blocks_keep_their_order() -> None:
    image, other = Image("image/png", blob="a"), Image("image/png", blob="b")
    content, blobs = limit_output((image, TextBlock("x" * 60), other, TextBlock("y" * 60)), 100)
    assert list(blobs.values()) == [b"x" * 60 + b"\n" + b"y" * 60]
    assert [type(block) for block in content] == [Image, TextBlock, File, Image]
    assert (content[0], content[3]) == (image, other)


def test_data_of_files_becomes_a_blob_whatever_its_size() -> None:
    content, blobs = limit_output(to_content(File.from_bytes(b"%PDF", "application/pdf", name="a.pdf")), LIMIT)
    digest = sha256(b"%PDF").hexdigest()
    assert content == (File("application/pdf", blob=digest, name="a.pdf"),)
    assert blobs == {digest: b"%PDF"}


def test_c133_a_result_of_64_mib_costs_little_more_than_its_blob() -> None:
    size = 64 * 1024 * 1024
    value = "x" * size
    tracemalloc.start()
    try:
        content, blobs = limit_output(to_content(value), LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2.2 * size
    assert sum(len(block.text) for block in content if isinstance(block, TextBlock)) < 10_000
    assert [len(data) for data in blobs.values()] == [size]


def test_c263_context_gets_ids_that_follow_from_the_call() -> None:
    own = Message("mine", "user", (TextBlock("own"),))
    first = context_messages(["seen", own], call_id="c1", effect_key="a/1/2/c1")
    assert first == (Message("a/1/2/c1#context1", "user", (TextBlock("seen"),), ToolSource("c1")), own)
    assert first == context_messages(["seen", own], call_id="c1", effect_key="a/1/2/c1")


def test_numbers_that_json_does_not_know_become_null() -> None:
    assert to_content([math.nan]) == (TextBlock("[null]"),)
