"""JSON schema, as far as models are asked by it: does a value fit, and if not, where and why.

A schema that somebody wrote by hand has to be checked here, since no type stands behind it. What providers take for structured
answers is a small part of JSON schema, and this is that part. A keyword outside of it is refused when the agent is built: a rule
that looks as if it held and is never looked at is worse than none.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from ..storage.errors import UsageError

Schema = Mapping[str, Any]

_ANNOTATIONS = frozenset({"title", "description", "default", "examples", "format", "$schema", "$id", "$comment", "deprecated"})
_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SIZES = ("minItems", "maxItems", "minLength", "maxLength")
_FORMS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("properties", "$defs", "definitions"), Mapping),
    **dict.fromkeys(("enum", "anyOf", "oneOf", "allOf", "required", "prefixItems"), (list, tuple)),
    **dict.fromkeys(("type", "$ref", "const", "items", "additionalProperties", "uniqueItems", "pattern"), object),
    **dict.fromkeys(_NUMBERS, (int, float)),
    **dict.fromkeys(_SIZES, int),
}
"""Every keyword that is checked, and what it has to be."""
_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def check_schema(schema: Any, *, where: str) -> None:
    """Refuse a schema that could not be checked; `where` says whose it is.

    Raises:
        UsageError: a keyword, a type or a reference that is not known here.
    """
    for path, part in _walk(schema, "$"):  # a part is looked at before what is inside it
        if isinstance(part, bool):
            continue
        if not isinstance(part, Mapping):
            raise UsageError(f"{where}: {path} is {part!r}, which is no JSON schema")
        _check_part(cast("Schema", part), cast("Schema", schema), f"{where}: {path}")


def _check_part(part: Schema, root: Schema, where: str) -> None:
    for key, value in part.items():
        if key in _ANNOTATIONS:
            continue
        if key not in _FORMS:
            raise UsageError(f"{where} uses {key!r}, which is not checked here; leave it out, or give a type instead")
        if not isinstance(value, _FORMS[key]):
            raise UsageError(f"{where} has {key!r} as {value!r}, which it cannot be")
    types = _listed(part.get("type", ()))
    if wrong := [name for name in types if name not in _TYPES]:
        raise UsageError(f"{where} has the type {wrong[0]!r}; there are {', '.join(_TYPES)}")
    if "$ref" in part and _resolve(part["$ref"], root) is None:
        raise UsageError(f"{where} refers to {part['$ref']!r}, which is not in the schema; write '#/$defs/NAME'")
    if "pattern" in part:
        try:
            re.compile(part["pattern"])
        except (re.error, TypeError) as error:
            raise UsageError(f"{where} has a pattern that is no regular expression: {error}") from error


def _walk(schema: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The schema and all schemas inside it, each with where it stands."""
    yield path, schema
    if not isinstance(schema, Mapping):
        return
    known = cast("Schema", schema)
    for key in ("properties", "$defs", "definitions"):
        for name, part in known.get(key, {}).items():
            yield from _walk(part, f"{path}.{key}.{name}")
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for number, part in enumerate(known.get(key, ())):
            yield from _walk(part, f"{path}.{key}[{number}]")
    for key in ("items", "additionalProperties"):
        if key in known:
            yield from _walk(known[key], f"{path}.{key}")


def violation(value: Any, schema: Any, root: Schema | None = None, path: str = "$") -> str | None:
    """Where and how a decoded JSON value breaks the schema; None if it fits."""
    if isinstance(schema, bool):
        return None if schema else f"nothing may stand at `{path}`"
    top = schema if root is None else root
    rules = (_combined, _kind, _object, _array, _number, _text)
    return next((why for rule in rules if (why := rule(value, schema, top, path)) is not None), None)


