"""The pure parts of MCP: names without clashes, lists that are looked at, results as the model reads them, lines."""

from __future__ import annotations

import base64
import re
from typing import Any

import anyio
import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_world import text

from callboard.actors.tools import ToolOutput
from callboard.net.mcp.lines import TooLongError, read_lines, receive_messages
from callboard.net.mcp.listing import LARGEST, MOST, look_at
from callboard.net.mcp.names import LONGEST, assign, free, prefix_of
from callboard.net.mcp.results import LONGEST_ERROR, to_output
from callboard.storage import ToolError
from callboard.storage.messages import File, Image, TextBlock

# -- names


def test_a_tool_is_called_by_its_server_and_its_name() -> None:
    assert assign("files", ["read_file", "write-file"]) == {"read_file": "files__read_file", "write-file": "files__write-file"}


def test_what_providers_do_not_allow_is_replaced_and_a_clash_is_numbered() -> None:
    names = assign("my files", ["read.file", "read file", "read_file"])
    assert names == {
        "read_file": "my_files__read_file",
        "read file": "my_files__read_file_2",
        "read.file": "my_files__read_file_3",
    }


def test_a_name_that_was_given_stays_whatever_comes_and_goes() -> None:
    first = assign("s", ["b c"])
    second = assign("s", ["b c", "b_c", "b.c"], first)
    assert second == {"b c": "s__b_c", "b_c": "s__b_c_2", "b.c": "s__b_c_3"}
    assert assign("s", ["b.c"], second) == {"b.c": "s__b_c_3"}


def test_long_names_with_one_beginning_stay_apart() -> None:
    names = assign("s", ["x" * 100 + "a", "x" * 100 + "b"])
    assert len(set(names.values())) == 2 and all(len(name) == LONGEST for name in names.values())


@given(st.text(min_size=1), st.sets(st.text(max_size=100), max_size=30), st.sets(st.text(max_size=100), max_size=30))
def test_names_are_allowed_distinct_stable_and_the_same_again(server: str, tools: set[str], later: set[str]) -> None:
    names = assign(server, tools)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) and name.startswith(prefix_of(server)) for name in names.values())
    assert len(set(names.values())) == len(tools) and names == assign(server, sorted(tools, reverse=True))
    both = assign(server, tools | later, names)
    assert both.items() >= names.items() and len(set(both.values())) == len(tools | later)


def test_free() -> None:
    assert free("a", ()) == "a" and free("a", ("a", "a_2")) == "a_3" and len(free("a" * 64, ("a" * 64,))) == 64


# -- lists


def tool(name: str = "t", schema: Any = None, **about: Any) -> types.Tool:
    return types.Tool(name=name, input_schema=schema if schema is not None else {"type": "object"}, **about)


def test_schema_and_description_pass_as_they_are() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"enum": [1]}}, "x-own": True}
    ((listed,), refused) = look_at([tool(schema=schema, description="Does it.")])
    assert (listed.schema, listed.description, refused) == (schema, "Does it.", ())
    ((bare,), _) = look_at([tool(schema={}, title="A title")])
    assert (bare.schema, bare.description) == ({"type": "object"}, "A title")


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "string"}, "of the type 'string'"),
        ({"properties": ["a"]}, "no schemas"),
        ({"properties": {"a": "text"}}, "no schemas"),
        ({"required": "a"}, "no list of names"),
        ({"required": [1]}, "no list of names"),
        ({"properties": {"a": {"description": "x" * LARGEST}}}, "bytes to describe"),
    ],
)
def test_a_bad_schema_costs_its_tool_and_no_other(schema: Any, why: str) -> None:
    listed, refused = look_at([tool("good"), tool("bad", schema)])
    assert [one.name for one in listed] == ["good"]
    assert [one.name for one in refused] == ["bad"] and why in refused[0].why


def test_hints_only_and_limits() -> None:
    reads = tool("r", annotations=types.ToolAnnotations(read_only_hint=True))
    again = tool("i", annotations=types.ToolAnnotations(idempotent_hint=True))
    listed, _ = look_at([reads, again, tool("w")])
    assert [(one.name, one.reads, one.repeatable) for one in listed] == [
        ("i", False, True),
        ("r", True, True),
        ("w", False, False),
    ]
    assert [one.name for one in look_at([reads, again], frozenset({"r"}))[0]] == ["r"]
    listed, refused = look_at([tool(f"t{n}") for n in range(MOST + 1)] + [tool("t1")])
    assert len(listed) == MOST and len(refused) == 2
    assert look_at([tool("a"), tool("a")])[1][0].why == "the server lists the name twice"


