"""Records and messages as values: equal by what they say, whole through bytes, and refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from callboard.storage import chunks as c
from callboard.storage import events as e
from callboard.storage.codec import encode_frame, unpack_runs
from callboard.storage.conformance_kit import batch
from callboard.storage.errors import UsageError
from callboard.storage.folds.usage import UsageFold
from callboard.storage.messages import (
    File,
    Image,
    Message,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
)
from callboard.storage.records import Record, decode_event, encode_event, from_json, refuse_deep, sound, to_json
from callboard.storage.runs import ChunkRun

# -- records


def test_records_are_equal_by_what_they_say_and_not_by_how_they_came() -> None:
    made = Record(7, 1000, e.TurnStart(turn=1))
    read = from_json(to_json(made))
    assert (made.raw, read.raw != b"") == (b"", True)
    assert made == read
    assert len({made, read}) == 1
    assert made != Record(8, 1000, e.TurnStart(turn=1))
    assert made != (7, 1000)
    assert encode_event(read) is read.raw
    assert encode_event(made) == read.raw


@pytest.mark.parametrize("line", ['{"type":"note","kind":"k"}', '{"seq":1,"type":"note"}', '{"seq":"x","time":1,"type":"note"}'])
def test_a_line_without_its_place_is_no_record(line: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="needs seq and time, both integers"):
        from_json(line)


def test_a_known_type_with_wrong_fields_is_no_event_of_the_future() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_event(msgspec.msgpack.encode({"type": "turn/start", "turn": "one"}))
    with pytest.raises(msgspec.ValidationError):
        decode_event(msgspec.msgpack.encode({"kind": "k"}))


def nested(depth: int) -> Any:
    """A list in a list in a list."""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def test_what_could_not_be_decoded_elsewhere_is_refused_here() -> None:
    assert decode_event(sound(e.Note(kind="k", data=nested(20)))) == e.Note(kind="k", data=nested(20))
    with pytest.raises(UsageError, match="a 'note' record cannot be kept"):
        sound(e.Note(kind="k", data=nested(1000)))
    raw = msgspec.msgpack.encode([[]] * 300)
    refuse_deep(raw, msgspec.msgpack.decode)  # many lists, and none of them deep


# -- messages


def test_pictures_and_documents_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "cat.png").write_bytes(b"cat")
    (tmp_path / "what").write_bytes(b"?")
    assert Image.from_path(tmp_path / "cat.png") == Image.from_bytes(b"cat", "image/png")
    assert File.from_path(tmp_path / "cat.png") == File.from_bytes(b"cat", "image/png", name="cat.png")
    assert File.from_path(tmp_path / "what").media_type == "application/octet-stream"


def test_text_is_changed_wherever_a_reader_sees_it_and_nowhere_else() -> None:
    kept = (Image("image/png", url="a"), ReasoningBlock("a"), ToolCallBlock("c1", "a", '{"a":1}'))
    result = ToolResultBlock("c1", (TextBlock("a"), Image("image/png", url="a")))
    message = Message("m", "tool", (TextBlock("a"), result, *kept))
    text, changed, *rest = message.map_text(str.upper).content
    assert text == TextBlock("A")
    assert changed == ToolResultBlock("c1", (TextBlock("A"), Image("image/png", url="a")))
    assert tuple(rest) == kept


# -- chunks in columns


@pytest.mark.parametrize(
    "chunk",
    [
        c.text_delta(0, "a"),
        c.reasoning_delta(1, "a"),
        c.reasoning_delta(1, "a", signature="s"),
        c.tool_call_delta(2, arguments="{"),
        c.tool_call_delta(2, id="c1", name="n", arguments="{"),
        c.usage(input=1),
        c.finish("stop"),
    ],
)
def test_a_run_of_any_chunks_is_the_same_behind_its_bytes(chunk: Any) -> None:
    run = ChunkRun(1, 2, 5)
    run.chunks.extend([chunk] * 3)
    run.times.extend([1000, 1000, 1007])
    packed = encode_frame(batch("a", 1, [run]), 1, 1000)[1]
    assert packed is not None
    (back,) = unpack_runs(packed)
    assert (back.turn, back.step, back.first, back.chunks, list(back.times)) == (1, 2, 5, run.chunks, run.times)


# -- what a plugin's own model calls cost


def test_a_note_of_a_model_call_counts_as_it_was_written() -> None:
    used = UsageFold()
    for data in ({"usage": {"input": 3, "output": 2}}, {"usage": Usage(input=1)}, {"usage": "much"}, "nothing"):
        used.apply(1, 1000, e.Note(kind="model-call", data=data))
    assert used.total == Usage(input=4, output=2)
