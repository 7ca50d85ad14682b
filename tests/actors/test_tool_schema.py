"""From a signature to a JSON schema, and from the model's text back to a call."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from msgspec import Meta, Struct

from callboard.actors.testing.contexts import tool_context
from callboard.actors.tools import Tool, ToolContext, tool, tool_from_schema
from callboard.storage.errors import ToolError, UsageError


class Place(Struct):
    """Where."""

    city: str
    tags: list[str] = []


@dataclasses.dataclass
class Window:
    first: int
    last: int = 9


class Options(TypedDict, total=False):
    fast: bool


def test_c132_the_schema_of_a_signature() -> None:
    @tool
    async def search(text: str, places: list[str], at: Place, limit: int = 10) -> str:
        """Search the archive.

        Give plain words.

        Args:
            text: what to look for,
                in English
            limit (int): how many
        """
        return ""

    assert search.description == "Search the archive.\n\nGive plain words."
    assert search.schema == {
        "type": "object",
        "properties": {
            "text": {"type": "string", "description": "what to look for, in English"},
            "places": {"type": "array", "items": {"type": "string"}},
            "at": {"$ref": "#/$defs/Place"},
            "limit": {"type": "integer", "default": 10, "description": "how many"},
        },
        "required": ["text", "places", "at"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "title": "Place",
                "description": "Where.",
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "tags": {"type": "array", "items": {"type": "string"}, "default": []},
                },
                "required": ["city"],
            }
        },
    }


def test_the_schema_is_the_same_every_time() -> None:
    def make() -> Tool[..., Any]:
        @tool
        async def search(at: Place, window: Window, options: Options) -> None: ...

        return search

    assert msgspec.json.encode(make().schema) == msgspec.json.encode(make().schema)


def test_meta_describes_a_parameter_before_the_docstring_does() -> None:
    @tool
    async def search(text: Annotated[str, Meta(description="from Meta", min_length=2)], limit: int = 1) -> None:
        """Search.

        Args:
            text: from the docstring
            limit: from the docstring
        """

    assert search.schema["properties"]["text"] == {"type": "string", "minLength": 2, "description": "from Meta"}
    assert search.schema["properties"]["limit"]["description"] == "from the docstring"


def test_prose_after_a_section_is_prose_again_and_sections_for_programmers_stay_out() -> None:
    @tool
    async def search(text: str) -> None:
        """Search.

        Args:
            text: what to look for

        Returns:
            nothing

        Be polite: it is slow.
        """

    assert search.description == "Search.\n\nBe polite: it is slow."
    assert search.schema["properties"]["text"]["description"] == "what to look for"


def test_no_parameters_is_an_empty_object() -> None:
    @tool
    async def ping() -> None: ...

    assert ping.schema == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_the_context_is_no_argument() -> None:
    async def typed(ctx: ToolContext[Place], city: str) -> None: ...
    async def bare(ctx: ToolContext, city: str) -> None: ...
    async def named(ctx, city: str) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
    async def only_for_checkers(ctx: ToolContext[OnlyForCheckers], city: str) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    functions: list[Any] = [typed, bare, named, only_for_checkers]
    for function in functions:
        assert list(tool(function).schema["properties"]) == ["city"]


def test_c132_arguments_are_decoded_into_their_types() -> None:
    @tool
    async def search(at: Place, window: Window, options: Options, how: Literal["fast", "slow"] = "slow") -> None: ...

    text = '{"at": {"city": "Oslo"}, "window": {"first": 1}, "options": {"fast": true}}'
    assert search.decode(text) == {
        "at": Place("Oslo"),
        "window": Window(1),
        "options": {"fast": True},
        "how": "slow",
    }


@pytest.mark.parametrize("text", ["", "  \n", "{}"])
def test_c121_an_empty_text_is_no_arguments(text: str) -> None:
    @tool
    async def ping(times: int = 1) -> None: ...

    assert ping.decode(text) == {"times": 1}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("not json", "JSON is malformed"),
        ('{"city": "Oslo"', "truncated"),
        ("[]", "Expected `object`, got `array`"),
        ("null", "Expected `object`, got `null`"),
        ("{}", "missing required field `city`"),
        ('{"city": 3}', "Expected `str`, got `int` - at `$.city`"),
        ('{"city": "Oslo", "nights": "3"}', "Expected `int`, got `str` - at `$.nights`"),
        ('{"city": "Oslo", "night": 3}', "unknown field `night` (did you mean `nights`?)"),
        ('{"city": "\udc00"}', "surrogates not allowed"),
        ("[" * 200_000, "Expected `object`"),
    ],
)
def test_c120_c121_c132_bad_arguments_say_what_to_do_next(text: str, says: str) -> None:
    @tool
    async def hotels(city: str, nights: int = 1) -> None: ...

    with pytest.raises(ToolError) as caught:
        hotels.decode(text)
    assert caught.value.code == "INVALID_ARGUMENTS"
    assert says in str(caught.value)
    assert str(caught.value).endswith(
        "Arguments: city, nights (optional). Call hotels again with one JSON object that fits its schema."
    )


async def test_arguments_reach_the_function_by_position_or_by_name() -> None:
    @tool
    async def record(ctx: ToolContext, a: int, /, b: int, *, c: int = 3) -> tuple[int, int, int]:
        return (a, b, c)

    assert await record.run(tool_context(), record.decode('{"b": 2, "a": 1}')) == (1, 2, 3)


async def test_a_mutable_default_is_the_functions_own() -> None:
    shared: list[str] = ["x"]

    @tool
    async def record(tags: list[str] = shared) -> list[str]:
        return tags

    assert record.schema["properties"]["tags"]["default"] == ["x"]
    assert await record.run(tool_context(), record.decode("")) is shared


def test_a_default_of_none_allows_null() -> None:
    @tool
    async def record(city: str = None, at: Annotated[Place, Meta(description="where")] = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert record.decode('{"city": null, "at": null}') == {"city": None, "at": None}
    assert record.schema["properties"]["at"]["description"] == "where"


def test_types_of_the_enclosing_function_are_found() -> None:
    class Local(Struct):
        x: int

    @tool(replay="safe")
    async def record(local: Local) -> None: ...

    assert record.decode('{"local": {"x": 1}}') == {"local": Local(1)}


def refuse(function: Any) -> str:
    with pytest.raises(UsageError) as caught:
        tool(function)
    return str(caught.value)


def test_a_signature_that_no_schema_can_describe_is_refused_with_a_guess() -> None:
    async def untyped(city) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001
    async def star(*cities: str) -> None: ...
    async def stars(**options: str) -> None: ...
    async def late_context(city: str, ctx: ToolContext) -> None: ...
    async def keyword_context(*, ctx: ToolContext, city: str) -> None: ...
    async def missing(city: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    async def complicated(a: int, value: complex) -> None: ...
    async def ambiguous(value: Place | dict[str, int]) -> None: ...
    async def method(self, city: str) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001

    assert "'city' of tool 'untyped' has no type; write city: str" in refuse(untyped)
    assert "'star' takes *cities, which has no schema" in refuse(star)
    assert "'stars' takes **options, which has no schema" in refuse(stars)
    assert "'ctx' of tool 'late_context' must be its first parameter" in refuse(late_context)
    assert "'keyword_context' is keyword-only" in refuse(keyword_context)
    assert "'Nowhere' of parameter 'city' of tool 'missing' cannot be resolved" in refuse(missing)
    assert "'value' of tool 'complicated' has a type that JSON cannot carry: type <class 'complex'>" in refuse(complicated)
    assert "'value' of tool 'ambiguous'" in refuse(ambiguous)
    assert "tool 'method' is a method; make the tool from a bound one: tool(instance.method)" in refuse(method)


async def test_a_bound_method_is_a_tool() -> None:
    class Shelf:
        name = "shelf"

        async def look(self, ctx: ToolContext, title: str) -> str:
            """Look."""
            return f"{self.name}: {title}"

    look = tool(Shelf().look)
    assert look.name == "look"
    assert await look.run(tool_context(), look.decode('{"title": "Faust"}')) == "shelf: Faust"


def test_a_struct_named_like_the_tool_does_not_shadow_it() -> None:
    @tool(name="Place")
    async def place(at: Place) -> None: ...

    assert place.decode('{"at": {"city": "Oslo"}}') == {"at": Place("Oslo")}


GIVEN: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}


async def test_a_tool_with_a_given_schema_gets_context_and_a_dict() -> None:
    async def read(ctx: ToolContext, arguments: dict[str, Any]) -> str:
        return f"{ctx.call_id}: {arguments['path']}"

    made = tool_from_schema(read, name="read", description="Read.", schema=GIVEN, replay="safe")
    assert made.schema == GIVEN
    assert await made.run(tool_context(), made.decode('{"path": "a", "more": 1}')) == "c1: a"


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "missing required field `path`"), ("[1]", "Expected `object`"), ('{"path": "a", "pth": 1}', "did you mean `path`?")],
)
def test_c120_a_given_schema_checks_the_form(text: str, says: str) -> None:
    async def read(ctx: ToolContext, arguments: dict[str, Any]) -> None: ...

    made = tool_from_schema(read, name="read", description="", schema=GIVEN | {"additionalProperties": False})
    with pytest.raises(ToolError) as caught:
        made.decode(text)
    assert (caught.value.code, says in str(caught.value)) == ("INVALID_ARGUMENTS", True)
