"""JSON schema: what fits, where a value breaks it, and which schemas are refused because they could not be checked."""

from __future__ import annotations

from typing import Any

import pytest

from callboard.actors.json_schema import check_schema, violation
from callboard.storage.errors import UsageError

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}
TREE: dict[str, Any] = {
    "$ref": "#/$defs/node",
    "$defs": {"node": {"type": "object", "properties": {"below": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}},
}


FITTING: list[tuple[dict[str, Any], Any]] = [
    (PERSON, {"name": "Ann"}),
    (PERSON, {"name": "Ann", "age": 3}),
    (PERSON, {"name": "Ann", "age": 3.0}),
    (TREE, {"below": [{"below": []}, {}]}),
    ({"type": ["string", "null"]}, None),
    ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 3),
    ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "x"),
    ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2),
    ({"enum": ["a", 1]}, 1),
    ({"const": {"a": 1}}, {"a": 1}),
    ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, ["a", 1, 2]),
    ({"type": "array", "minItems": 1, "maxItems": 2, "uniqueItems": True}, [1, True]),
    ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 2, "multipleOf": 0.5}, 1.5),
    ({"multipleOf": 0.1}, 0.3),
    ({"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a"}, "abc"),
    ({"type": "object", "additionalProperties": {"type": "integer"}}, {"x": 1}),
    ({}, [1, "a", None]),
]


@pytest.mark.parametrize(("schema", "value"), FITTING)
def test_a_value_that_fits(schema: dict[str, Any], value: Any) -> None:
    check_schema(schema, where="here")
    assert violation(value, schema) is None


@pytest.mark.parametrize(
    ("schema", "value", "why"),
    [
        (PERSON, [], "expected object at `$`, got array"),
        (PERSON, {}, "required field `name` is missing at `$`"),
        (PERSON, {"name": 3}, "expected string at `$.name`, got integer"),
        (PERSON, {"name": "Ann", "age": True}, "expected integer at `$.age`, got boolean"),
        (PERSON, {"name": "Ann", "age": 1.5}, "expected integer at `$.age`, got number"),
        (PERSON, {"name": "Ann", "age": -1}, "expected at least 0 at `$.age`, got -1"),
        (PERSON, {"name": "Ann", "size": 1}, "unknown field `size` at `$`; it takes name, age"),
        (TREE, {"below": [{"below": [1]}]}, "expected object at `$.below[0].below[0]`, got integer"),
        ({"type": ["string", "null"]}, 1, "expected string or null at `$`, got integer"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 1, "`$` fits none of the forms it may have"),
        ({"oneOf": [{"type": "integer"}, {"minimum": 0}]}, 1, "`$` fits 2 of the forms it may have"),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 4, "expected at most 3 at `$`, got 4"),
        ({"enum": ["a", 1]}, True, "expected one of 'a', 1 at `$`"),
        ({"const": 1}, True, "expected 1 at `$`"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a", 1], "nothing may stand at `$[1]`"),
        ({"minItems": 1}, [], "`$` has 0 items; it takes at least 1"),
        ({"maxItems": 1}, [1, 2], "`$` has 2 items; it takes at most 1"),
        ({"uniqueItems": True}, ["a", "a"], "`$` holds the same item twice"),
        ({"exclusiveMinimum": 0}, 0, "expected more than 0 at `$`, got 0"),
        ({"exclusiveMaximum": 0}, 0, "expected less than 0 at `$`, got 0"),
        ({"multipleOf": 2}, 3, "expected a multiple of 2 at `$`, got 3"),
        ({"minLength": 2}, "a", "`$` is 1 characters long; it takes at least 2"),
        ({"maxLength": 2}, "abc", "`$` is 3 characters long; it takes at most 2"),
        ({"pattern": "^a"}, "b", "`$` does not match '^a'"),
        ({"additionalProperties": {"type": "integer"}}, {"x": "1"}, "expected integer at `$.x`, got string"),
    ],
)
def test_a_value_that_does_not_fit(schema: dict[str, Any], value: Any, why: str) -> None:
    check_schema(schema, where="here")
    found = violation(value, schema)
    assert found is not None and found.startswith(why)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"not": {}}, r"here: \$ uses 'not', which is not checked here"),
        ({"properties": {"a": {"if": {}}}}, r"here: \$\.properties\.a uses 'if'"),
        ({"anyOf": [{}, {"type": "text"}]}, r"here: \$\.anyOf\[1\] has the type 'text'; there are object"),
        ({"items": {"$ref": "#/$defs/nobody"}}, r"\$\.items refers to '#/\$defs/nobody', which is not in the schema"),
        ({"$ref": "https://example.org/schema"}, "which is not in the schema"),
        ({"$defs": {"a": 3}}, r"here: \$\.\$defs\.a is 3, which is no JSON schema"),
        ({"pattern": "("}, "no regular expression"),
        ({"properties": ["a"]}, r"here: \$ has 'properties' as \['a'\], which it cannot be"),
        ({"minimum": "1"}, "has 'minimum' as '1', which it cannot be"),
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(schema: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        check_schema(schema, where="here")