def _combined(value: Any, schema: Schema, root: Schema, path: str) -> str | None:
    parts = [*schema.get("allOf", ())]
    if "$ref" in schema:
        parts.append(_resolve(schema["$ref"], root))
    for part in parts:
        if why := violation(value, part, root, path):
            return why
    for key in ("anyOf", "oneOf"):
        if key in schema:
            whys = [violation(value, part, root, path) for part in schema[key]]
            fitting = whys.count(None)
            if not fitting or (key == "oneOf" and fitting > 1):
                return f"`{path}` fits {fitting or 'none'} of the forms it may have ({'; '.join(w for w in whys if w)})"
    return None


def _kind(value: Any, schema: Schema, root: Schema, path: str) -> str | None:
    types = _listed(schema.get("type", ()))
    if types and not any(_is(value, name) for name in types):
        return f"expected {' or '.join(types)} at `{path}`, got {_name(value)}"
    if "const" in schema and not _same(value, schema["const"]):
        return f"expected {schema['const']!r} at `{path}`"
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        return f"expected one of {', '.join(map(repr, schema['enum']))} at `{path}`"
    return None


def _object(value: Any, schema: Schema, root: Schema, path: str) -> str | None:
    if not isinstance(value, dict):
        return None
    fields = cast("dict[str, Any]", value)
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if missing := [name for name in schema.get("required", ()) if name not in fields]:
        return f"required field `{missing[0]}` is missing at `{path}`"
    for name, part in fields.items():
        if name not in properties and others is False:
            return f"unknown field `{name}` at `{path}`; it takes {', '.join(properties) or 'none'}"
        if why := violation(part, properties.get(name, others), root, f"{path}.{name}"):
            return why
    return None


def _array(value: Any, schema: Schema, root: Schema, path: str) -> str | None:
    if not isinstance(value, list):
        return None
    items = cast("Sequence[Any]", value)
    if why := _size(len(items), schema.get("minItems", 0), schema.get("maxItems")):
        return f"`{path}` has {len(items)} items; it takes {why}"
    if schema.get("uniqueItems") and any(_same(a, b) for at, a in enumerate(items) for b in items[:at]):
        return f"`{path}` holds the same item twice"
    first = schema.get("prefixItems", ())
    for at, item in enumerate(items):
        part = first[at] if at < len(first) else schema.get("items", True)
        if why := violation(item, part, root, f"{path}[{at}]"):
            return why
    return None


def _number(value: Any, schema: Schema, root: Schema, path: str) -> str | None:
    if not _is(value, "number"):
        return None
    for key, (words, holds) in _BOUNDS.items():
        if key in schema and not holds(value, schema[key]):
            return f"expected {words} {schema[key]} at `{path}`, got {value}"
    return None


_BOUNDS: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "exclusiveMinimum": ("more than", operator.gt),
    "exclusiveMaximum": ("less than", operator.lt),
    "multipleOf": ("a multiple of", lambda value, unit: unit != 0 and math.isclose(value / unit, round(value / unit))),
}


def _text(value: Any, schema: Schema, root: Schema, path: str) -> str | None:
    if not isinstance(value, str):
        return None
    if why := _size(len(value), schema.get("minLength", 0), schema.get("maxLength")):
        return f"`{path}` is {len(value)} characters long; it takes {why}"
    if "pattern" in schema and re.search(schema["pattern"], value) is None:
        return f"`{path}` does not match {schema['pattern']!r}"
    return None


def _size(size: int, least: int, most: int | None) -> str | None:
    if size < least:
        return f"at least {least}"
    return f"at most {most}" if most is not None and size > most else None


def _resolve(reference: Any, root: Schema) -> Any:
    """What `#/$defs/NAME` points to; None if nothing."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found: Any = root
    for name in reference[1:].split("/")[1:]:
        key = name.replace("~1", "/").replace("~0", "~")
        found = cast("Schema", found).get(key) if isinstance(found, Mapping) else None
    return found


def _listed(value: Any) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])


def _same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and a == b


def _name(value: Any) -> str:
    return next(name for name in ("null", "boolean", "integer", "number", "string", "array", "object") if _is(value, name))