def test_all_tools_of_a_server_together_crowd_out_nothing() -> None:
    fat = [tool(f"t{n}", description="x" * 100_000) for n in range(20)]
    listed, refused = look_at([*fat, tool("small")])
    assert [one.name for one in listed] == sorted([f"t{n}" for n in range(10)] + ["small"])
    assert [one.name for one in refused] == [f"t{n}" for n in range(10, 20)]
    assert "may take 1048576 bytes to describe" in refused[0].why


# -- results


def output(*content: Any, **rest: Any) -> Any:
    return to_output(types.CallToolResult(content=list(content), **rest), tool="shop__t").content


def test_blocks_become_blocks() -> None:
    data = base64.b64encode(b"bytes").decode()
    assert output(types.TextContent(type="text", text="words")) == [TextBlock("words")]
    assert output(types.ImageContent(type="image", data=data, mime_type="image/png")) == [Image("image/png", data=b"bytes")]
    assert output(types.AudioContent(type="audio", data=data, mime_type="audio/wav")) == [File("audio/wav", data=b"bytes")]
    link = types.ResourceLink(type="resource_link", name="notes", uri="file:///n", description="of mine")
    assert output(link) == [TextBlock("file:///n (notes: of mine)")]
    said = types.TextResourceContents(uri="file:///n", text="words", mime_type="text/plain")
    assert output(types.EmbeddedResource(type="resource", resource=said)) == [TextBlock("file:///n\nwords")]
    blob = types.BlobResourceContents(uri="file:///b", blob=data)
    (file,) = output(types.EmbeddedResource(type="resource", resource=blob))
    assert file == File("application/octet-stream", name="file:///b", data=b"bytes")


def test_structured_content_is_shown_where_there_is_no_other() -> None:
    assert output(structured_content={"a": [1]}) == [TextBlock('{"a":[1]}')]
    assert output(types.TextContent(type="text", text="one"), structured_content={"a": 1}) == [TextBlock("one")]
    assert to_output(types.CallToolResult(content=[]), tool="t") == ToolOutput("")


def test_errors_are_for_the_model_and_bounded() -> None:
    with pytest.raises(ToolError, match="no such file") as error:
        to_output(text("no such file", is_error=True), tool="t")
    assert error.value.code == "MCP_ERROR"
    with pytest.raises(ToolError, match="did not say why"):
        to_output(types.CallToolResult(content=[], is_error=True), tool="t")
    with pytest.raises(ToolError) as long:
        to_output(text("x" * 100_000, is_error=True), tool="t")
    assert len(long.value.message) < LONGEST_ERROR + 100 and long.value.message.endswith("characters left out]")
    with pytest.raises(ToolError, match="not base64"):
        output(types.ImageContent(type="image", data="!!", mime_type="image/png"))


def test_a_lone_surrogate_does_not_get_into_the_log() -> None:
    item = types.TextContent.model_construct(type="text", text="half \ud83d")
    assert output(item) == [TextBlock("half �")]


# -- lines


class Pieces:
    """A source that gives these, and then the end."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


async def lines_of(*pieces: bytes, longest: int = 100) -> list[bytes]:
    lines: list[bytes] = []

    async def take(line: bytes) -> None:
        lines.append(line)

    await read_lines(Pieces(*pieces), take, longest=longest)
    return lines


async def test_lines_however_they_come() -> None:
    assert await lines_of(b"a", b"b\nc", b"d\n", b"\n", b"e\nf\nrest") == [b"ab", b"cd", b"", b"e", b"f"]


async def test_a_line_without_an_end_is_cut_off() -> None:
    with pytest.raises(TooLongError):
        await lines_of(*[b"x" * 40] * 10)


async def test_one_that_prints_rubbish_for_ever_does_not_fill_our_log(caplog: pytest.LogCaptureFixture) -> None:
    to_session, from_lines = anyio.create_memory_object_stream[Any](0)
    with from_lines:
        await receive_messages(Pieces(*[b"rubbish\n" * 1000] * 25), to_session, name="shop")
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 12 and "(1 so far)" in told[0] and "(20000 so far)" in told[-1]
